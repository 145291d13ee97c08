"""Products of bytes where the sums of two fit 16 bits, by little or not."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto
from running import run
from windows_oracle import convolve

pytest.importorskip("llvmlite", reason="it calls a function of AVX2's kernels by its name")

from models import node
from tenonnx_cpu.int8.conv_weights import pairs_fit
from tenonnx_cpu.int8.kernels.saturation import see_pairs
from tenonnx_cpu.jit.aot.single import load
from tenonnx_cpu.jit.code.cpu import cpu
from tenonnx_cpu.jit.compiling import Contract, kernel, size
from tenonnx_cpu.jit.vectors.dot8 import FITS
from tenonnx_cpu.matmul.kernels.tile import COLUMNS

EDGES = {
    "7 bits": [-64, -63, 0, 63, 64],
    "just": [-128, 127, 1, 0],
    "over": [-128, -65, -64, -1, 0, 1, 64, 65, 127],
}
"""Weights whose pairs all fit, mostly do, or often do not."""

BYTES = [0, 1, 127, 128, 254, 255]
seeds = st.integers(0, 2**32 - 1)
edges = st.sampled_from(sorted(EDGES))


def drawn(seed: int, values: list[int], shape: Any, dtype: Any) -> NDArray[Any]:
    return np.random.default_rng(seed).choice(np.array(values, dtype), shape)


@kernel((size, size, size), Contract())
def see(panel: Any, steps: Any, result: Any) -> None:
    see_pairs(panel, steps, result)


@functools.cache
def _see() -> Any:
    return load(see)


def seen(panel: NDArray[Any]) -> int:
    """Return what the kernel says of a panel ``(steps, COLUMNS, 4)``."""
    result = np.full(1, -1, np.int32)
    _see()(panel.ctypes.data, len(panel), result.ctypes.data)
    return int(result[0])


def fits(panel: NDArray[Any]) -> bool:
    """Return whether no pair of activations has a sum beyond 16 bits."""
    pairs = panel.reshape(-1, 2).astype(np.int64)
    sums = [x * pairs[:, 0] + y * pairs[:, 1] for x in (0, 255) for y in (0, 255)]
    return bool(np.min(sums) >= -(2**15) and np.max(sums) < 2**15)


@settings(max_examples=200, deadline=None)
@given(seeds, edges, st.integers(1, 9))
def test_panels_fit_if_no_pair_overflows(seed: int, kind: str, steps: int) -> None:
    panel = drawn(seed, EDGES[kind], (steps, COLUMNS, 4), np.int8)
    wanted = cpu().pairs and fits(panel)
    assert seen(panel) == wanted
    assert pairs_fit(panel[None]).tolist() == [wanted]


@pytest.mark.skipif(1 not in FITS, reason="this processor gains nothing from pairs")
@pytest.mark.parametrize(
    ("pair", "wanted"),
    [((64, 64), 1), ((127, 1), 1), ((65, 64), 0), ((127, 2), 0), ((127, -128), 1),
     ((-64, -64), 1), ((-128, 0), 1), ((-128, -1), 0), ((-65, -64), 0)],
)  # fmt: skip
@pytest.mark.parametrize("place", [(0, 0, 0), (4, 7, 1), (2, COLUMNS - 1, 1)], ids=str)
def test_one_pair_decides(pair: tuple[int, int], wanted: int, place: tuple[int, ...]) -> None:
    panel = np.zeros((5, COLUMNS, 2, 2), np.int8)
    panel[place] = pair
    assert seen(panel) == wanted
    packed = np.zeros((1, 3, 5, COLUMNS, 4), np.int8)
    packed[0, 1] = panel.reshape(5, COLUMNS, 4)
    assert pairs_fit(packed).tolist() == [1, wanted, 1]


@settings(max_examples=40, deadline=None)
@given(
    seeds, edges, st.sampled_from([np.uint8, np.int8]), st.sampled_from([np.uint8, np.int8]),
    st.integers(1, 13), st.integers(1, 67), st.integers(1, 50),
)  # fmt: skip
def test_sums_of_extremes(
    seed: int, kind: str, a_type: Any, b_type: Any, rows: int, depth: int, columns: int
) -> None:
    a = drawn(seed, BYTES, (rows, depth), np.uint8).view(a_type)
    b = drawn(seed + 1, EDGES[kind], (depth, columns), np.int8)
    # One column of another kind: its panel alone is summed otherwise.
    b[:, 0] = drawn(seed + 2, EDGES["over"], depth, np.int8)
    b = b if b_type is np.int8 else b.view(np.uint8) ^ 128
    zeros = {"az": a.reshape(-1)[0], "bz": b.reshape(-1)[:columns][-1]}
    kinds = {
        "a": TensorProto.UINT8 if a_type is np.uint8 else TensorProto.INT8,
        "y": TensorProto.INT32,
    }
    y = run([node("MatMulInteger", "a b az bz", "y")], {"a": a}, "y", zeros | {"b": b}, kinds=kinds)
    whole = (x.astype(np.int64) - int(z) for x, z in ((a, zeros["az"]), (b, zeros["bz"])))
    left, right = whole
    assert np.array_equal(y, left @ right)


@settings(max_examples=40, deadline=None)
@given(seeds, edges, st.sampled_from([1, 2, 20]), st.sampled_from([1, 3]), st.integers(1, 9))
def test_windows_of_extremes(seed: int, kind: str, groups: int, side: int, width: int) -> None:
    channels, rows = (20, 20) if groups == 20 else (6, 36)
    x = drawn(seed, BYTES, (1, channels, 4, width), np.uint8)
    w = drawn(seed + 1, EDGES[kind], (rows, channels // groups, side, side), np.int8)
    w[0] = drawn(seed + 2, EDGES["over"], w[0].shape, np.int8)
    pads = side // 2
    own = {"w": w, "xz": np.uint8(255 if seed % 2 else 3), "wz": np.int8(0)}
    kinds = {"x": TensorProto.UINT8, "y": TensorProto.INT32}
    nodes = [node("ConvInteger", "x w xz wz", "y", group=groups, pads=[pads] * 4)]
    y = run(nodes, {"x": x}, "y", own, kinds=kinds)
    wanted = convolve(x - float(own["xz"]), w.astype(float), pads=[pads] * 4, group=groups)
    assert np.array_equal(y, wanted)
