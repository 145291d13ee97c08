"""The CUDA provider on an emulated device: strict arrays in the host's memory."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar

import hosted
import numpy as np
import pytest
import strict

import tenonnx
from tenonnx_cuda.namespace import DeviceNamespace
from tenonnx_cuda.platform import (
    CannotCaptureError,
    Graph,
    Launcher,
    NDArray,
    OutOfDeviceMemoryError,
    View,
)
from tenonnx_cuda.provider import CUDAExecutionProvider
from tenonnx_cuda.weights.device_weights import UPLOAD


def pages(nbytes: int) -> NDArray:
    """Return memory that goes back to the system, as a device's does."""
    return np.frombuffer(mmap.mmap(-1, max(nbytes, 1)), np.uint8, nbytes)


class Memory:
    """A block, whose contents are rubbish until they are written."""

    def __init__(self, held: NDArray, nbytes: int) -> None:
        self.held = held
        self.nbytes = nbytes


class Replay:
    """Work that is done again, into the arrays that it made first."""

    def __init__(self, work: Callable[[], Any], results: Any) -> None:
        self._work, self._results = work, results

    def __call__(self) -> None:
        for old, new in zip(self._results, self._work(), strict=True):
            if isinstance(old, strict.StrictArray):
                old.held[...] = new.held


class Arriving:
    """A copy that is done as late as the copy engine might: when somebody waits for it."""

    def __init__(self, work: Callable[[], None], before: Arriving | None) -> None:
        self._work: Callable[[], None] | None = work
        self._before = before
        self._lock = threading.Lock()

    def synchronize(self) -> None:
        with self._lock:
            if self._before is not None:
                self._before.synchronize()
                self._before = None
            if self._work is not None:
                self._work()
                self._work = None


class FakeStream:
    def __init__(self) -> None:
        self.depth = self.graphs = 0
        self.broken = False
        self.replaying = threading.RLock()

    @contextmanager
    def active(self) -> Iterator[None]:
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def ordered(self) -> Any:
        return nullcontext()

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return strict.StrictArray(strict.empty(shape, dtype), alone=True)

    def capture(self, work: Callable[[], Any]) -> tuple[Graph, Any]:
        if self.broken:
            raise CannotCaptureError("the stream is told to fail")
        self.graphs += 1
        strict.CAPTURING.append(True)
        try:
            results = work()
        except strict.HiddenTransferError as error:
            raise CannotCaptureError(str(error)) from error
        finally:
            strict.CAPTURING.pop()
        return Replay(work, results), results

    def wait_event(self, event: Arriving) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        assert self.depth == 0, "no work may be underway"


