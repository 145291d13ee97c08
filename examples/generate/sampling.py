"""Choosing the next token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Sampler:
    """Draws tokens from logits.

    Attributes:
        temperature: Divides the logits; 0 always takes the most likely token.
        top_k: Draw from so many of the most likely tokens; 0 for all.
        top_p: Draw from the fewest tokens that are so likely together.
        seed: Of what is drawn.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    seed: int = 0
    _generator: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._generator = np.random.default_rng(self.seed)

    def __call__(self, logits: np.ndarray[Any, np.dtype[Any]]) -> int:
        """Return a token for logits [vocabulary]."""
        if not self.temperature:
            return int(logits.argmax())
        order = np.argsort(-logits, kind="stable")[: self.top_k or None]
        scaled = logits[order].astype(np.float64) / self.temperature
        chances = np.exp(scaled - scaled[0])
        chances /= chances.sum()
        # A token counts if those before it are not yet likely enough.
        kept = np.cumsum(chances) - chances < self.top_p
        chances = chances[kept] / chances[kept].sum()
        return int(order[self._generator.choice(len(chances), p=chances)])
