"""Convolutions of volumes on the kernel of images: windows along the depth are more channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from running import Watch, floats, run, session
from windows_oracle import convolve

from models import node
from tenonnx_cpu.conv.select import CONV

THREE = st.integers(1, 3)

WIDTHS = st.one_of(st.integers(1, 10), st.sampled_from([16, 32, 72]))
"""Of lines of volumes; some of them fill vectors, and are multiplied one by one."""


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 10), st.integers(1, 10), WIDTHS),
    kernel=st.tuples(THREE, THREE, THREE),
    strides=st.tuples(*[st.integers(1, 2)] * 3),
    dilations=st.tuples(*[st.integers(1, 2)] * 3),
    pads=st.tuples(*[st.integers(0, 2)] * 6),
    channels=st.integers(1, 5),
    group=st.sampled_from([1, 1, 2]),
    threads=st.sampled_from([1, 4]),
)
def test_convolution_of_volumes(
    size: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, channels: int, group: int,
    threads: int,
) -> None:  # fmt: skip
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    whole = [n + a + b for n, a, b in zip(size, pads[:3], pads[3:], strict=True)]
    assume(all(n >= r for n, r in zip(whole, reach, strict=True)))
    x = floats(2, channels * group, *size)
    w, b = floats(6, channels, *kernel, seed=1), floats(6, seed=2)
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    nodes = [node("Conv", "x w b", "y", **attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=threads)
    expected = convolve(x, w, strides, dilations, pads, group) + b.reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("depth", "kernel", "strides", "pads"),
    [
        (5, (1, 1, 1), (2, 1, 1), (0, 0, 0, 0, 0, 0)),
        (1, (1, 1, 1), (1, 1, 1), (1, 0, 0, 0, 0, 0)),
        (1, (1, 3, 3), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
    ],
)
def test_planes_that_are_left_out_or_outside(
    depth: int, kernel: Any, strides: Any, pads: Any
) -> None:
    x, w = floats(2, 4, depth, 6, 7), floats(5, 4, *kernel, seed=1)
    y = run([node("Conv", "x w", "y", strides=strides, pads=pads)], {"x": x}, "y", {"w": w})
    np.testing.assert_allclose(y, convolve(x, w, strides, pads=pads), rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 6), st.integers(1, 9), st.sampled_from([16, 32, 64, 72])),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    strides=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    dilations=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 6)] * 4),
    channels=st.sampled_from([3, 8, 30]),
    group=st.sampled_from([1, 1, 2]),
    threads=st.sampled_from([1, 4]),
)
def test_lines_of_three_taps(
    size: Any, taps: Any, strides: Any, dilations: Any, pads: Any, channels: int, group: int,
    threads: int,
) -> None:  # fmt: skip
    """Slice that are padding are left out; all that a window sees may be."""
    kernel, moves = (*taps, 3), ((*strides, 1), (*dilations, 1))
    around = (*pads[:2], 1, *pads[2:], 1)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, moves[1], strict=True)]
    whole = [n + a + b for n, a, b in zip(size, around[:3], around[3:], strict=True)]
    assume(all(n >= r for n, r in zip(whole, reach, strict=True)))
    x = floats(1, channels * group, *size)
    w, b = floats(7 * group, channels, *kernel, seed=1), floats(7 * group, seed=2)
    attributes = {"strides": moves[0], "pads": around, "dilations": moves[1], "group": group}
    nodes = [node("Conv", "x w b", "y", **attributes)]
    y = run(nodes, {"x": x}, "y", {"w": w, "b": b}, threads=threads)
    expected = convolve(x, w, *moves, around, group) + b.reshape(-1, 1, 1, 1)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-4)


def test_rows_of_weights_that_share_sets_of_the_cache() -> None:
    """A row of 3,072 weights and a hole in it, where slices are left out, is copied whole."""
    x, w = floats(1, 128, 3, 5, 16), floats(9, 128, 8, 1, 3, seed=1)
    pads = (4, 0, 1, 3, 0, 1)
    y = run([node("Conv", "x w", "y", pads=pads)], {"x": x}, "y", {"w": w})
    np.testing.assert_allclose(y, convolve(x, w, pads=pads), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kernel", [(1, 1, 1), (3, 3, 3), (3, 1, 1)])
def test_what_follows_is_fused(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(CONV, monkeypatch)
    x, w = floats(1, 40, 4, 9, 11), floats(30, 40, *kernel, seed=1)
    pads = tuple(n // 2 for n in kernel) * 2
    plain = convolve(x, w, pads=pads)
    r = floats(*plain.shape, seed=2)
    nodes = [node("Conv", "x w", "c", pads=pads), node("Add", "c r", "s"), node("Relu", "s", "y")]
    feeds = {"x": x, "r": r}
    made = session(nodes, feeds, "y", {"w": w}, threads=2)
    assert made.plan.source.count(" = k") == 1
    (y,) = made.run(None, feeds)
    assert watch.calls == 1
    expected = np.maximum(plain + r, 0)
    assert np.abs(y - expected).max() <= 2e-5 * np.abs(plain).max()
