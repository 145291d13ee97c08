"""``Audios``: sounds of files or of bytes, read piece by piece."""

from __future__ import annotations

import importlib
import io
import os
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tenonnx_generate.errors import Missing, NotInstalled, Refused
from tenonnx_generate.resampling import resampled

NDArray = np.ndarray[Any, np.dtype[Any]]

LEAST_RATE, MOST_RATE = 4_000, 192_000
MOST_SECONDS = 4 * 3600
MOST_CHANNELS = 2
MOST_CLIPS = 1024


class Clip:
    """One sound. Nothing of it stays in memory but what it was given as bytes.

    Args:
        source: A file's path, or its content.
        name: How errors call it.

    Attributes:
        rate: Its samples a second.
        frames: How many samples each channel has.

    Raises:
        Missing: There is no such file.
        Refused: It is no sound, has no samples, is cut off, too long, or has too many channels.
        NotInstalled: It is no WAV file of whole numbers, and ``soundfile`` is not there.
    """

    def __init__(self, source: Path | bytes, name: str) -> None:
        self.name, self._source = name, source
        with self._file() as file:
            self._reads = _wave_frames if _is_wave(file) else _other_frames
            self.rate, self.channels, self.frames = self._reads(file, name, 0, 0)[:3]
            self._check()
            # A file that is cut off lacks its last sample.
            if not len(self._reads(file, name, self.frames - 1, 1)[3]):
                raise Refused(f"{name} is cut off: it has less than the {self.frames} samples")

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.frames / self.rate

    def samples(self, rate: int, first: int, count: int) -> NDArray:
        """Returns at most so many samples, mono from -1 to 1, at any rate.

        Args:
            rate: Theirs.
            first: The first, of all that the sound has at this rate.
            count: How many at most: fewer at its end.
        """
        left = -(-self.frames * rate // self.rate) - first
        with self._file() as file:
            return resampled(self._reader(file), self.rate, rate, first, max(min(count, left), 0))

    def _reader(self, file: IO[bytes]) -> Callable[[int, int], NDArray]:
        def read(start: int, stop: int) -> NDArray:
            there = np.zeros(max(stop - start, 0), np.float32)
            low, high = max(start, 0), min(stop, self.frames)
            if low < high:
                *_, frames = self._reads(file, self.name, low, high - low)
                if len(frames) < high - low:
                    raise Refused(f"{self.name} is cut off after {low + len(frames)} samples")
                there[low - start : high - start] = frames.mean(axis=1)
            return there

        return read

    def _file(self) -> IO[bytes]:
        if isinstance(self._source, bytes):
            return io.BytesIO(self._source)
        try:
            return self._source.open("rb")
        except OSError as error:
            raise Missing(f"{self.name} cannot be opened: {error.strerror}") from error

    def _check(self) -> None:
        if not self.frames > 0:
            raise Refused(f"{self.name} has no samples")
        if not 1 <= self.channels <= MOST_CHANNELS:
            raise Refused(
                f"{self.name} has {self.channels} channels; expected one or two",
                hint="mix them down before",
            )
        if not LEAST_RATE <= self.rate <= MOST_RATE:
            raise Refused(
                f"{self.name} has {self.rate} samples a second; expected {LEAST_RATE} to "
                f"{MOST_RATE}"
            )
        if self.seconds > MOST_SECONDS:
            raise Refused(
                f"{self.name} is {self.seconds / 3600:.1f} hours long; at most "
                f"{MOST_SECONDS // 3600} are read",
                hint="cut it into several files",
            )


class Audios:
    """Sounds, in the order in which they were opened."""

    def __init__(self, clips: Sequence[Clip]) -> None:
        self._clips = list(clips)
        if not self._clips:
            raise Refused("there are no sounds")
        if len(self._clips) > MOST_CLIPS:
            raise Refused(f"there are {len(self._clips)} sounds; at most {MOST_CLIPS} are read")

    @staticmethod
    def open(*paths: str | os.PathLike[str]) -> Audios:
        """Opens files, of which nothing but the heads are read yet.

        Raises:
            TypeError: One is no path.
            Missing: One does not exist.
            Refused: One is no sound that can be read.
            NotInstalled: One is no WAV file, and ``soundfile`` is not there.
        """
        found = [Path(path) for path in paths]
        for path in found:
            if not path.is_file():
                raise Missing(f"{path} does not exist")
        return Audios([Clip(path, str(path)) for path in found])

    @staticmethod
    def open_bytes(*contents: bytes) -> Audios:
        """Opens the contents of files.

        Raises:
            TypeError: One is no ``bytes``.
            Refused: One is no sound that can be read.
            NotInstalled: One is no WAV file, and ``soundfile`` is not there.
        """
        for content in contents:
            if not isinstance(content, bytes | bytearray | memoryview):
                raise TypeError(f"a sound is {type(content).__name__}; expected bytes")
        return Audios([Clip(bytes(each), f"sound {i}") for i, each in enumerate(contents)])

    def __len__(self) -> int:
        return len(self._clips)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self._clips)


def _is_wave(file: IO[bytes]) -> bool:
    """Says whether the standard library reads a file: WAV with whole numbers."""
    file.seek(0)
    try:
        wave.open(file, "rb").close()  # type: ignore[no-untyped-call]  # closes no file of ours
    except (wave.Error, EOFError, RuntimeError):
        return False
    return True


Read = tuple[int, int, int, NDArray]
"""Rate, channels, frames in all, and those that were asked for, [frames, channels]."""


def _wave_frames(file: IO[bytes], _name: str, first: int, count: int) -> Read:
    file.seek(0)
    with wave.open(file, "rb") as reader:
        width, channels, frames = (
            reader.getsampwidth(), reader.getnchannels(), reader.getnframes(),
        )  # fmt: skip
        if count:
            reader.setpos(first)
        content = reader.readframes(count)
        whole = content[: len(content) // (width * channels) * width * channels]
        return reader.getframerate(), channels, frames, _floats(whole, width, channels)


def _floats(content: bytes, width: int, channels: int) -> NDArray:
    """Returns samples of 8 bits, from 0 on, or 16, 24 or 32, around 0, as -1 to 1."""
    if width == 1:
        numbers = np.frombuffer(content, np.uint8).astype(np.float32) - 128
    elif width == 3:
        wide = np.zeros((len(content) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(content, np.uint8).reshape(-1, 3)
        numbers, width = wide.view("<i4")[:, 0].astype(np.float32), 4
    else:
        numbers = np.frombuffer(content, f"<i{width}").astype(np.float32)
    return numbers.reshape(-1, channels) / np.float32(1 << (8 * width - 1))


def _other_frames(file: IO[bytes], name: str, first: int, count: int) -> Read:
    file.seek(0)
    try:
        library: Any = importlib.import_module("soundfile")
    except (ModuleNotFoundError, OSError) as error:  # the C library may not be there
        raise NotInstalled(
            f"{name} is no WAV file of whole numbers, which is all that is read without soundfile",
            hint="pip install soundfile, or ffmpeg -i FILE -c:a pcm_s16le FILE.wav",
        ) from error
    try:
        with library.SoundFile(file) as reader:
            if count:
                reader.seek(first)
            frames = reader.read(count, dtype="float32", always_2d=True)
            return reader.samplerate, reader.channels, reader.frames, frames
    except (library.SoundFileError, RuntimeError) as error:
        raise Refused(f"{name} is no sound that can be read: {error}") from error
