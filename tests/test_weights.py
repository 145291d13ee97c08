from __future__ import annotations

import copy
import functools
import gc
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tenonnx.errors import Fail, InvalidArgument
from tenonnx.weights.registry import SIDE_FILE_BYTES, Weight, WeightRegistry, default_registry
from tenonnx.weights.sidefile import SideFiles
from tenonnx.weights.storage import PIECE_BYTES, byte_size, unpack

FILE_BYTES = 8 * 4096
DTYPES = [d for d in ir.DataType if d not in (ir.DataType.UNDEFINED, ir.DataType.STRING)]
PACKED = [d for d in DTYPES if d.bitwidth < 8]
BIG = SIDE_FILE_BYTES // 4

SLOW_FIXTURES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Host:
    id = "cpu"

    def upload(self, array: Any) -> Any:
        raise AssertionError(f"{array} is on the host already")


class Accelerator:
    def __init__(self, name: str = "gpu:0") -> None:
        self.id = name
        self.uploads: list[Any] = []

    def upload(self, array: Any) -> Any:
        self.uploads.append(array)
        return np.array(array)


@pytest.fixture
def registry(tmp_path: Path) -> WeightRegistry:
    return WeightRegistry(SideFiles(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights.bin"
    path.write_bytes(np.random.default_rng(0).bytes(FILE_BYTES))
    return path


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int, ir.DataType, tuple[int, ...]]:
    dtype = draw(st.sampled_from(DTYPES))
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    nbytes = byte_size(dtype, shape)
    offset = draw(st.integers(0, FILE_BYTES - nbytes))
    return offset, nbytes, dtype, shape


def mapped_paths() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [parts[5] for line in lines if len(parts := line.split(maxsplit=5)) == 6]


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


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


def test_keys_do_not_grow_with_the_depth_of_derivation(registry: WeightRegistry) -> None:
    weight = registry.constant(b"abcd", ir.DataType.FLOAT, ())
    for step in range(50):
        build = functools.partial(np.full, (), step, np.float32)
        weight = registry.derive(f"{step}:{weight.key}:{weight.key}", build)
    assert len(weight.key) < 100


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda a: a.T, (8, 16)),
        (lambda a: a.reshape(4, 32), (4, 32)),
        (lambda a: a[2:5, ::3], (3, 3)),
        (lambda a: a[::-1], (16, 8)),
        (lambda a: np.broadcast_to(a[:, None], (16, 5, 8)), (16, 5, 8)),
        (lambda a: a.view(np.int32), (16, 8)),
        (lambda a: a[3:4, 4].reshape(()), ()),
    ],
    ids=["transpose", "reshape", "slice", "reverse", "broadcast", "bits", "element"],
)
def test_a_derived_view_costs_no_bytes(
    registry: WeightRegistry, path: Path, change: Any, shape: tuple[int, ...]
) -> None:
    weight = registry.view(registry.map(path), 64, 512, ir.DataType.FLOAT, (16, 8))
    expected = change(weight.array)
    derived = registry.derive(f"view:{weight.key}", lambda: change(weight.array), [weight])
    assert derived.storage is weight.storage
    assert derived.shape == shape
    assert derived.array.strides == expected.strides
    np.testing.assert_array_equal(derived.array, expected)
    assert np.shares_memory(derived.array, weight.array)
    assert not derived.array.flags.writeable
    assert len(registry.report().storages) == 1


def test_equal_views_derived_under_different_keys_are_one_weight(
    registry: WeightRegistry, path: Path
) -> None:
    weight = registry.view(registry.map(path), 0, 64, ir.DataType.FLOAT, (4, 4))
    first = registry.derive("a", lambda: weight.array.T)
    second = registry.derive("b", lambda: np.swapaxes(weight.array, 0, 1))
    back = registry.derive("c", lambda: first.array.T)
    assert first is second
    assert back is weight


@pytest.mark.parametrize("count", [3, BIG * 2], ids=["small", "big"])
def test_bits_may_be_given_for_types_that_numpy_has_not(
    registry: WeightRegistry, count: int
) -> None:
    bits = np.arange(count, dtype=np.uint32).astype(np.uint16)
    weight = registry.derive("bits", bits.copy, dtype=ir.DataType.BFLOAT16)
    assert weight.array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(weight.array.view(np.uint16), bits)
    assert registry.from_array(bits, ir.DataType.FLOAT16).array.dtype == np.float16
    with pytest.raises(InvalidArgument, match="float64 cannot be a weight of FLOAT"):
        registry.derive("wide", lambda: np.ones(count), dtype=ir.DataType.FLOAT)


