"""Texts that are to be generated, and the tokens that come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tenonnx_generate import GeneratorParams, TurnUsage
from tenonnx_serve.threads import Stop

NDArray = np.ndarray[Any, np.dtype[Any]]


def _nothing() -> None:
    """Do what cancelling takes where there is no engine."""


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


@dataclass(eq=False)
class Job:
    """One text that is to be generated.

    Attributes:
        prompt: Its first tokens.
        params: How the others are chosen.
        top: How many of the likeliest tokens to tell of at each step; -1 for no probabilities.
        adapter: The adapter that its tokens are run with, by name.
        cache_salt: Texts share caches with those that have the same one.
        tells_prompt: The probabilities of the prompt's tokens are asked for, too.
        is_empty: Nothing is to follow the prompt: the token that comes is not told.
        prompt_chances: For each token of the prompt but the first, as ``Step.chances``; there
            before the first step.
        usage: Tokens and waiting time, once it has ended in an engine.
        drafted: Tokens that were drafted for it, and those of them that came.
        images: Inputs of the model besides tokens, of the images in the prompt.
        stop: Ends it.
        done: No more of it is wanted.
        cancel: Ends it in the engine.
    """

    prompt: NDArray
    params: GeneratorParams
    top: int
    adapter: str = ""
    cache_salt: str = ""
    tells_prompt: bool = False
    is_empty: bool = False
    prompt_chances: list[list[tuple[int, float]]] = field(default_factory=list)
    usage: TurnUsage | None = None
    drafted: tuple[int, int] = (0, 0)
    images: Mapping[str, Any] = field(default_factory=dict)
    stop: Stop = field(default_factory=lambda: Stop(float("inf")))
    done: bool = False
    cancel: Callable[[], None] = _nothing

    def finish(self) -> None:
        """Stop the generation of a text."""
        self.done = True
        self.stop.reason = "nobody waits for it"
        self.cancel()
