"""Weights on a simulated device: each byte once, staged, released, counted."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from emulated import FakePlatform, provider_on, session, settle
from hypothesis import given, settings
from hypothesis import strategies as st

import tenonnx
from models import model, node, value
from tenonnx.weights.mapping import Mapping
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.storage import Memory
from tenonnx.weights.weight import Weight
from tenonnx_cuda.platform import OutOfDeviceMemoryError
from tenonnx_cuda.weights.allocations import (
    ALLOCATION_ALIGNMENT_BYTES,
    Stretch,
    merged,
    pack,
    stretch_of,
)
from tenonnx_cuda.weights.device_weights import DeviceWeights
from tenonnx_cuda.weights.staging import Staging


@pytest.fixture
def registry() -> WeightRegistry:
    return WeightRegistry()


def device_weights(platform: FakePlatform, buffer: int = 64, **how: Any) -> DeviceWeights:
    return DeviceWeights(platform, Staging(platform, buffer, readers=2), **how)


def copied(platform: FakePlatform) -> int:
    return sum(entry[1] for entry in platform.log if entry[0] == "copy")


def test_a_view_of_a_weight_is_a_view_on_the_device(registry: WeightRegistry) -> None:
    platform = FakePlatform()
    there = device_weights(platform)
    array = np.arange(48, dtype=np.float32).reshape(6, 8)
    weight = registry.from_array(array)
    turned = registry.from_array(weight.array.T[2:5, ::-1])
    there.preload([turned, weight])
    assert platform.allocated == array.nbytes == copied(platform)
    on_device = there.array(weight), there.array(turned)
    assert np.shares_memory(on_device[0].held, on_device[1].held)
    np.testing.assert_array_equal(on_device[0].held, array)
    np.testing.assert_array_equal(on_device[1].held, array.T[2:5, ::-1])


def test_small_elements_stay_packed(registry: WeightRegistry) -> None:
    platform = FakePlatform()
    weight = registry.constant(bytes(range(50)), ir.DataType.UINT4, (10, 10))
    there = device_weights(platform)
    assert there.array(weight).held.tolist() == list(range(50))
    assert there.array(weight.packed()).held.tolist() == list(range(50))
    assert platform.allocated == 50


def test_the_last_user_takes_it_away(registry: WeightRegistry) -> None:
    platform = FakePlatform()
    there = device_weights(platform)
    weights = [registry.from_array(np.full(n, n, np.int32)) for n in (10, 20)]
    there.preload(weights)
    arrays = [there.array(weight) for weight in weights]
    assert platform.allocated == there.nbytes == 256 + 80
    del arrays, weights[0]
    gc.collect()
    assert platform.allocated > 0
    weights.clear()
    gc.collect()
    assert there.nbytes == platform.allocated == 0


def test_sessions_share_one_copy_and_the_report_counts_it(tmp_path: Path) -> None:
    platform = FakePlatform()
    provider = provider_on(platform)
    content = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    path = tmp_path / "model.onnx"
    twice = model(
        [node("Transpose", "W", "T"), node("MatMul", "x T", "h"), node("MatMul", "h W", "y")],
        [value("x", shape=(None, 64))],
        [value("y", shape=(None, 64))],
        {"W": content},
    )
    onnx.save(twice, path, save_as_external_data=True, location="data", size_threshold=0)
    registry = WeightRegistry()
    sessions = [session(path, provider, weights=registry) for _ in range(5)]
    settle()
    assert platform.allocated == copied(platform) == content.nbytes
    assert registry.report().device == content.nbytes
    x = np.ones((2, 64), np.float32)
    for each in sessions:
        (y,) = each.run(None, {"x": x})
        np.testing.assert_allclose(y, x @ content.T @ content, rtol=1e-4)
    del sessions, each
    gc.collect()
    assert platform.allocated == 0


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 90)), min_size=1, max_size=12),
    st.integers(8, 200),
)
def test_every_stretch_lands_once_and_in_order(places: list[tuple[int, int]], buffer: int) -> None:
    content = np.random.default_rng(1).integers(0, 255, 512).astype(np.uint8)
    registry, platform = WeightRegistry(), FakePlatform()
    storage = registry.from_buffer(content)
    weights = [registry.view(storage, at, n, ir.DataType.UINT8, (n,)) for at, n in places]
    there = device_weights(platform, buffer)
    there.preload(weights)
    covered = {byte for at, n in places for byte in range(at, at + n)}
    assert copied(platform) == len(covered)
    for weight, (at, n) in zip(weights, places, strict=True):
        np.testing.assert_array_equal(there.array(weight).held, content[at : at + n])
    assert copied(platform) == len(covered)


@given(st.lists(st.integers(1, 100 << 20), max_size=20))
def test_allocations_are_aligned_do_not_overlap_and_waste_little(sizes: Sequence[int]) -> None:
    storage = Memory(np.empty(1, np.uint8), "private")
    starts = itertools.accumulate(sizes, initial=0)
    stretches = [Stretch(storage, at, at + n) for at, n in zip(starts, sizes, strict=False)]
    allocations = list(pack(stretches))
    assert sorted((s.start for allocation in allocations for _, s in allocation.parts)) == [
        s.start for s in stretches
    ]
    for allocation in allocations:
        end = 0
        for offset, stretch in allocation.parts:
            assert offset % ALLOCATION_ALIGNMENT_BYTES == 0
            assert end <= offset < end + ALLOCATION_ALIGNMENT_BYTES
            end = offset + stretch.nbytes
        assert end == allocation.nbytes


def test_strided_and_reversed_weights_have_their_bytes(registry: WeightRegistry) -> None:
    array = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    weight = registry.from_array(array)
    back = registry.from_array(weight.array[1:, ::-2, 1:3])
    stretch = stretch_of(back)
    inside = [int(i) * 2 for i in array[1:, ::-2, 1:3].ravel()]
    assert (stretch.start, stretch.stop) == (min(inside), max(inside) + 2)
    assert merged([stretch, stretch_of(weight)]) == [stretch_of(weight)]


def test_elements_that_lie_askew_get_a_place_of_their_own(registry: WeightRegistry) -> None:
    content = np.arange(64, dtype=np.uint8)
    storage = registry.from_buffer(content)
    whole = registry.view(storage, 0, 64, ir.DataType.UINT8, (64,))
    askew = registry.view(storage, 3, 8, ir.DataType.FLOAT, (2,))
    there = device_weights(platform := FakePlatform())
    there.preload([whole, askew])
    np.testing.assert_array_equal(there.array(askew).held.view(np.uint8), content[3:11])
    assert there.array(askew).held.flags.aligned
    assert platform.allocated == 64 + 8


def test_concurrent_callers_upload_once(registry: WeightRegistry) -> None:
    weight = registry.from_array(np.arange(1 << 16, dtype=np.float32))
    there = device_weights(platform := FakePlatform(), 1 << 14)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(there.array(weight))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert copied(platform) == weight.nbytes
    assert len({array.held.ctypes.data for array in found}) == 1


def test_staging_overlaps_with_two_buffers_and_no_more() -> None:
    registry = WeightRegistry()
    weight = registry.from_array(np.arange(1000, dtype=np.uint8))
    platform = FakePlatform()
    there = device_weights(platform, 100)
    there.preload([weight])
    assert [entry for entry in platform.log if entry[0] == "pinned"] == [("pinned", 100)] * 2
    np.testing.assert_array_equal(there.array(weight).held, weight.array)


def test_what_does_not_fit_leaves_what_is_there(registry: WeightRegistry) -> None:
    platform = FakePlatform(capacity=1000)
    there = device_weights(platform)
    first = registry.from_array(np.ones(200, np.float32))
    there.preload([first])
    large = registry.from_array(np.ones(500, np.float32))
    with pytest.raises(OutOfDeviceMemoryError):
        there.array(large)
    gc.collect()
    assert platform.allocated == 800
    np.testing.assert_array_equal(there.array(first).held, first.array)
    small = registry.from_array(np.ones(20, np.float32))
    np.testing.assert_array_equal(there.array(small).held, small.array)


def test_sessions_that_are_gone_make_room() -> None:
    """Python's collector need not come by."""
    platform = FakePlatform(capacity=5000)
    provider = provider_on(platform)
    gc.disable()
    try:
        for seed in range(3):
            weights = {"W": np.full((1024,), seed, np.float32)}
            made = model([node("Add", "x W", "y")], [value("x")], [value("y")], weights)
            opened = session(made, provider, weights=WeightRegistry())
            (y,) = opened.run(None, {"x": np.ones(1024, np.float32)})
            assert (y == seed + 1).all()
            settle()
            del opened
    finally:
        gc.enable()


