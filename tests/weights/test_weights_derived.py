"""Derived weights are views, or are built once."""

from __future__ import annotations

import functools
import threading
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from places import (
    BIG,
    in_threads,
    run,
)

from tenonnx.errors import InvalidArgument
from tenonnx.weights.registry import Weight, WeightRegistry
from tenonnx.weights.sidefile import SideFiles


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
