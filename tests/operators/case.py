"""A row in a ``cases_*.py`` table: an operator at a version, inputs, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx.defs

RELEASED = 28
"""The opset of the newest release of onnx, 1.23."""


@dataclass(frozen=True)
class Case:
    """One run of a one-node model.

    ``expected`` is the answer (an array, or a tuple of them; ``None`` is an absent one), or the
    specification's formula, called with the inputs.
    """

    op: str
    version: int
    inputs: Sequence[Any]
    expected: Any | Callable[..., Any]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    name: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6

    @property
    def id(self) -> str:
        return "-".join(filter(None, [self.domain, self.op, str(self.version), self.name]))

    @property
    def is_known(self) -> bool:
        """Whether the installed onnx has the version, unless no released onnx has it."""
        known = self.domain or self.version <= onnx.defs.onnx_opset_version()
        return bool(known) or self.version > RELEASED

    def answers(self) -> tuple[Any, ...]:
        value = self.expected(*self.inputs) if callable(self.expected) else self.expected
        return value if isinstance(value, tuple) else (value,)


def assert_equal(actual: Any, expected: Any, rtol: float, atol: float) -> None:
    """Same structure, dtype, shape and, within tolerance, the same numbers."""
    if expected is None or isinstance(expected, (list, dict)):
        if isinstance(expected, list):
            assert isinstance(actual, list)
            assert len(actual) == len(expected)
            for a, e in zip(actual, expected, strict=True):
                assert_equal(a, e, rtol, atol)
        else:
            assert actual == expected
        return
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if expected.dtype == object or expected.dtype.kind in "biuU":
        np.testing.assert_array_equal(actual, expected)
    else:
        wide = np.complex128 if expected.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(actual.astype(wide), expected.astype(wide), rtol, atol)
