"""Texts that are to be generated, and the tokens that come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tenonnx_generate import GeneratorParams
from tenonnx_serve.threads import Stop

NDArray = np.ndarray[Any, np.dtype[Any]]


def _nothing() -> None:
    """Does what cancelling takes where there is no engine."""


class Step(NamedTuple):
    """A token that came.

    Attributes:
        token: It.
        chances: It and the likeliest ones, with the logarithms of their probabilities; empty if
            nobody asked.
        ends: It ends the text, and is no part of it.
    """

    token: int
    chances: list[tuple[int, float]]
    ends: bool


class Job:
    """One text that is to be generated.

    Args:
        prompt: Its first tokens.
        params: How the others are chosen.
        top: How many of the likeliest tokens to tell of at each step; -1 for no probabilities.

    Attributes:
        stop: Ends it.
        done: No more of it is wanted.
        cancel: Ends it in the engine.
    """

    def __init__(self, prompt: NDArray, params: GeneratorParams, top: int) -> None:
        self.prompt, self.params, self.top = prompt, params, top
        self.stop = Stop(float("inf"))
        self.done = False
        self.cancel: Callable[[], None] = _nothing

    def finish(self) -> None:
        """Says that no more of it is wanted."""
        self.done = True
        self.stop.reason = "nobody waits for it"
        self.cancel()
