"""A weight is a view of bytes that lie somewhere else, and one for each place."""

from __future__ import annotations

import copy
import gc
import os
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from places import (
    FILE_BYTES,
    PACKED,
    Host,
    in_threads,
    mapped_paths,
    places,
    run,
)

from tenonnx.errors import Fail, InvalidArgument
from tenonnx.weights.registry import WeightRegistry, default_registry

SLOW_FIXTURES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW_FIXTURES
@given(place=places())
def test_a_view_is_the_files_bytes_uncopied_and_read_only(
    registry: WeightRegistry, path: Path, place: tuple[Any, ...]
) -> None:
    offset, nbytes, dtype, shape = place
    mapping = registry.map(path)
    array = registry.view(mapping, *place).array
    content = path.read_bytes()[offset : offset + nbytes]

    if dtype in PACKED:
        assert array.dtype == np.uint8
        assert array.shape == (nbytes,)
    else:
        assert array.dtype == dtype.numpy()
        assert array.shape == shape
    assert array.tobytes() == content
    assert np.shares_memory(array, np.frombuffer(mapping.buffer, np.uint8)) == bool(nbytes)
    with pytest.raises(ValueError, match="read-only"):
        array[...] = array
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


@SLOW_FIXTURES
@given(first=places(), second=places())
def test_the_same_arguments_give_the_same_weight_and_others_another(
    registry: WeightRegistry, path: Path, first: tuple[Any, ...], second: tuple[Any, ...]
) -> None:
    mapping = registry.map(path)
    weight, other = registry.view(mapping, *first), registry.view(mapping, *second)
    assert registry.view(registry.map(path), *first) is weight
    assert (other is weight) == (first == second)
    assert (other.key == weight.key) == (first == second)


def test_one_file_is_one_mapping_under_all_its_names(registry: WeightRegistry, path: Path) -> None:
    mapping = registry.map(path)
    (path.parent / "soft").symlink_to(path)
    (path.parent / "hard").hardlink_to(path)
    assert registry.map(str(path)) is mapping
    assert registry.map(path.parent / "soft") is mapping
    assert registry.map(path.parent / "hard") is mapping
    assert mapped_paths().count(str(path)) == 1


def test_a_rewritten_file_is_another_mapping(registry: WeightRegistry, path: Path) -> None:
    before = registry.map(path)
    replacement = path.with_suffix(".new")
    replacement.write_bytes(b"x" * FILE_BYTES)
    replacement.rename(path)
    after = registry.map(path)
    assert after is not before
    assert after.key != before.key
    assert bytes(after.buffer) == b"x" * FILE_BYTES
    assert bytes(before.buffer) != bytes(after.buffer)