@pytest.mark.parametrize("shape", [(3,), (BIG,)], ids=["small", "big"])
def test_other_results_are_built_once_and_read_only(
    registry: WeightRegistry, shape: tuple[int, ...]
) -> None:
    calls = []

    def build() -> Any:
        calls.append(1)
        return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)

    weight = registry.derive("ones", build)
    assert registry.derive("ones", build) is weight
    assert calls == [1]
    assert weight.storage.kind == ("private" if shape == (3,) else "derived")
    np.testing.assert_array_equal(weight.array, np.arange(shape[0], dtype=np.float32))
    with pytest.raises(ValueError, match="read-only"):
        weight.array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        weight.array.flags.writeable = True


def test_a_small_part_of_something_big_does_not_hold_it(registry: WeightRegistry) -> None:
    watch: list[weakref.ref[Any]] = []

    def build() -> Any:
        whole = np.zeros(1 << 20, np.float32)
        watch.append(weakref.ref(whole))
        return whole[5:10]

    weight = registry.derive("part", build)
    assert watch[0]() is None
    assert registry.report().private == 20
    assert weight.array.tolist() == [0] * 5


def test_big_results_of_this_process_alone_stay_out_of_the_side_files(
    registry: WeightRegistry, tmp_path: Path
) -> None:
    source = registry.from_array(np.ones(BIG, np.float32))
    derived = registry.derive(f"twice:{source.key}", lambda: source.array * 2)
    again = registry.derive(f"thrice:{derived.key}", lambda: derived.array * 2)
    hidden = registry.derive("of a source", lambda: source.array * 3, [source])
    filled = registry.materialize("m", ir.DataType.FLOAT, (BIG,), lambda out: out.fill(1), [source])
    assert {w.storage.kind for w in (derived, again, hidden, filled)} == {"private"}
    assert registry.derive("of a source", lambda: source.array * 3, [source]) is hidden
    assert not list(tmp_path.glob("cache/*"))


def test_concurrent_callers_build_once(registry: WeightRegistry) -> None:
    calls: list[int] = []
    results: list[Weight] = []
    start = threading.Barrier(16)

    def build() -> Any:
        calls.append(1)
        gone.wait(0.05)
        return np.ones(BIG, np.float32)

    def work() -> None:
        start.wait()
        results.append(registry.derive("once", build))

    gone = threading.Event()
    in_threads(work, 16)
    assert calls == [1]
    assert len(results) == 16
    assert len(set(map(id, results))) == 1


