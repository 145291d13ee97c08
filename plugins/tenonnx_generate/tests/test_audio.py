"""Sounds and their features: against formulas, and against transformers where it is there."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoders import BANDS, processing, sweep, write_encoded, write_wave
from tenonnx_generate import Audios, Model
from tenonnx_generate.audio import MOST_SECONDS, Clip
from tenonnx_generate.errors import Missing, NotInstalled, Refused, Unsupported
from tenonnx_generate.mel import SAMPLE_RATE, Mel, features, filters

NDArray = np.ndarray[Any, np.dtype[Any]]


def by_definition(samples: NDArray, mel: Mel) -> NDArray:
    """Return features by sums of cosines and sines, one frame at a time."""
    whole = np.zeros(mel.samples)
    whole[: len(samples)] = samples
    half, size = mel.window // 2, mel.window
    padded = np.concatenate([whole[half:0:-1], whole, whole[-2 : -half - 2 : -1]])
    times = np.arange(size)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * times / size)
    angles = 2 * np.pi * np.outer(np.arange(half + 1), times) / size
    rows, bands = [], triangles(mel)
    for i in range(mel.samples // mel.hop):
        frame = padded[i * mel.hop : i * mel.hop + size] * hann
        power = (np.cos(angles) @ frame) ** 2 + (np.sin(angles) @ frame) ** 2
        rows.append(np.log10(np.maximum(bands @ power, 1e-10)))
    loudness = np.array(rows).T
    return (np.maximum(loudness, loudness.max() - 8) + 4) / 4


def triangles(mel: Mel) -> NDArray:
    """Return the bands as Slaney's toolbox defines them, one triangle after the other."""

    def hertz(mels: float) -> float:
        return mels * 200 / 3 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)

    top = 15 + 27 * np.log(8) / np.log(6.4)
    peaks = [hertz(top * i / (mel.bands + 1)) for i in range(mel.bands + 2)]
    bands = np.zeros((mel.bands, mel.window // 2 + 1))
    for band, (low, peak, high) in enumerate(zip(peaks, peaks[1:], peaks[2:], strict=False)):
        for i in range(bands.shape[1]):
            at = i * SAMPLE_RATE / mel.window
            slope = min((at - low) / (peak - low), (high - at) / (high - peak))
            bands[band, i] = max(slope, 0) * 2 / (high - low)
    return bands


@pytest.mark.parametrize("bands", [20, 80, 128])
def test_features_are_what_they_are_defined_as(bands: int) -> None:
    mel = Mel(bands, seconds=1)
    np.testing.assert_allclose(filters(bands, 400), triangles(mel), atol=1e-12)
    for samples in (sweep(0.7), sweep(1.0), np.zeros(10)):
        found = features(samples, mel)
        assert found.shape == (bands, 100)
        np.testing.assert_allclose(found, by_definition(samples, mel), atol=1e-5)


@pytest.mark.parametrize("bands", [80, 128])
def test_features_are_those_of_transformers(bands: int) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    extract = transformers.WhisperFeatureExtractor(feature_size=bands)
    for samples in (sweep(3.3), sweep(30)):
        expected = extract(
            samples.astype(np.float32), sampling_rate=SAMPLE_RATE, return_tensors="np"
        )
        found = features(samples.astype(np.float32), Mel(bands))
        np.testing.assert_allclose(found, expected.input_features[0], atol=1e-4)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_of_every_width(tmp_path: Path, width: int, channels: int) -> None:
    samples = sweep(0.2)
    path = write_wave(tmp_path / "a.wav", samples, width=width, channels=channels)
    step = 2.0 ** (1 - 8 * width) * 1.5 + 1e-7
    (clip,) = Audios.open(path)
    assert (clip.rate, clip.channels, clip.seconds) == (SAMPLE_RATE, channels, 0.2)
    np.testing.assert_allclose(clip.samples(SAMPLE_RATE, 0, 9999), samples, atol=step)
    (clip,) = Audios.open_bytes(path.read_bytes())
    np.testing.assert_allclose(clip.samples(SAMPLE_RATE, 100, 50), samples[100:150], atol=step)


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 44_101, 96_000])
def test_another_rate_keeps_a_tone_and_drops_what_is_too_high(tmp_path: Path, rate: int) -> None:
    def tone(hertz: float, at: int) -> NDArray:
        wave: NDArray = np.sin(2 * np.pi * hertz * np.arange(at // 2) / at) * 0.9
        return wave

    path = write_wave(tmp_path / "low.wav", tone(1000, rate), rate)
    (clip,) = Audios.open(path)
    found = clip.samples(SAMPLE_RATE, 0, 10**6)
    assert len(found) == -(-(rate // 2) * SAMPLE_RATE // rate)
    np.testing.assert_allclose(found[1000:7000], tone(1000, SAMPLE_RATE)[1000:7000], atol=1e-4)
    np.testing.assert_allclose(clip.samples(SAMPLE_RATE, 3000, 500), found[3000:3500], atol=1e-6)
    if rate > 2 * 9000:
        path = write_wave(tmp_path / "high.wav", tone(9000, rate), rate)
        (clip,) = Audios.open(path)
        assert np.abs(clip.samples(SAMPLE_RATE, 1000, 6000)).max() < 1e-4


def header(samples: int = 100, *, channels: int = 1, rate: int = 16_000, kind: int = 1) -> bytes:
    """Return the head of a WAV file of 16 bits, or of floats."""
    width = 2 if kind == 1 else 4
    size = samples * channels * width
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * width,
                       channels * width, 8 * width)  # fmt: skip
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", size)
    return b"RIFF" + struct.pack("<I", size + 36) + b"WAVE" + chunks


BAD = [
    (header(100) + bytes(100), "is cut off: it has less than the 100 samples"),
    (header(0), "has no samples"),
    (header(100, channels=8) + bytes(1600), "has 8 channels; expected one or two"),
    (header(100, rate=1000) + bytes(200), "has 1000 samples a second; expected 4000"),
    (header(100, rate=10**6) + bytes(200), "has 1000000 samples a second"),
    (header(0x7FFFFF00 // 2, rate=4000), f"hours long; at most {MOST_SECONDS // 3600} are read"),
    (header(0x7FFFFF00 // 2, rate=96000), "is cut off"),
    (header()[:12] + (b"LIST" + bytes(4)) * 300 + header()[12:], "more than 256 chunks before"),
]


@pytest.mark.parametrize(("content", "said"), BAD)
def test_sounds_that_cannot_be(content: bytes, said: str) -> None:
    with pytest.raises(Refused, match=said):
        Audios.open_bytes(content)


WIDE = header().replace(b"\x10\0data", b"\x30\0data")


@pytest.mark.parametrize("content", [
    header(100, kind=3) + bytes(400), WIDE, b"", b"fLaC" + bytes(50), b"RIFF", header()[:30],
])  # fmt: skip
def test_other_containers_need_a_library(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(NotInstalled, match="is no WAV file of whole numbers") as caught:
        Audios.open_bytes(content)
    assert "pip install soundfile" in str(caught.value)


def test_other_containers_are_read_with_it(tmp_path: Path) -> None:
    library = pytest.importorskip("soundfile", reason="soundfile is not installed")
    samples = sweep(3)
    for name, subtype, step in (
        ("a.flac", "PCM_24", 1e-6), ("a.wav", "FLOAT", 1e-7), ("a.mp3", "MPEG_LAYER_III", 0.1),
    ):  # fmt: skip
        library.write(tmp_path / name, np.stack([samples] * 2, 1), SAMPLE_RATE, subtype)
        (clip,) = Audios.open(tmp_path / name)
        whole = clip.samples(SAMPLE_RATE, 0, 10**6)
        np.testing.assert_allclose(whole, samples, atol=step)
        for first in (0, 2000, 2500, 40_000, 10, 4000):
            part = clip.samples(SAMPLE_RATE, first, 3000)
            np.testing.assert_array_equal(part, whole[first : first + 3000])
    for content in (b"", b"fLaC" + bytes(50), b"RIFF", header()[:30]):
        with pytest.raises(Refused, match="no sound that can be read"):
            Audios.open_bytes(content)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(Missing, match=r"no\.wav does not exist"):
        Audios.open(tmp_path / "no.wav")
    with pytest.raises(Refused, match="there are no sounds"):
        Audios.open()
    with pytest.raises(TypeError, match="expected bytes"):
        Audios.open_bytes("a.wav")  # type: ignore[arg-type]  # a caller's mistake
    path = write_wave(tmp_path / "a.wav", sweep(0.2))
    (clip,) = Audios.open(path)
    path.unlink()
    with pytest.raises(Missing, match="cannot be opened"):
        clip.samples(SAMPLE_RATE, 0, 10)


def test_a_file_that_is_cut_off_meanwhile(tmp_path: Path) -> None:
    path = write_wave(tmp_path / "a.wav", sweep(0.2))
    clip = Clip(path, "a.wav")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(Refused, match="cut off after"):
        clip.samples(SAMPLE_RATE, 0, 3000)


@pytest.mark.parametrize(("changes", "said"), [
    ({"n_mel": 0}, "n_mel in .* is 0; expected 1 to 512"),
    ({"n_mel": "80"}, "n_mel in .* is '80'"),
    ({"n_mel": 21}, r"have 21 bands, but the encoder's input .* \['b', 20, 100\]"),
    ({"chunk_size": 2}, "have 200 frames, but"),
    ({"chunk_size": 10**9}, "chunk_size in .* expected 1 to 120"),
    ({"n_fft": 401}, "n_fft in .* is 401; expected an even number"),
])  # fmt: skip
def test_processors_that_cannot_be(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
    import json

    folder = write_encoded(tmp_path / "folder")
    config = folder / "audio_processor_config.json"
    config.write_text(json.dumps(processing(**changes)))
    with pytest.raises(Refused, match=said):
        Model(folder).create_multimodal_processor()
    config.write_text("{}")
    with pytest.raises(Refused, match="has no n_mel"):
        Model(folder).create_multimodal_processor()
    config.unlink()
    with pytest.raises(Missing, match="has no audio_processor_config"):
        Model(folder).create_multimodal_processor()


def test_what_a_processor_is_asked_for(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="tenonnx-generate is not installed")
    processor = Model(write_encoded(tmp_path / "folder")).create_multimodal_processor()
    short = write_wave(tmp_path / "short.wav", sweep(0.5)).read_bytes()
    long = write_wave(tmp_path / "long.wav", sweep(1.5)).read_bytes()
    two = Audios.open_bytes(short, short)
    named = processor(["<s>a", "<s>abc"], audios=two)
    assert named["input_ids"].as_numpy().tolist() == [[256, 97, 258, 258], [256, 97, 98, 99]]
    assert named["audio_features"].shape() == [2, BANDS, 100]
    assert processor.decode([97, 98, 257]) == "ab"
    for kind, said, given in [
        (Refused, "there is no prompt", {"prompt": None, "audios": two}),
        (Refused, "there is no prompt", {"prompt": "", "audios": two}),
        (Refused, "3 prompts for 2 sounds", {"prompt": ["a"] * 3, "audios": two}),
        (Refused, "there is no sound", {"prompt": "a"}),
        (Unsupported, "no images", {"prompt": "a", "audios": two, "images": 1}),
        (Refused, "is 1.5 s long; the model takes 1 s", {
            "prompt": "a", "audios": Audios.open_bytes(long),
        }),
    ]:  # fmt: skip
        with pytest.raises(kind, match=said):
            processor(**given)  # type: ignore[arg-type]  # mistakes, some of them of types
