"""Kernels' code for AMX's tiles with the tiles emulated: addresses and layouts, on any x86."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import floats, narrow

pytest.importorskip("numba")

import llvmlite.binding as llvm
from emulated_tiles import SIZE, Tiles

from tenonnx_cpu.jit.code.cpu import architecture
from tenonnx_cpu.jit.vectors import amx, dot16, shared
from tenonnx_cpu.jit.vectors.vector import I64
from tenonnx_cpu.matmul.bfloat16 import bfloat16_panels, rounded
from tenonnx_cpu.matmul.kernels import bfloat16 as kernels

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="the code is for x86")


@pytest.fixture
def tiles(monkeypatch: pytest.MonkeyPatch) -> Tiles:
    for module in (amx, kernels):
        monkeypatch.setattr(module, "HAS_TILES", True)
    monkeypatch.setattr(shared, "GROUPS", {})  # what tests declare, no process compiles
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return Tiles()


def begin(tiles: Tiles, tall: int, deep: int) -> None:
    (function,) = amx.begin_tiles.functions.values()
    tiles.compiled([function], SIZE, SIZE)(tall, deep)


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("tall", [1, 11, 16])
@pytest.mark.parametrize("adds", [False, True])
def test_products_of_bfloat16(
    vectors: int, count: int, tall: int, adds: bool, tiles: Tiles
) -> None:
    depth, columns = 70, 16 * vectors
    a, w = floats(count * tall, depth), floats(depth, columns, seed=1)
    panels = bfloat16_panels(w)
    words = panels.shape[1]
    left = np.zeros((len(a), 2 * words + 32), np.uint16)
    left[:, :depth] = rounded(a)
    offsets = np.arange(0, 4 * words, 4)
    before = floats(len(a), 32, seed=2)
    sums = before.copy()
    begin(tiles, tall, 16)
    function = kernels.multiply_narrow_tiles.functions[vectors, count]
    run = tiles.compiled([function], *[SIZE] * len(function.kind.args))
    place, apart = left.ctypes.data, left.strides[0]
    target, row = sums.ctypes.data, sums.strides[0]
    run(
        place, place + tall * apart, apart, offsets.ctypes.data, panels.ctypes.data, words // 16,
        16, target, target + tall * row, row, 64, int(adds), 0,
    )  # fmt: skip
    assert tiles.errors == []
    right = narrow(a) @ narrow(w) + (before[:, :columns] if adds else 0)
    assert np.abs(sums[:, :columns] - right).max() < 1e-4
    np.testing.assert_array_equal(sums[:, columns:], before[:, columns:])


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("rows", range(1, dot16.TALLEST_PAIRS + 1))
@pytest.mark.parametrize("adds", [False, True])
def test_products_of_bfloat16_in_registers(
    vectors: int, rows: int, adds: bool, tiles: Tiles
) -> None:
    jump = 3  # pairs after which others follow
    a, w = floats(rows, 50), floats(50, 16 * vectors, seed=1)
    panels = bfloat16_panels(w)
    pairs = panels.shape[1]
    left = np.zeros((rows, 2 * (pairs + jump)), np.uint16)
    left[:, :12], left[:, 12 + 2 * jump :][:, :38] = rounded(a[:, :12]), rounded(a[:, 12:])
    offsets = np.where(np.arange(pairs) < 6, 0, 4 * jump) + np.arange(0, 4 * pairs, 4)
    before = floats(rows, 32, seed=2)
    made = before.copy()

    def write(b: Any, values: Any) -> None:
        a, a_row, offset, panel, pairs, c, c_row, adds = values
        sums = dot16.sum_pairs(b, vectors, rows, a, a_row, offset, panel, pairs, panel)
        is_added = b.icmp_signed("!=", adds, I64(0))
        dot16.store_pairs(b, vectors, sums, c, c_row, I64(64), is_added)

    function = shared.Shared("test", "test_pairs", [I64] * 8, write)
    tiles.compiled([function], *[SIZE] * 8)(
        left.ctypes.data, left.strides[0], offsets.ctypes.data, panels.ctypes.data, pairs,
        made.ctypes.data, made.strides[0], int(adds),
    )  # fmt: skip
    right = narrow(a) @ narrow(w) + (before[:, : 16 * vectors] if adds else 0)
    assert np.abs(made[:, : 16 * vectors] - right).max() < 1e-4
    np.testing.assert_array_equal(made[:, 16 * vectors :], before[:, 16 * vectors :])


@pytest.mark.parametrize(("tall", "deep"), [(16, 16), (7, 11), (4, 5)])
def test_products_of_bytes(tall: int, deep: int, tiles: Tiles) -> None:
    rng = np.random.default_rng(0)
    steps, jump = 3, 4 * deep + 12  # the words of a step are adjacent, and those of two are not
    a = rng.integers(0, 256, (2 * tall, steps * jump), np.uint8)
    w = rng.integers(-128, 128, (steps * deep * 4, 32), np.int8)
    panel = np.ascontiguousarray(w.reshape(-1, 4, 32).transpose(0, 2, 1))
    offsets = np.add.outer(np.arange(steps) * jump, 4 * np.arange(deep)).ravel()
    sums = np.zeros((2 * tall, 32), np.int32)

    def write(b: Any, values: Any) -> None:
        left, row, offset, panel, steps, deep, c, c_next, c_row = values[:9]
        lefts = [left, b.add(left, b.mul(row, I64(tall)))]
        amx.clear_tiles(b, 2, [c, c_next])
        amx.sum_tiles(b, "bytes", 2, lefts, row, offset, panel, steps, deep)
        amx.store_tiles(b, 2, [c, c_next], c_row, I64(amx.TILE_ROW))

    begin(tiles, tall, deep)
    function = shared.Shared("test", "test_bytes", [I64] * 9, write)
    place, row = sums.ctypes.data, sums.strides[0]
    tiles.compiled([function], *[SIZE] * 9)(
        a.ctypes.data, a.strides[0], offsets.ctypes.data, panel.ctypes.data, steps, deep,
        place, place + tall * row, row,
    )  # fmt: skip
    assert tiles.errors == []
    seen = a.reshape(2 * tall, steps, jump)[..., : 4 * deep].reshape(2 * tall, -1)
    np.testing.assert_array_equal(sums, seen.astype(np.int32) @ w.astype(np.int32))


def test_tiles_are_given_back(tiles: Tiles) -> None:
    begin(tiles, 16, 16)
    (function,) = amx.end_tiles.functions.values()
    tiles.compiled([function])()
    tiles._guarded(tiles._tilezero)(0)
    assert tiles.errors == ["_tilezero: IndexError('list index out of range')"]