def test_different_results_are_built_at_the_same_time(registry: WeightRegistry) -> None:
    together = threading.Barrier(2, timeout=20)

    def work(key: str) -> None:
        def build() -> Any:
            together.wait()
            return np.ones(3)

        results.append(registry.derive(key, build))

    results: list[Weight] = []
    threads = [threading.Thread(target=work, args=(key,)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2


def test_a_failed_build_is_the_callers_and_the_next_one_tries_again(
    registry: WeightRegistry,
) -> None:
    def fail() -> Any:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        registry.derive("key", fail)
    assert registry.derive("key", lambda: np.ones(2)).array.tolist() == [1, 1]


def test_one_derivation_may_need_another(registry: WeightRegistry) -> None:
    inner = registry.derive
    weight = registry.derive("a", lambda: inner("b", lambda: np.ones(3)).array + 1)
    assert weight.array.tolist() == [2, 2, 2]


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


def in_threads(work: Any, count: int) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


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
    count = 2 * PIECE_BYTES * 8 // dtype.bitwidth + 5
    size = byte_size(dtype, (count,))
    content = np.random.default_rng(2).integers(0, 1 << 6, size, np.uint8)
    content[-1] = 0
    weight = registry.view(registry.from_buffer(content), 0, size, dtype, (count,))
    found = weight.on(Host())
    for start in (0, PIECE_BYTES, 2 * PIECE_BYTES):
        first = start * 8 // dtype.bitwidth
        piece = content[start : start + 6].tobytes()
        expected = unpacked_bits(piece, dtype.bitwidth, min(8, count - first))
        mask = (1 << dtype.bitwidth) - 1
        assert (found[first : first + 8].view(np.uint8) & mask).tolist() == expected
    assert np.array_equal(found.view(np.uint8), unpack(content, dtype, (count,)).view(np.uint8))


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


def rss_of(path: Path) -> int:
    total, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.parametrize("pages", [0, 1, 100, 1024])
def test_the_report_agrees_with_the_kernel(
    registry: WeightRegistry, tmp_path: Path, pages: int
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(4096 * 1024))
    mapping = registry.map(path)
    weight = registry.view(mapping, 0, 4096 * 1024, ir.DataType.FLOAT, (1024, 1024))
    derived = registry.derive("half", lambda: np.ones(1 << 18, np.float32))
    weight.array[:pages].sum()
    report = registry.report()
    rows = {row.label: row for row in report.storages}
    assert rows[str(path)].resident == rss_of(path)
    assert rss_of(path) >= pages * 4096
    assert rows[derived.storage.label].resident == rss_of(Path(derived.storage.label))
    assert report.mapped == 4096 * 1024
    assert report.derived == 1 << 20
    assert report.private == report.borrowed == report.device == 0
    assert report.resident == sum(row.resident for row in report.storages)
    mapping.forget(0, mapping.size)
    assert registry.report().storages[0].resident == rss_of(path) == 0


def test_private_bytes_are_what_the_process_grew_by() -> None:
    script = """
import numpy as np, os
os.environ["TENONNX_CACHE"] = "0"
from tenonnx.weights.registry import WeightRegistry
def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous"))
registry = WeightRegistry()
before = anonymous()
weights = [registry.derive(str(i), lambda: np.full(1 << 22, i, np.float32)) for i in range(8)]
print(anonymous() - before, registry.report().private, registry.report().derived)
"""
    grown, private, derived = map(int, run(script).split())
    assert private == 8 << 24
    assert derived == 0
    assert abs(grown - private) < 1 << 20


def test_the_report_says_who_holds_what_and_holds_neither(
    registry: WeightRegistry, path: Path
) -> None:
    class Session:
        pass

    first, second = Session(), Session()
    mapping = registry.map(path)
    weights = [registry.view(mapping, 64 * n, 64, ir.DataType.FLOAT, (16,)) for n in range(3)]
    registry.attach(first, "first", weights)
    registry.attach(second, "second", weights[:1])
    report = registry.report()
    assert [(h.name, h.weights, h.nbytes) for h in report.holders] == [
        ("first", 3, 192),
        ("second", 1, 64),
    ]
    assert report.storages[0].holders == ("first", "second")
    assert report.storages[0].weights == 3
    lines = str(report).splitlines()
    assert lines[0].startswith("mapped 32.0 KiB · derived 0 B · resident ")
    assert lines[2].split() == ["kind", "size", "resident", "weights", "storage", "held", "by"]
    assert lines[3].endswith(f"{path}  first, second")
    assert lines[-1].split() == ["second", "1", "64", "B"]
    constants = [registry.constant(bytes([n] * 4), ir.DataType.FLOAT, ()) for n in range(3)]
    registry.attach(first, "constants", constants)
    private = " ".join(str(registry.report()).splitlines()[4].split())
    assert private == "private 12 B 12 B 3 3 pieces of memory constants"
    del constants

    del second
    assert [h.name for h in registry.report().holders] == ["first", "constants"]
    del weights, mapping
    assert registry.report().storages == ()
    assert [h.weights for h in registry.report().holders] == [0, 0]


def test_an_empty_report_is_one_line(registry: WeightRegistry) -> None:
    assert str(registry.report()) == (
        "mapped 0 B · derived 0 B · resident 0 B · private 0 B · borrowed 0 B · device 0 B"
    )


def test_the_default_registry_is_one_for_the_process() -> None:
    found: list[Any] = []
    in_threads(lambda: found.append(default_registry()), 8)
    assert len(set(map(id, found))) == 1


def test_a_fork_in_the_middle_of_everything_leaves_a_working_child(path: Path) -> None:
    script = """
import os, sys, threading, time, numpy as np, onnx_ir as ir
from tenonnx.weights.registry import WeightRegistry
registry = WeightRegistry()
weight = registry.view(registry.map(sys.argv[1]), 0, 64, ir.DataType.FLOAT, (16,))
building, forked = threading.Event(), threading.Event()
def build():
    with registry.locks.table:
        building.set()
        forked.wait()
    return np.ones(1 << 16, np.float32)
thread = threading.Thread(target=lambda: registry.derive("slow", build))
thread.start()
building.wait()
child = os.fork()
if child == 0:
    same = registry.view(registry.map(sys.argv[1]), 0, 64, ir.DataType.FLOAT, (16,)) is weight
    other = registry.derive("quick", lambda: np.ones(1 << 16, np.float32)).array.sum() == 1 << 16
    os._exit(0 if same and other and registry.report().mapped == 32768 else 1)
forked.set()
thread.join()
for _ in range(200):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        break
    time.sleep(0.05)
else:
    os.kill(child, 9)
print(done == child and os.waitstatus_to_exitcode(status), len(weight.array))
"""
    assert run(script, str(path)).split() == ["0", "16"]


class RegistryMachine(RuleBasedStateMachine):
    """Any order of asking and forgetting keeps: one weight for one place, right bytes, no leak."""

    weights = Bundle("weights")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["TENONNX_CACHE_DIR"]))
        self.registry = WeightRegistry(SideFiles(self.folder / "cache"))
        self.paths = [self.folder / name for name in "ab"]
        for path in self.paths:
            path.write_bytes(np.random.default_rng(ord(path.name)).bytes(FILE_BYTES))
        self.alive: dict[str, weakref.ref[Weight]] = {}

    def know(self, weight: Weight) -> Weight:
        known = self.alive.get(weight.key)
        assert known is None or known() in (None, weight)
        self.alive[weight.key] = weakref.ref(weight)
        return weight

    @rule(target=weights, number=st.integers(0, 1), place=places())
    def view(self, number: int, place: tuple[Any, ...]) -> Weight:
        path = self.paths[number]
        weight = self.know(self.registry.view(self.registry.map(path), *place))
        assert weight.array.tobytes() == path.read_bytes()[place[0] : place[0] + place[1]]
        return weight

    @rule(target=weights, weight=weights)
    def reverse(self, weight: Weight) -> Weight:
        expected = weight.array.reshape(-1)[::-1].tobytes()
        derived = self.registry.derive(
            f"reverse:{weight.key}", lambda: weight.array.reshape(-1)[::-1], [weight]
        )
        assert derived.array.tobytes() == expected
        return self.know(derived)

    @rule(target=weights, weight=weights)
    def copy(self, weight: Weight) -> Weight:
        dtype = ir.DataType.UINT8 if weight.dtype in PACKED else weight.dtype
        derived = self.registry.derive(
            f"copy:{weight.key}", lambda: np.array(weight.array), [weight], dtype
        )
        assert derived.array.tobytes() == weight.array.tobytes()
        return self.know(derived)

    @rule(target=weights, weight=weights)
    def align(self, weight: Weight) -> Weight:
        aligned = self.know(self.registry.aligned(weight))
        assert aligned.is_aligned
        assert aligned.array.tobytes() == weight.array.tobytes()
        return aligned

    @rule(weight=consumes(weights))
    def forget(self, weight: Weight) -> None:
        del weight

    @invariant()
    def only_what_is_alive_is_there(self) -> None:
        living = [w for ref in self.alive.values() if (w := ref()) is not None]
        report = self.registry.report()
        storages = {id(w.storage): w.storage for w in living}
        assert sum(row.size for row in report.storages) == sum(s.size for s in storages.values())
        maps = mapped_paths()
        assert all(maps.count(str(path)) <= 1 for path in self.paths)
        assert len([p for p in maps if p in map(str, self.paths)]) == sum(
            s.kind == "mapped" for s in storages.values()
        )


