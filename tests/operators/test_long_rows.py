"""What numpy does of long rows in pieces is what it does at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenonnx.interruption import limited
from tenonnx_array import index, search


class Looks:
    """Counts how often a kernel looks whether to stop."""

    count = 0

    def check(self) -> None:
        self.count += 1


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("shape", [(2000,), (2, 1500)])
@pytest.mark.parametrize("kind", ["distinct", "ties", "nan"])
def test_the_greatest(
    shape: tuple[int, ...], k: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, shape) * 1.0 if kind == "ties" else rng.standard_normal(shape)
    if kind == "nan":
        x[rng.random(shape) < 0.999] = np.nan
    expected = search.top_k(np, x, k, -1, largest=1)
    monkeypatch.setattr(search, "LONGEST", 256)
    looks = Looks()
    with limited(looks):
        found = search.top_k(np, x, k, -1, largest=1)
    assert looks.count >= x.size // 256
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("density", [0, 0.3, 1])
def test_what_is_not_zero(order: Any, density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (np.random.default_rng(0).random((5, 7, 40)) < density).transpose(order)
    monkeypatch.setattr(index, "LONGEST", 512)
    monkeypatch.setattr(index, "PIECE", 128)
    looks = Looks()
    with limited(looks):
        found = index.non_zero(np, x)
    assert looks.count >= x.size // 128
    np.testing.assert_array_equal(found, np.stack(np.nonzero(x)))
    assert found.dtype == np.int64