def test_a_mapping_holds_no_file_descriptor(registry: WeightRegistry, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    mappings = []
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"abc")
        mappings.append(registry.map(tmp_path / str(number)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert all(bytes(mapping.buffer) == b"abc" for mapping in mappings)


def test_what_cannot_be_mapped_says_why(registry: WeightRegistry, tmp_path: Path) -> None:
    empty, pipe = tmp_path / "empty", tmp_path / "pipe"
    empty.touch()
    os.mkfifo(pipe)
    with pytest.raises(InvalidArgument, match="empty is empty: there is nothing to map"):
        registry.map(empty)
    with pytest.raises(InvalidArgument, match="pipe is not a regular file"):
        registry.map(pipe)
    with pytest.raises(InvalidArgument, match="is not a regular file"):
        registry.map(tmp_path)
    with pytest.raises(Fail, match="absent cannot be opened: No such file"):
        registry.map(tmp_path / "absent")


def test_the_last_holder_gone_the_mapping_is_gone(registry: WeightRegistry, path: Path) -> None:
    weight = registry.view(registry.map(path), 16, 64, ir.DataType.FLOAT, (16,))
    watch = weakref.ref(weight)
    array = weight.array[4:].reshape(3, 4)
    assert mapped_paths().count(str(path)) == 1
    del weight
    assert watch() is not None, "an array keeps its weight, so that others find it"
    assert registry.view(registry.map(path), 16, 64, ir.DataType.FLOAT, (16,)) is watch()
    del array
    assert watch() is None
    assert str(path) not in mapped_paths()
    assert registry.report().storages == ()


def test_views_that_do_not_fit_are_refused(registry: WeightRegistry, path: Path) -> None:
    mapping = registry.map(path)
    with pytest.raises(InvalidArgument, match=r"FLOAT\[2, 3\] takes 24 bytes, not 20"):
        registry.view(mapping, 0, 20, ir.DataType.FLOAT, (2, 3))
    with pytest.raises(
        InvalidArgument, match=r"8 bytes at offset 32764 end outside .*weights\.bin"
    ):
        registry.view(mapping, 32764, 8, ir.DataType.FLOAT, (2,))
    with pytest.raises(InvalidArgument, match="at offset -4 end outside"):
        registry.view(mapping, -4, 8, ir.DataType.FLOAT, (2,))
    with pytest.raises(InvalidArgument, match="negative dimensions"):
        registry.view(mapping, 0, 4, ir.DataType.FLOAT, (-1, -1))
    with pytest.raises(InvalidArgument, match=r"takes \d+ bytes, not 4"):
        registry.view(mapping, 0, 4, ir.DataType.FLOAT, (2**62, 2**62))


def test_keys_are_the_same_in_another_process(registry: WeightRegistry, path: Path) -> None:
    script = """
import sys, numpy, onnx_ir as ir
from tenonnx.weights.registry import WeightRegistry
registry = WeightRegistry()
weight = registry.view(registry.map(sys.argv[1]), 4, 8, ir.DataType.FLOAT, (2,))
derived = registry.derive("twice:" + weight.key, lambda: weight.array * 2)
constant = registry.constant(b"abcd", ir.DataType.FLOAT, ())
print(weight.key, derived.key, constant.key, sep="\\n")
"""
    weight = registry.view(registry.map(path), 4, 8, ir.DataType.FLOAT, (2,))
    derived = registry.derive("twice:" + weight.key, lambda: weight.array * 2)
    constant = registry.constant(b"abcd", ir.DataType.FLOAT, ())
    assert run(script, str(path)).splitlines() == [weight.key, derived.key, constant.key]


def test_from_array_looks_at_the_callers_memory(registry: WeightRegistry) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    weight = registry.from_array(array)
    assert weight.dtype == ir.DataType.FLOAT
    assert np.shares_memory(weight.array, array)
    assert registry.from_array(array) is weight
    assert registry.from_array(array[:]) is weight
    part = registry.from_array(array[1:, ::2])
    assert part.storage is weight.storage
    np.testing.assert_array_equal(part.array, array[1:, ::2])
    assert registry.from_array(part.array[1:]).storage is weight.storage
    with pytest.raises(ValueError, match="read-only"):
        weight.array[0] = 1
    array[0, 0] = 7
    assert weight.array[0, 0] == 7
    assert registry.report().borrowed == array.nbytes


def test_memory_that_comes_again_is_not_taken_for_what_was_there(registry: WeightRegistry) -> None:
    keys = set()
    for value in range(50):
        keys.add(registry.from_array(np.full(1000, value, np.float32)).key)
    assert len(keys) == 50


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2, 3], ">f4"),
        np.array([-8, 7, 3], ml_dtypes.int4),
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([True, False]),
        np.array(2.5),
        np.zeros((3, 0)),
        np.array([1 + 2j], np.complex64),
    ],
    ids=lambda array: str(array.dtype),
)
def test_from_array_keeps_every_kind_of_value(registry: WeightRegistry, array: Any) -> None:
    weight = registry.from_array(array)
    assert weight.shape == array.shape
    np.testing.assert_array_equal(weight.on(Host()).astype(complex), array.astype(complex))


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([object()]), np.zeros(2, "M8[s]")], ids=["U", "O", "M"]
)
def test_from_array_refuses_what_onnx_has_not(registry: WeightRegistry, array: Any) -> None:
    with pytest.raises(InvalidArgument, match="cannot be a weight"):
        registry.from_array(array)
    with pytest.raises(InvalidArgument, match="float32 cannot be a weight of INT64"):
        registry.from_array(np.ones(2, np.float32), ir.DataType.INT64)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, "u1")])
def test_from_buffer_is_uncopied_and_known_by_its_place(
    registry: WeightRegistry, make: Any
) -> None:
    buffer = make(bytes(range(64)))
    storage = registry.from_buffer(buffer)
    assert registry.from_buffer(buffer) is storage
    weight = registry.view(storage, 4, 16, ir.DataType.INT32, (4,))
    assert np.shares_memory(weight.array, np.frombuffer(buffer, np.uint8))
    assert weight.array.tobytes() == bytes(range(4, 20))


def test_from_buffer_holds_the_buffer(registry: WeightRegistry) -> None:
    weight = registry.view(
        registry.from_buffer(bytearray(b"abcdefgh")), 0, 8, ir.DataType.UINT8, (8,)
    )
    gc.collect()
    assert weight.array.tobytes() == b"abcdefgh"
    assert registry.from_buffer(b"").size == 0
    with pytest.raises(InvalidArgument, match="not contiguous"):
        registry.from_buffer(memoryview(b"abcdefgh")[::2])


def test_equal_constants_are_one_weight(registry: WeightRegistry) -> None:
    weight = registry.constant(b"abcdefgh", ir.DataType.FLOAT, (2,))
    assert registry.constant(bytes(bytearray(b"abcdefgh")), ir.DataType.FLOAT, (2,)) is weight
    assert registry.constant(b"abcdefgh", ir.DataType.INT32, (2,)) is not weight
    assert registry.constant(b"abcdefgi", ir.DataType.FLOAT, (2,)) is not weight
    assert registry.constant(b"", ir.DataType.FLOAT, (0,)).array.size == 0
    assert registry.report().private == 8


def test_a_weight_is_not_copied(registry: WeightRegistry) -> None:
    weight = registry.constant(b"abcd", ir.DataType.FLOAT, ())
    assert copy.copy(weight) is weight
    assert copy.deepcopy({"weight": weight})["weight"] is weight


def test_the_default_registry_is_one_for_the_process() -> None:
    found: list[Any] = []
    in_threads(lambda: found.append(default_registry()), 8)
    assert len(set(map(id, found))) == 1