class FakePlatform:
    """A device of some size.

    Attributes:
        log: What was copied, allocated and started, in order.
        compiled: The kernels that were asked for.
    """

    def __init__(self, capacity: int = 1 << 40, *, maps: bool = True) -> None:
        self.id = "cuda:0"
        self.uuid = "one that is only thought of"
        self.xp: Any = DeviceNamespace(strict.xp)
        self.cudnn: Any = None
        self.capability = (8, 0)
        self.capacity = capacity
        self.maps = maps
        self.log: list[tuple[Any, ...]] = []
        self._last: Arriving | None = None
        self.compiled: list[str] = []
        self._blocks: weakref.WeakSet[Memory] = weakref.WeakSet()
        self._registered: weakref.WeakSet[Memory] = weakref.WeakSet()

    @property
    def allocated(self) -> int:
        return sum(block.nbytes for block in self._blocks)

    def stream(self, limit: int, address: int = 0, *, tf32: bool = False) -> FakeStream:
        assert limit >= 0
        assert address == 0
        self.log.append(("stream", tf32))
        return FakeStream()

    def to_device(self, array: NDArray) -> Any:
        self.log.append(("to_device", array.nbytes))
        there = strict.empty(array.shape, array.dtype)
        there[...] = array
        return strict.wrap(there)

    def to_host(self, array: Any) -> NDArray:
        self.log.append(("to_host", array.nbytes))
        held: NDArray = array.held.copy()
        return held

    def allocate(self, nbytes: int) -> Memory:
        if self.allocated + nbytes > self.capacity:
            raise OutOfDeviceMemoryError(f"{nbytes} bytes do not fit")
        held = pages(nbytes)
        held[:] = 0xA5
        block = Memory(held, nbytes)
        self._blocks.add(block)
        self.log.append(("allocate", nbytes))
        return block

    def array(self, block: Any, view: View) -> Any:
        array: NDArray = np.ndarray(view.shape, view.dtype, block.held, view.offset, view.strides)
        return strict.StrictArray(array)

    def part(self, array: Any, view: View, hold: object = None) -> Any:
        interface = {
            "version": 3, "data": (array.data.ptr + view.offset, False), "shape": view.shape,
            "strides": view.strides, "typestr": f"|V{view.dtype.itemsize}",
        }  # fmt: skip
        holder = SimpleNamespace(__array_interface__=interface, held=hold or array)
        return strict.StrictArray(np.asarray(holder).view(view.dtype), alone=True)

    def write(self, target: Any, source: Any) -> None:
        assert (target.shape, target.dtype) == (source.shape, source.dtype)
        target[...] = source

    def adopt(self, data: Any) -> Any:
        return strict.StrictArray(data.held)

    def at(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
        interface = {
            "version": 3, "data": (address, False), "shape": shape, "typestr": dtype.str
        }  # fmt: skip
        return strict.wrap(np.asarray(type("At", (), {"__array_interface__": interface})()))

    def pinned(self, nbytes: int) -> NDArray:
        self.log.append(("pinned", nbytes))
        return pages(nbytes)

    def copy(self, block: Any, offset: int, source: NDArray) -> Arriving:
        self.log.append(("copy", source.nbytes))

        def work() -> None:
            block.held[offset : offset + source.nbytes] = source

        self._last = Arriving(work, self._last)
        return self._last

    def map_host(self, address: int, nbytes: int, owner: object) -> Memory:
        if not self.maps:
            raise OSError("this device cannot")
        if any(there.held.ctypes.data == address for there in self._registered):
            raise OSError("the memory is registered already")
        interface = {"version": 3, "data": (address, True), "shape": (nbytes,), "typestr": "|u1"}
        holder = type("Bytes", (), {"__array_interface__": interface, "owner": owner})()
        self.log.append(("map", nbytes))
        block = Memory(np.asarray(holder), 0)
        self._registered.add(block)
        return block

    def export(self, block: Any) -> bytes:
        raise OSError(f"{block.nbytes} bytes of this process alone")

    def open(self, handle: bytes, nbytes: int, closed: Callable[[], None]) -> Any:
        raise OSError(f"no {nbytes} bytes at {handle!r} for {closed}")

    def lend(self, block: Any, hold: object) -> Any:
        raise AssertionError(f"{hold} has nothing to hold of {block}")

    def compile(self, source: str, name: str, options: Sequence[str]) -> Launcher:
        self.compiled.append(name)
        return hosted.compile_kernel(source, name, tuple(options)).prepared  # type: ignore[no-any-return]  # hosted


class EmulatedProvider(CUDAExecutionProvider):
    """The CUDA provider on one such device, which all its sessions share."""

    name: ClassVar[str] = "EmulatedProvider"
    aliases: ClassVar[tuple[str, ...]] = ("emulated",)
    where: ClassVar[FakePlatform] = FakePlatform()

    @classmethod
    def check(cls) -> str | None:
        return None if hosted.COMPILER else "its kernels need a C++ compiler, such as g++"

    @classmethod
    def connect(cls, number: int) -> Any:
        assert number == 0
        return cls.where


def provider_on(platform: FakePlatform) -> type[EmulatedProvider]:
    """Return the provider on a device of one's own."""
    return type("OwnEmulatedProvider", (EmulatedProvider,), {"where": platform})


def settle() -> None:
    """Wait for the uploads of all sessions."""
    for thread in threading.enumerate():
        if thread.name == UPLOAD:
            thread.join()


class ArraysOnly(EmulatedProvider):
    """One that leaves everything to the array kernels, but what cupy has none for."""

    def _chosen(self, node: Any) -> tenonnx.Step:
        needed = node.op_type.startswith("Scatter")
        return super()._chosen(node) if needed else self._step(node)

    def _joined(self, segment: Any, steps: Any, *_: Any) -> list[tenonnx.Step]:
        return [steps[node] for node in segment.nodes]


class Plugin:
    """Registers a provider."""

    def __init__(self, provider: type[CUDAExecutionProvider] = EmulatedProvider) -> None:
        self._provider = provider

    @tenonnx.hookimpl
    def register_providers(self, register: Callable[..., None]) -> None:
        register(self._provider)


def options(
    provider: type[CUDAExecutionProvider] = EmulatedProvider, **settings: Any
) -> tenonnx.SessionOptions:
    """Return session options under which ``emulated`` names a provider."""
    plugins = tenonnx.PluginSet()
    plugins.register(Plugin(provider))
    return tenonnx.SessionOptions(plugins=plugins, **settings)


def session(
    model: Any, provider: type[CUDAExecutionProvider] = EmulatedProvider, **settings: Any
) -> tenonnx.InferenceSession:
    """Open a model on it, with the CPU for what it declines."""
    if (problem := provider.check()) is not None:
        pytest.skip(problem)
    own = settings.pop("provider_options", {})
    providers = [("emulated", own), "cpu"]
    return tenonnx.InferenceSession(model, options(provider, **settings), providers)