def test_any_order_of_asking_and_forgetting() -> None:
    Path(os.environ["TENONNX_CACHE_DIR"]).mkdir()
    run_state_machine_as_test(
        RegistryMachine, settings=settings(max_examples=25, stateful_step_count=20, deadline=None)
    )


def test_what_is_derived_from_bytes_objects_is_found_by_others(tmp_path: Path) -> None:
    content = np.arange(32 * 1024, dtype=np.float32).tobytes()

    def derived(buffer: bytes | bytearray) -> tuple[Weight, int]:
        registry = WeightRegistry(SideFiles(tmp_path))
        built: list[None] = []
        storage = registry.from_buffer(buffer)
        weight = registry.view(storage, 0, len(buffer), ir.DataType.FLOAT, (32 * 1024,))

        def build() -> np.ndarray[Any, Any]:
            built.append(None)
            return weight.array * 2

        return weight.derive("twice:1", build), len(built)

    first, built = derived(content)
    assert (first.storage.kind, built) == ("derived", 1)
    again, built = derived(bytes(bytearray(content)))
    assert built == 0, "another process, or session, has it mapped"
    np.testing.assert_array_equal(again.array, first.array)
    # A bytearray may be written into once nobody uses it, so its content has no name.
    other, built = derived(bytearray(content))
    assert (other.storage.kind, built) == ("private", 1)
