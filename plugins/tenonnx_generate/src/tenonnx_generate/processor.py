"""``MultiModalProcessor``: prompts and sounds as the inputs of a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_generate.config import CONFIG_FILE
from tenonnx_generate.encoder import AUDIO, TOKENS
from tenonnx_generate.errors import Missing, Refused, Unsupported
from tenonnx_generate.files import CONFIG_LIMIT, inside, parse_object, read_text
from tenonnx_generate.mel import SAMPLE_RATE, Mel, features
from tenonnx_generate.tensor import Tensor, float_type

if TYPE_CHECKING:
    from tenonnx_generate.audio import Audios, Clip
    from tenonnx_generate.model import Model
    from tenonnx_generate.streaming import TokenizerStream

NDArray = np.ndarray[Any, np.dtype[Any]]

# The file that says how features are made, unless the configuration names another.
CONFIG = "audio_processor_config.json"

# Attributes of its operations, and what they are here.
READS = {"n_mel": "bands", "n_fft": "window", "hop_length": "hop", "chunk_size": "seconds"}

MOST_BANDS, MOST_WINDOW, MOST_PIECE = 512, 4096, 120


class NamedTensors(MutableMapping[str, Tensor]):
    """Inputs of a model by name, for ``Generator.set_inputs``."""

    def __init__(self) -> None:
        self._tensors: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._tensors[name] = value if isinstance(value, Tensor) else Tensor(value)

    def __delitem__(self, name: str) -> None:
        del self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


class MultiModalProcessor:
    """The maker of a model's inputs from prompts and sounds.

    Args:
        model: The model.

    Raises:
        Unsupported: It takes no sounds.
        Missing: The folder lacks a file that says how features are made, or the tokenizer.
        Refused: That file says what cannot be, or what does not fit the encoder.
    """

    def __init__(self, model: Model) -> None:
        from tenonnx_generate.tokenizer import Tokenizer  # it imports the model's module

        audio = None if model.encoder is None else model.encoder.audio
        if audio is None:
            raise Unsupported(f"a model of the type {model.type!r} takes no sounds")
        self.mel = _described(model)
        self._dtype = float_type(audio.type)
        for size, found, what in zip(
            audio.shape[1:], (self.mel.bands, self.mel.frames), ("bands", "frames"), strict=True
        ):
            if isinstance(size, int) and size != found:
                raise Refused(
                    f"the features have {found} {what}, but the encoder's input {audio.name!r} is "
                    f"{list(audio.shape)}"
                )
        self.tokenizer = Tokenizer(model)

    def __call__(
        self,
        prompt: str | Sequence[str] | None = None,
        *,
        audios: Audios | None = None,
        images: None = None,
    ) -> NamedTensors:
        """Return ``audio_features`` [sounds, bands, frames] and ``input_ids`` [prompts, tokens].

        Args:
            prompt: What the text begins with, with its special tokens, such as
                ``<|startoftranscript|><|en|><|transcribe|><|notimestamps|>``; or one for each
                sound.
            audios: The sounds, each at most as long as the model takes at once.
            images: There are none.

        Raises:
            Refused: There is no prompt or no sound, their numbers differ, or a sound is too long.
            Unsupported: There are images.
        """
        if images is not None:
            raise Unsupported("the model takes no images")
        if audios is None:
            raise Refused("there is no sound", hint="processor(prompt, audios=Audios.open(path))")
        prompts = [prompt] if isinstance(prompt, str) else list(prompt or ())
        if not prompts or not all(isinstance(each, str) and each for each in prompts):
            raise Refused(
                "there is no prompt",
                hint="Whisper's begins with <|startoftranscript|>, a language and a task",
            )
        if len(prompts) not in (1, len(audios)):
            raise Refused(
                f"there are {len(prompts)} prompts for {len(audios)} sounds; expected one for all, "
                f"or one for each"
            )
        made = NamedTensors()
        made[TOKENS] = self._encoded(prompts * (len(audios) // len(prompts)))
        made[AUDIO] = np.stack([self._features(clip) for clip in audios])
        return made

    def decode(self, tokens: Any) -> str:
        """Return the text of tokens, without special ones."""
        return self.tokenizer.decode(tokens)

    def create_stream(self) -> TokenizerStream:
        """Return what decodes one sequence's tokens as they come."""
        return self.tokenizer.create_stream()

    def piece(self, clip: Clip, number: int) -> NDArray:
        """Return the features [1, bands, frames] of a piece of a sound, as long as a model takes.

        Args:
            clip: The sound.
            number: Which piece.
        """
        samples = clip.samples(SAMPLE_RATE, number * self.mel.samples, self.mel.samples)
        piece: NDArray = features(samples, self.mel).astype(self._dtype, copy=False)[None]
        return piece

    def _features(self, clip: Clip) -> NDArray:
        if clip.seconds > self.mel.seconds:
            raise Refused(
                f"{clip.name} is {clip.seconds:.1f} s long; the model takes {self.mel.seconds} s "
                f"at once",
                hint="cut it, or let `tenonnx generate --audio` do that",
            )
        whole: NDArray = self.piece(clip, 0)[0]
        return whole

    def _encoded(self, prompts: list[str]) -> NDArray:
        rows = [self.tokenizer.encode(text, add_special_tokens=False) for text in prompts]
        padded = np.full((len(rows), max(map(len, rows))), self.tokenizer.pad_token_id, np.int32)
        for row, tokens in zip(padded, rows, strict=True):
            row[: len(tokens)] = tokens
        return padded


def _described(model: Model) -> Mel:
    """Return how a folder says that features are made."""
    about = model.description
    name = about.speech or CONFIG
    if not os.path.isfile(os.path.join(about.folder, name)):
        raise Missing(
            f"{about.folder} has no {name}",
            hint="onnxruntime_genai.models.builder writes it beside the model",
        )
    path = inside(about.folder, name)
    document = parse_object(read_text(path, CONFIG_LIMIT), path)
    section = document.get("feature_extraction")
    sequence = section.get("sequence") if isinstance(section, dict) else None
    found: dict[str, int] = {}
    for each in sequence if isinstance(sequence, list) else ():
        operation = each.get("operation") if isinstance(each, dict) else None
        attributes = operation.get("attrs") if isinstance(operation, dict) else None
        if isinstance(attributes, dict):
            found |= {READS[key]: value for key, value in attributes.items() if key in READS}
    if "bands" not in found:
        raise Refused(
            f"{path} has no n_mel, the number of bands", hint=f"{CONFIG_FILE} names another file?"
        )
    return _checked(found, path)


def _checked(found: dict[str, Any], path: str) -> Mel:
    most = {"bands": MOST_BANDS, "window": MOST_WINDOW, "hop": MOST_WINDOW, "seconds": MOST_PIECE}
    for key, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most[key]:
            name = next(name for name, own in READS.items() if own == key)
            raise Refused(f"{name} in {path} is {value!r:.60}; expected 1 to {most[key]}")
    mel = Mel(**found)
    if mel.window % 2:
        raise Refused(f"n_fft in {path} is {mel.window}; expected an even number")
    return mel