def test_a_transfer_that_fails_is_begun_again(registry: WeightRegistry) -> None:
    platform = FakePlatform()
    there = device_weights(platform)
    weight = registry.from_array(np.arange(100, dtype=np.float32))
    works = platform.copy
    platform.copy = lambda *_: (_ for _ in ()).throw(OSError("bus"))  # type: ignore[method-assign]
    with pytest.raises(OSError, match="bus"):
        there.array(weight)
    platform.copy = works  # type: ignore[method-assign]  # as it was
    np.testing.assert_array_equal(there.array(weight).held, weight.array)


def in_file(registry: WeightRegistry, folder: Path, *counts: int) -> list[Weight]:
    """Weights of so many float32s, one after another in a file."""
    path = folder / "weights"
    np.arange(sum(counts), dtype=np.float32).tofile(path)
    storage, starts = Mapping(path), itertools.accumulate(counts, initial=0)
    return [
        registry.view(storage, 4 * at, 4 * n, ir.DataType.FLOAT, (n,))
        for at, n in zip(starts, counts, strict=False)
    ]


def test_mapped_weights_take_nothing_of_the_device(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    platform = FakePlatform()
    there = device_weights(platform, mapped=True)
    weights = in_file(registry, tmp_path, 5000, 7)
    there.preload(weights)
    views = [*weights, registry.from_array(weights[0].array[::2])]
    for weight in views:
        assert np.shares_memory(there.array(weight).held, weight.array)
    assert (platform.allocated, there.nbytes, copied(platform)) == (0, 0, 0)
    assert [entry[0] for entry in platform.log].count("map") == 1
    there.array(registry.from_array(np.ones(3, np.float32)))
    assert copied(platform) == 12


def test_a_device_that_cannot_map_says_so_once_and_copies(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    there = device_weights(platform := FakePlatform(maps=False), mapped=True)
    one, two = in_file(registry, tmp_path, 10, 20)
    with pytest.warns(UserWarning, match="copied to the device: this device cannot"):
        there.array(one)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(there.array(two).held, two.array)
    assert copied(platform) == 120


def test_nothing_takes_no_place(registry: WeightRegistry) -> None:
    there = device_weights(platform := FakePlatform())
    empty: Weight = registry.from_array(np.empty((0, 3), np.float32))
    assert there.array(empty).shape == (0, 3)
    assert platform.allocated == 0


def test_a_session_that_ran_out_still_works() -> None:
    platform = FakePlatform()
    opened = session(
        model(
            [node("Add", "x W", "y")],
            [value("x", shape=(None,))],
            [value("y")],
            {"W": np.ones(1, np.float32)},
        ),
        provider_on(platform),
        weights=WeightRegistry(),
    )
    works = platform.to_device
    platform.to_device = lambda _: (_ for _ in ()).throw(  # type: ignore[method-assign]
        OutOfDeviceMemoryError("no room")
    )
    with pytest.raises((tenonnx.RuntimeException, MemoryError), match="no room"):
        opened.run(None, {"x": np.ones(3, np.float32)})
    platform.to_device = works  # type: ignore[method-assign]  # as it was
    assert opened.run(None, {"x": np.ones(3, np.float32)})[0].tolist() == [2, 2, 2]
