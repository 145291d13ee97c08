"""Weights that processes share on a device: one uploads, others open; whoever ends, ends alone.

The device is emulated: its memory is files, which stay as long as somebody maps them.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import mmap
import multiprocessing as mp
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from emulated import FakePlatform, Memory

from tenonnx.weights.mapping import Mapping
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.weight import Weight
from tenonnx_cuda.platform import NDArray
from tenonnx_cuda.weights.device_weights import DeviceWeights
from tenonnx_cuda.weights.sharing import PAGE_BYTES, Exchange, is_locked, locked, own_folder, taken
from tenonnx_cuda.weights.staging import Staging

SIZE = 3 << 20


class SharedPlatform(FakePlatform):
    """A device whose allocations are files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._names: dict[int, str] = {}
        self.broken = False

    def allocate(self, nbytes: int) -> Memory:
        block = super().allocate(nbytes)
        name = f"{os.getpid()}-{len(self.log)}"
        (self._folder / name).write_bytes(b"\xa5" * nbytes)
        block.held = self._mapped(name)
        self._names[id(block)] = name
        return block

    def _mapped(self, name: str) -> NDArray:
        with (self._folder / name).open("r+b") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)

    def export(self, block: Any) -> bytes:
        if self.broken:
            raise OSError("this driver shares nothing")
        return self._names[id(block)].encode()

    def open(self, handle: bytes, nbytes: int, closed: Callable[[], None]) -> Memory:
        if self.broken:
            raise OSError("this driver opens nothing")
        self.log.append(("open", nbytes))
        return Memory(owned(self._mapped(handle.decode()), Closing(closed)), 0)

    def lend(self, block: Any, hold: object) -> Memory:
        return Memory(owned(block.held, hold), block.nbytes)


class Closing:
    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed

    def __del__(self) -> None:
        self._closed()


def owned(array: NDArray, owner: object) -> NDArray:
    """The same memory as an array that holds something."""
    interface = {"version": 3, "data": (array.ctypes.data, False), "shape": array.shape,
                 "typestr": "|u1"}  # fmt: skip
    holder = type("Bytes", (), {"__array_interface__": interface, "of": array, "owner": owner})()
    return np.asarray(holder)


class Side:
    """A process with the weight of a file on the device."""

    def __init__(self, folder: Path, wait: float = 20.0) -> None:
        self.platform = SharedPlatform(folder)
        self.exchange = Exchange(self.platform, folder, wait)
        staging = Staging(self.platform, 1 << 20, readers=1)
        self.there = DeviceWeights(self.platform, staging, exchange=self.exchange)
        self.weight: Weight | None = self._weight(folder / "weights")
        self.array: Any = None

    def _weight(self, path: Path) -> Weight:
        return WeightRegistry().view(Mapping(path), 0, SIZE, ir.DataType.UINT8, (SIZE,))

    def load(self) -> tuple[int, bool]:
        """Bring the weight over; return how much was copied, and whether it is right."""
        assert self.weight is not None
        before = self.copied
        self.array = self.there.array(self.weight)
        return self.copied - before, bool((self.array.held == self.weight.array).all())

    @property
    def copied(self) -> int:
        return sum(entry[1] for entry in self.platform.log if entry[0] == "copy")

    def drop(self) -> int:
        """Let the weight go; return how much of the device is still taken."""
        self.array = self.weight = None
        gc.collect()
        self.exchange.sweep()
        return self.platform.allocated


def serve(folder: Path, channel: Connection) -> None:
    """Do what it is told, in a process of its own."""
    side = Side(folder)
    while (what := channel.recv()) is not None:
        channel.send(getattr(side, what)())


class Other:
    """A process that can be told."""

    def __init__(self, folder: Path) -> None:
        context = mp.get_context("spawn")
        self.channel, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(folder, theirs))
        self.process.start()
        theirs.close()

    def tell(self, what: str) -> Any:
        self.channel.send(what)
        assert self.channel.poll(30), "the other process said nothing"
        return self.channel.recv()

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()

    def close(self) -> None:
        if self.process.is_alive():
            self.channel.send(None)
        self.process.join(20)
        self.channel.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    content = np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)
    (tmp_path / "weights").write_bytes(content.tobytes())
    return tmp_path


@pytest.fixture
def other(folder: Path) -> Iterator[Other]:
    made = Other(folder)
    yield made
    made.close()


