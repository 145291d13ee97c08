"""Results of long rows that numpy computes in pieces equal those of whole rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenonnx.interruption import limited
from tenonnx_array import generate, index, pad, sampling, search, signal, sorting, strings


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


KEYS: dict[str, Any] = {
    "distinct": lambda rng: rng.standard_normal(900),
    "ties": lambda rng: rng.integers(0, 4, 900),
    "nan": lambda rng: np.where(rng.random(900) < 0.5, np.nan, rng.standard_normal(900)),
    "words": lambda rng: rng.integers(0, 99, 900).astype(str).astype(object),
    "rising": lambda _: np.arange(900),
    "falling": lambda _: np.arange(900)[::-1],
    "bytes": lambda rng: rng.integers(0, 99, 900).astype(np.uint8),
    "bits": lambda rng: rng.random(900) < 0.5,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("count", [None, 5, 450])
def test_the_order(kind: str, count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KEYS[kind](np.random.default_rng(0))
    monkeypatch.setattr(sorting, "LONGEST", 40)
    monkeypatch.setattr(sorting, "OBJECTS", 40)
    found = sorting.stable_order(keys, count)
    np.testing.assert_array_equal(found, np.argsort(keys, kind="stable")[:count])


@pytest.mark.parametrize("k", [9, 700])
def test_many_of_the_greatest(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(0, 300, (2, 900))
    expected = search.top_k(np, x, k, -1, largest=1)
    for module in (search, sorting):
        monkeypatch.setattr(module, "LONGEST", 64)
    for ours, theirs in zip(search.top_k(np, x, k, -1, largest=1), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap", "constant"])
@pytest.mark.parametrize("widths", [(2, 1, 0, 4, 0, 1), (9, 0, 0, 0, 0, 11), (0, 3, 0, 0, 2, 0)])
def test_frames(mode: str, widths: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    monkeypatch.setattr(pad, "MOVED", 8)
    found = pad.pad(np, x, np.array(widths), np.array(2.5), mode=mode)
    ends = list(zip(widths[:3], widths[3:], strict=True))
    value = {"constant_values": 2.5} if mode == "constant" else {}
    np.testing.assert_array_equal(found, np.pad(x, ends, mode, **value))


@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra(onesided: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    given = rng.standard_normal((2, 90, 1)).astype(np.float32), np.array(3)
    window = np.hanning(8).astype(np.float32)
    expected = signal.stft(np, *given, window, onesided=onesided)
    monkeypatch.setattr(signal, "LONGEST", 50)
    found = signal.stft(np, *given, window, onesided=onesided)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_numbers_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in (np.int64, np.float32, np.float64):
        given = [np.array(value, dtype) for value in (3, 98, 2)]
        expected = generate.range_(np, *given)
        monkeypatch.setattr(generate, "MOVED", 10)
        found = generate.range_(np, *given)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype == dtype
        monkeypatch.undo()


def test_words(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.array([["a b c", "", "d"], [" e  f ", "g", "h i"]], object)
    for delimiter in (None, " "):
        expected = strings.string_split(np, x, delimiter=delimiter)
        monkeypatch.setattr(strings, "AT_ONCE", 2)
        for ours, theirs in zip(
            strings.string_split(np, x, delimiter=delimiter), expected, strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
        monkeypatch.undo()


def test_flips_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    p = np.random.default_rng(0).random((5, 7)).astype(np.float32)
    expected = (
        sampling.bernoulli(np, p, seed=3.0),
        sampling.dropout(np, p, np.array(0.4), np.array(True), seed=3, _outputs=2),
    )
    monkeypatch.setattr(sampling, "LONGEST", 4)
    np.testing.assert_array_equal(sampling.bernoulli(np, p, seed=3.0), expected[0])
    found = sampling.dropout(np, p, np.array(0.4), np.array(True), seed=3, _outputs=2)
    for ours, theirs in zip(found, expected[1], strict=True):
        np.testing.assert_array_equal(ours, theirs)
