"""Results that numpy computes in pieces equal those that it computes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenonnx.interruption import limited
from tenonnx_array import piecewise
from tenonnx_array.piecewise import Piecewise, plain, watched

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5, 7), np.float32)
ROWS = RNG.integers(0, 6, (40, 3))


def written(x: Any) -> Any:
    y = x.copy()
    y[ROWS[:, 0], ROWS[:, 1] % 5] = np.arange(7, dtype=np.float32)
    return y


def in_place(x: Any) -> Any:
    y = x.astype(np.float64)
    y /= np.abs(x).max(axis=1, keepdims=True)
    y[1:] += y[:-1]
    return y


def added(x: Any) -> Any:
    y = x.reshape(-1).copy()
    np.add.at(y, np.arange(60) % 9, np.float32(1.5))
    return y


SAME: dict[str, Callable[[Any], Any]] = {
    "a function": lambda x: np.tanh(x),
    "a row against columns": lambda x: x * x[:, :1] - 2,
    "columns first": lambda x: np.exp(x.T),
    "in place, over itself": in_place,
    "a choice": lambda x: np.where(x > 0, x, np.float32(7)),
    "the greatest": lambda x: x.max(axis=(0, 2), keepdims=True),
    "the greatest of all": lambda x: np.max(x),
    "any": lambda x: np.any(x > 2, axis=1),
    "in the middle": lambda x: np.minimum.reduce(x, axis=1),
    "in double": lambda x: np.sum(x, axis=0, dtype=np.float64),
    "a conversion": lambda x: x.astype(np.float16),
    "clipped": lambda x: np.clip(x, -0.5, 0.5),
    "read by indices": lambda x: x[ROWS[:, 0], ROWS[:, 1] % 5],
    "read by an index of rows": lambda x: x[ROWS],
    "written by indices": written,
    "added by indices": added,
    "picked": lambda x: np.compress(x.reshape(-1)[:150] > 0, x),
    "up to each": lambda x: np.add.accumulate(x.reshape(-1).astype(np.int64)),
    "ordered": lambda x: np.argsort(x.reshape(-1), kind="stable"),
}


@pytest.mark.parametrize("what", SAME)
def test_pieces_are_the_whole(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise, "LONGEST", 16)
    expected = SAME[what](X)
    for given in (X, np.asfortranarray(X)):
        found = plain(SAME[what](watched(given)))
        assert not isinstance(found, Piecewise)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(
            found.astype(np.float64), expected.astype(np.float64), 1e-15, strict=True
        )


def test_sums_lose_nothing_from_piece_to_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise, "LONGEST", 16)
    x = np.full(100_000, 0.1, np.float32)
    assert abs(float(watched(x).sum()) - float(x.astype(np.float64).sum())) < 1e-3


def test_it_looks_and_hands_back_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(piecewise, "LONGEST", 16)

    class Looks:
        count = 0

        def check(self) -> None:
            self.count += 1

    looks = Looks()
    with limited(looks):
        found = piecewise.piecewise(lambda x: (x, np.exp(x), None), X)
    assert looks.count >= X.size // 16
    assert found[0] is X
    assert found[1].base is None
    assert found[2] is None