def test_a_second_process_opens_what_the_first_uploaded(folder: Path, other: Other) -> None:
    assert other.tell("load") == (SIZE, True)
    side = Side(folder)
    assert side.load() == (0, True)
    assert side.platform.allocated == side.there.nbytes == 0
    assert other.tell("drop") == PAGE_BYTES * 2, "it is kept for this process"
    np.testing.assert_array_equal(side.array.held, side.weight.array)  # type: ignore[union-attr]
    third = Side(folder)
    assert third.load() == (0, True), "what is kept is still offered"
    third.drop()
    side.drop()
    assert other.tell("drop") == 0


def test_an_offer_that_is_wanted_again_is_the_same(folder: Path, other: Other) -> None:
    side = Side(folder)
    assert side.load() == (SIZE, True)
    assert other.tell("load") == (0, True)
    weight = side.weight
    side.drop()
    side.weight = weight
    del weight
    assert side.load() == (0, True)
    other.tell("drop")
    assert side.drop() == 0


def test_users_of_a_process_that_was_killed_upload_their_own(folder: Path, other: Other) -> None:
    assert other.tell("load") == (SIZE, True)
    side = Side(folder)
    assert side.load() == (0, True)
    held = side.array
    other.kill()
    assert side.load() == (SIZE, True), "what comes after it does not lean on it"
    np.testing.assert_array_equal(held.held, side.array.held)
    assert Side(folder).load() == (0, True), "and is offered in its place"


def test_a_user_that_was_killed_holds_nothing(folder: Path, other: Other) -> None:
    side = Side(folder)
    assert side.load() == (SIZE, True)
    assert other.tell("load") == (0, True)
    other.kill()
    assert side.drop() == 0


def test_a_process_that_fills_forever_is_not_waited_for(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    side = Side(folder, wait=0.05)
    key = side.exchange._key
    names: list[str] = []
    side.exchange._key = lambda allocation: names.append(key(allocation) or "") or names[-1]  # type: ignore[method-assign,func-returns-value]  # to learn it
    side.load()
    stuck = Side(folder, wait=0.05)
    with (
        locked(folder / f"{names[0]}.gate", fcntl.LOCK_EX, 1),
        caplog.at_level(logging.WARNING, "tenonnx"),
    ):
        assert stuck.load() == (SIZE, True)
    assert "are not shared" in caplog.text
    assert "was locked for 0.05 s" in caplog.text


@pytest.mark.parametrize("offered", [False, True])
def test_a_driver_that_cannot_costs_a_copy(
    folder: Path, offered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = Side(folder)
    if offered:
        first.load()
    side = Side(folder)
    side.platform.broken = True
    with caplog.at_level(logging.WARNING, "tenonnx"):
        assert side.load() == (SIZE, True)
    assert "this driver" in caplog.text
    assert side.drop() == 0


def test_memory_of_one_process_is_not_offered(folder: Path) -> None:
    side = Side(folder)
    array = np.arange(SIZE, dtype=np.uint8)
    there = side.there.array(WeightRegistry().from_array(array))
    np.testing.assert_array_equal(there.held, array)
    assert list(folder.glob("*.offer")) == []


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_keeps_nothing_of_its_parents(folder: Path) -> None:
    """It has copies of the files that are locked, which would keep the locks."""
    side = Side(folder)
    side.load()
    (owner,) = folder.glob("*.owner")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        os.read(reading, 1)
        os._exit(len(side.exchange._offers))
    assert is_locked(owner)
    side.drop()
    assert not is_locked(owner)
    os.write(writing, b"x")
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)
    os.close(writing)


def test_an_offer_that_is_no_record_is_passed_over(folder: Path, other: Other) -> None:
    other.tell("load")
    for offer in folder.glob("*.offer"):
        offer.write_text("{")
    assert Side(folder).load() == (SIZE, True)


def test_the_folder_is_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = own_folder()
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    with pytest.raises(PermissionError, match="not this user's alone"):
        own_folder()


def test_locks_keep_others_out(tmp_path: Path) -> None:
    lock = taken(tmp_path / "lock", fcntl.LOCK_EX)
    with pytest.raises(BlockingIOError):
        taken(tmp_path / "lock", fcntl.LOCK_SH)
    lock.release()
    taken(tmp_path / "lock", fcntl.LOCK_SH).release()
