"""The differences of a quantized model's outputs from the original model's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenonnx import InferenceSession
from tenonnx_quant.feeds import Feed


@dataclass
class Accuracy:
    """The error of one output over all feeds.

    Attributes:
        output: Its name.
        count: How many numbers were compared.
        largest: The greatest absolute error.
        total: Sum of absolute errors.
        noise: Sum of squared errors.
        signal: Sum of squares of the original's numbers.
    """

    output: str
    count: int = 0
    largest: float = 0.0
    total: float = 0.0
    noise: float = 0.0
    signal: float = 0.0

    @property
    def mean(self) -> float:
        """The mean absolute error."""
        return self.total / max(self.count, 1)

    @property
    def snr(self) -> float:
        """``10 log10(signal / noise)``, in decibels; infinite if nothing differs."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    def add(self, expected: Any, found: Any) -> None:
        """Take one run's output of both models, of the same shape."""
        expected, found = np.asarray(expected, np.float64), np.asarray(found, np.float64)
        # Scores that are masked out are infinite in both.
        both = np.isfinite(expected) & np.isfinite(found)
        error = np.abs(np.subtract(found, expected, where=both, out=np.zeros_like(expected)))
        self.count += error.size
        self.largest = max(self.largest, float(error.max(initial=0.0)))
        self.total += float(error.sum())
        self.noise += float((error**2).sum())
        self.signal += float((np.where(both, expected, 0) ** 2).sum())

    def __str__(self) -> str:
        return (
            f"{self.output}: max error {self.largest:.4g}, mean error {self.mean:.4g}, "
            f"SNR {self.snr:.1f} dB"
        )


def compare(original: Any, quantized: Path, feeds: Iterable[Feed]) -> Sequence[Accuracy]:
    """Run both models on the feeds; return the error of every output of numbers."""
    sessions = [InferenceSession(model) for model in (original, quantized)]
    names = [output.name for output in sessions[0].get_outputs()]
    found = {name: Accuracy(name) for name in names}
    for feed in feeds:
        pairs = zip(*(session.run(names, feed) for session in sessions), strict=True)
        for name, (expected, given) in zip(names, pairs, strict=True):
            if isinstance(expected, np.ndarray) and expected.dtype.kind not in "OUSc":
                found[name].add(expected, given)
    return [accuracy for accuracy in found.values() if accuracy.count]
