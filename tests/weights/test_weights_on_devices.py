"""Weights on a device: aligned, unpacked, and there once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from places import (
    PACKED,
    Accelerator,
    Host,
    in_threads,
    run,
)

from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.storage import UNPACKED_PIECE_BYTES, byte_size, unpack


@pytest.mark.parametrize("offset", [0, 1, 3, 4, 6])
@pytest.mark.parametrize("dtype", [ir.DataType.FLOAT, ir.DataType.BFLOAT16, ir.DataType.INT8])
def test_aligned_is_the_weight_itself_or_one_copy(
    registry: WeightRegistry, path: Path, dtype: ir.DataType, offset: int
) -> None:
    size = 100 * dtype.bitwidth // 8
    weight = registry.view(registry.map(path), offset, size, dtype, (10, 10))
    aligned = registry.aligned(weight)
    assert weight.is_aligned == (offset % dtype.numpy().alignment == 0)
    assert (aligned is weight) == weight.is_aligned
    assert aligned.is_aligned
    assert registry.aligned(weight) is aligned
    assert aligned.array.tobytes() == weight.array.tobytes()
    assert aligned.array.dtype == dtype.numpy()


def test_realigning_takes_no_private_memory(tmp_path: Path) -> None:
    script = """
import os, sys, numpy as np, onnx_ir as ir
from tenonnx.weights.registry import WeightRegistry
def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key))
registry = WeightRegistry()
weight = registry.view(registry.map(sys.argv[1]), 1, 1 << 28, ir.DataType.FLOAT, (1 << 26,))
registry.derive("warm", lambda: np.ones(1 << 16))
before = status("RssAnon")
aligned = registry.aligned(weight)
print(status("RssAnon") - before, aligned.storage.kind, aligned.is_aligned)
print(np.array_equal(aligned.array.view(np.int32)[-5:], weight.array.view(np.int32)[-5:]))
"""
    path = tmp_path / "big"
    with path.open("wb") as file:
        file.truncate((1 << 28) + 1)
        file.seek(-20, os.SEEK_END)
        file.write(bytes(range(20)))
    first, second = run(script, str(path)).splitlines()
    growth, *rest = first.split()
    assert int(growth) < 4 * 1024, "KiB of anonymous memory, for a weight of 256 MiB"
    assert rest == ["derived", "True"]
    assert second == "True"


def test_a_weight_is_uploaded_once_to_each_device(registry: WeightRegistry, path: Path) -> None:
    weight = registry.view(registry.map(path), 1, 64, ir.DataType.FLOAT, (4, 4))
    one, other = Accelerator("gpu:0"), Accelerator("gpu:1")
    results: list[Any] = []
    in_threads(lambda: results.append(weight.on(one)), 8)
    assert len(one.uploads) == 1
    assert len(set(map(id, results))) == 1
    assert weight.on(Accelerator("gpu:0")) is results[0], "a device is known by its id"
    assert weight.on(other) is not results[0]
    np.testing.assert_array_equal(results[0].view(np.int32), weight.array.view(np.int32))
    assert registry.report().device == 128


def test_on_the_host_a_weight_is_an_aligned_view(registry: WeightRegistry, path: Path) -> None:
    mapping = registry.map(path)
    straight = registry.view(mapping, 4, 64, ir.DataType.FLOAT, (4, 4))
    crooked = registry.view(mapping, 5, 64, ir.DataType.FLOAT, (4, 4))
    assert np.shares_memory(straight.on(Host()), np.frombuffer(mapping.buffer, np.uint8))
    assert crooked.on(Host()).flags.aligned
    assert not crooked.on(Host()).flags.writeable
    assert np.shares_memory(crooked.on(Host()), crooked.on(Host())), "and realigned once"
    np.testing.assert_array_equal(crooked.on(Host()).view("V4"), crooked.array.view("V4"))


def unpacked_bits(content: bytes, bits: int, count: int) -> list[int]:
    number = int.from_bytes(content, "little")
    return [number >> bits * index & (1 << bits) - 1 for index in range(count)]


@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (4, 8), (0, 3)], ids=str)
def test_elements_below_a_byte_stay_packed_until_a_device_wants_them(
    registry: WeightRegistry, dtype: ir.DataType, shape: tuple[int, ...]
) -> None:
    count = int(np.prod(shape))
    size = -(-count * dtype.bitwidth // 8)
    bits = np.random.default_rng(1).integers(0, 1 << dtype.bitwidth, count)
    number = sum(int(value) << dtype.bitwidth * index for index, value in enumerate(bits))
    content = number.to_bytes(size, "little")
    weight = registry.view(registry.from_buffer(content), 0, size, dtype, shape)
    assert weight.array.tobytes() == content
    assert weight.nbytes == size

    for array in (weight.on(Host()), weight.on(Accelerator())):
        assert array.dtype == dtype.numpy()
        assert array.shape == shape
        mask = (1 << dtype.bitwidth) - 1
        assert (array.view(np.uint8).reshape(-1) & mask).tolist() == bits.tolist()
    assert not weight.on(Host()).flags.writeable
    assert weight.packed().on(Host()).tobytes() == content
    assert np.shares_memory(weight.packed().array, weight.array) == bool(size)


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_unpacking_goes_piece_by_piece(registry: WeightRegistry, dtype: ir.DataType) -> None:
    count = 2 * UNPACKED_PIECE_BYTES * 8 // dtype.bitwidth + 5
    size = byte_size(dtype, (count,))
    content = np.random.default_rng(2).integers(0, 1 << 6, size, np.uint8)
    content[-1] = 0
    weight = registry.view(registry.from_buffer(content), 0, size, dtype, (count,))
    found = weight.on(Host())
    for start in (0, UNPACKED_PIECE_BYTES, 2 * UNPACKED_PIECE_BYTES):
        first = start * 8 // dtype.bitwidth
        piece = content[start : start + 6].tobytes()
        expected = unpacked_bits(piece, dtype.bitwidth, min(8, count - first))
        mask = (1 << dtype.bitwidth) - 1
        assert (found[first : first + 8].view(np.uint8) & mask).tolist() == expected
    assert np.array_equal(found.view(np.uint8), unpack(content, dtype, (count,)).view(np.uint8))
