"""The input of a generator's encoder, sounds or texts, and the decoder's inputs from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_generate.decoder import Decoder
from tenonnx_generate.encoder import AUDIO, Encoder
from tenonnx_generate.errors import Refused

NDArray = np.ndarray[Any, np.dtype[Any]]


class Source:
    """The sounds or texts of a generator's sequences. The encoder runs once for all of them.

    Args:
        encoder: The model's.
        sequences: How many there are.
        pad: What pads texts.
    """

    def __init__(self, encoder: Encoder, sequences: int, pad: int) -> None:
        self._encoder, self._sequences, self._pad = encoder, sequences, pad
        self._given: dict[str, NDArray] | None = None
        self._run = False

    @property
    def takes_text(self) -> bool:
        """Return whether the encoder reads tokens."""
        return self._encoder.audio is None

    def take(self, name: str, array: NDArray) -> None:
        """Take an input of the encoder by its name, or by that which all models have for it.

        Raises:
            Refused: There is no such input, or the array does not fit.
        """
        audio = self._encoder.audio
        if audio is None or name not in (audio.name, AUDIO):
            raise Refused(
                f"the model takes no {name!r}",
                hint="append_tokens gives it a text" if audio is None else f"it takes {AUDIO!r}",
            )
        features = self._encoder.features(array)
        if self._sequences % len(features):
            raise Refused(
                f"{name} are of {len(features)} sounds; expected one for all, or one for each of "
                f"{self._sequences} sequences, or of as many groups",
                hint="set_search_options(batch_size=...) says how many there are",
            )
        self._given, self._run = {AUDIO: features}, False

    def read(self, texts: list[NDArray]) -> list[NDArray]:
        """Take the texts of the sequences; return the tokens that these begin with."""
        self._given, self._run = self._encoder.tokens(texts, self._pad), False
        start = np.array([self._encoder.about.start], np.int32)
        return [start] * len(texts)

    def settle(self, decoder: Decoder) -> None:
        """Run the encoder if that is due, and give the decoder what it takes of it.

        Raises:
            Refused: There is nothing to read.
        """
        if self._given is None:
            raise Refused(
                "the model has been given no sound to read",
                hint="set_inputs(processor(prompt, audios=audios)) before append_tokens",
            )
        if not self._run:
            decoder.feed(self._encoder.run(self._given), self._sequences)
            self._run = True
