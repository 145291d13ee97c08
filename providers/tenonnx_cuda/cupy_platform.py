"""A device by way of cupy: the one module that touches it."""

from __future__ import annotations

import functools
import importlib
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenonnx.errors import EPFail
from tenonnx.operators import Array, Namespace
from tenonnx_cuda.images.convolutions import Convolutions, convolutions
from tenonnx_cuda.namespace import DeviceNamespace
from tenonnx_cuda.platform import (
    CannotRecordError,
    Launch,
    NDArray,
    OutOfDeviceMemoryError,
    Recording,
    View,
)
from tenonnx_cuda.products.cublas import products

LARGEST_LIMIT = 2**62
"""cupy's pools take a signed number."""

PORTABLE_MAPPED_READ_ONLY = 0x01 | 0x02 | 0x08
"""cudaHostRegister's flags for memory that every context may read in place."""

NO_MEMORY = 2
"""cudaErrorMemoryAllocation."""

FLOAT32, TF32 = 0, 3
"""cublasMath_t: CUBLAS_DEFAULT_MATH and CUBLAS_TF32_TENSOR_OP_MATH."""

SAME_ADDRESS = 91
"""cudaDevAttrCanUseHostPointerForRegisteredMem."""


_recording = threading.Lock()
"""cupy has one allocator of pinned memory for all threads."""


def connect(number: int) -> CupyPlatform:
    """Returns the platform of a device; the same one for the whole process.

    Raises:
        EPFail: There is no device of that number, or CUDA was started before a fork.
    """
    platform = _platform(number)
    if platform.process != os.getpid():
        raise EPFail(
            "CUDA was started before this process was forked, and does not work in it",
            hint="start processes by multiprocessing's spawn, or fork before the first session",
        )
    return platform


@functools.cache
def _platform(number: int) -> CupyPlatform:
    import cupy

    count = cupy.cuda.runtime.getDeviceCount()
    if number >= count:
        raise EPFail(
            f"device_id is {number}, and there are {count} devices",
            hint="`nvidia-smi -L` lists them; CUDA_VISIBLE_DEVICES hides some",
        )
    return CupyPlatform(cupy, number)


class CupyPlatform:
    """One device.

    Args:
        cupy: The module.
        number: Which device.

    Attributes:
        process: The one that started CUDA.
    """

    def __init__(self, cupy: Any, number: int) -> None:
        self.id = f"cuda:{number}"
        self.xp: Namespace = DeviceNamespace(cupy, products(cupy))
        self.process = os.getpid()
        self._cupy = cupy
        self._device = cupy.cuda.Device(number)
        properties = cupy.cuda.runtime.getDeviceProperties(number)
        self.uuid = bytes(properties["uuid"]).hex()
        self.capability = divmod(int(self._device.compute_capability), 10)
        with self._device:
            # Weights are copied beside all sessions' work, so their stream waits for no other.
            self._copies = cupy.cuda.Stream(non_blocking=True)

    @functools.cached_property
    def convolutions(self) -> Convolutions | None:
        """cuDNN; ``None``, with a line in the log, if it is not found."""
        with self._device:
            return convolutions(self._cupy)

    def stream(self, limit: int, address: int = 0, *, tf32: bool = False) -> CupyStream:
        """Returns a stream with a pool."""
        with self._device:
            return CupyStream(self._cupy, self._device, limit, address, TF32 if tf32 else FLOAT32)

    def to_device(self, array: NDArray) -> Array:
        """Copies a host array on the current stream."""
        return self._cupy.asarray(np.ascontiguousarray(array).reshape(array.shape))

    def to_host(self, array: Array) -> NDArray:
        """Copies an array to the host."""
        return self._cupy.asnumpy(array)  # type: ignore[no-any-return]  # cupy has no types

    def allocate(self, nbytes: int) -> Any:
        """Returns memory straight from the driver, so that it goes back there."""
        cuda = self._cupy.cuda
        with self._device:
            try:
                return _Owned(cuda.memory.Memory(max(nbytes, 1)), nbytes)
            except cuda.memory.OutOfMemoryError as error:
                raise _no_room(error) from error
            except cuda.runtime.CUDARuntimeError as error:
                if error.status == NO_MEMORY:
                    raise _no_room(error) from error
                raise

    def array(self, block: Any, view: View) -> Array:
        """Returns an array over a part of a block."""
        pointer = self._cupy.cuda.MemoryPointer(block.memory, view.offset)
        return self._cupy.ndarray(view.shape, view.dtype, memptr=pointer, strides=view.strides)

    def adopt(self, data: Any) -> Array:
        """Returns an array over another library's memory."""
        return self._cupy.from_dlpack(data)

    def at(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Returns an array over a caller's memory."""
        nbytes = math.prod(shape) * dtype.itemsize
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, None, self._device.id)
        return self.array(_Owned(memory, nbytes), View(0, dtype, shape))

    def pinned(self, nbytes: int) -> NDArray:
        """Returns pinned bytes."""
        memory = self._cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def copy(self, block: Any, offset: int, source: NDArray) -> Any:
        """Copies pinned bytes on a stream of its own."""
        with self._device:
            pointer = self._cupy.cuda.MemoryPointer(block.memory, offset)
            pointer.copy_from_host_async(source.ctypes.data, source.nbytes, self._copies)
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._copies)
        return event

    def map_host(self, address: int, nbytes: int, owner: object) -> Any:
        """Registers host memory and returns it as the device sees it."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            if not runtime.deviceGetAttribute(SAME_ADDRESS, self._device.id):
                raise OSError("the device sees the host's memory at other addresses")
            try:
                runtime.hostRegister(address, nbytes, PORTABLE_MAPPED_READ_ONLY)
            except runtime.CUDARuntimeError as error:
                raise OSError(f"the device cannot read the host's memory: {error}") from error
        held = _Registered(runtime, address, owner)
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, held, self._device.id)
        return _Owned(memory, 0)

    def export(self, block: Any) -> bytes:
        """Returns the handle of an allocation."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            try:
                return bytes(runtime.ipcGetMemHandle(block.memory.ptr))
            except runtime.CUDARuntimeError as error:
                raise OSError(f"CUDA gives no handle: {error}") from error

    def open(self, handle: bytes, nbytes: int, closed: Callable[[], None]) -> Any:
        """Maps an allocation of another process."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            try:
                address = runtime.ipcOpenMemHandle(handle)
            except runtime.CUDARuntimeError as error:
                raise OSError(f"CUDA does not open the handle: {error}") from error
        held = _Opened(runtime, address, closed)
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, held, self._device.id)
        return _Owned(memory, 0)

    def lend(self, block: Any, hold: object) -> Any:
        """Returns the same memory, with an owner."""
        inner = block.memory
        both = (inner, hold)
        memory = self._cupy.cuda.UnownedMemory(inner.ptr, inner.size, both, self._device.id)
        return _Owned(memory, block.nbytes)

    @functools.lru_cache(maxsize=512)  # noqa: B019 - platforms live as long as the process
    def compile(self, source: str, name: str, options: Sequence[str]) -> Launch:
        """Compiles a kernel with NVRTC; cupy keeps the result on disk."""
        module = self._cupy.RawModule(code=source, options=("-std=c++17", *options))
        with self._device:
            return module.get_function(name)  # type: ignore[no-any-return]  # cupy has no types


class CupyStream:
    """A stream and its pool.

    Args:
        cupy: The module.
        device: The device.
        limit: Bytes that the pool may take.
        address: A ``cudaStream_t``; a new one if 0.
        math_mode: cuBLAS's, for products on the stream.
    """

    def __init__(self, cupy: Any, device: Any, limit: int, address: int, math_mode: int) -> None:
        self._cupy, self._device, self._math_mode = cupy, device, math_mode
        self._cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        if address:
            self._stream = cupy.cuda.Stream.from_external(_Foreign(address))
        else:
            self._stream = cupy.cuda.Stream(non_blocking=True)
        self._pool = cupy.cuda.MemoryPool()
        if limit < LARGEST_LIMIT:
            with device:
                self._pool.set_limit(size=limit)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes device, stream, pool and precision this thread's."""
        cuda = self._cupy.cuda
        with (
            self._device,
            self._stream,
            cuda.using_allocator(self._pool.malloc),
            self._precision(),
        ):
            try:
                yield
            except cuda.memory.OutOfMemoryError as error:
                # What the pool keeps for later is what may make room now.
                self._pool.free_all_blocks()
                raise _no_room(error) from error

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """Sets the mode of cuBLAS's handle, which is this thread's and everybody's in it."""
        handle = self._device.cublas_handle
        before = self._cublas.getMathMode(handle)
        if before == self._math_mode:
            yield
            return
        self._cublas.setMathMode(handle, self._math_mode)
        try:
            yield
        finally:
            self._cublas.setMathMode(handle, before)

    def record(self, work: Callable[[], Any]) -> tuple[Recording, Any]:
        """Captures a CUDA graph.

        What it allocates comes from a pool of its own, which nothing else is given memory of for
        as long as the graph may be launched. The capture has a stream of its own, too: what other
        threads do on this one meanwhile would be recorded, and not done.
        """
        cuda = self._cupy.cuda
        pool = cuda.MemoryPool()
        with self.active(), self._no_uploads():
            capture = cuda.Stream(non_blocking=True)
            with capture, cuda.using_allocator(pool.malloc):
                capture.begin_capture()
                try:
                    result = work()
                except Exception as error:
                    _abandon(capture, cuda.runtime.CUDARuntimeError)
                    raise CannotRecordError(str(error)) from error
                try:
                    return _Graph(capture.end_capture(), self._stream, pool), result
                except cuda.runtime.CUDARuntimeError as error:
                    raise CannotRecordError(str(error)) from error

    @contextmanager
    def _no_uploads(self) -> Iterator[None]:
        """Refuses this thread's copies from the host.

        cupy puts them into pinned memory, which is somebody else's by the time of a replay.
        """
        thread, pool = threading.get_ident(), self._cupy.get_default_pinned_memory_pool()

        def malloc(nbytes: int) -> Any:
            if threading.get_ident() == thread:
                raise CannotRecordError(f"{nbytes} bytes are copied from the host")
            return pool.malloc(nbytes)

        with _recording:
            self._cupy.cuda.set_pinned_memory_allocator(malloc)
            try:
                yield
            finally:
                self._cupy.cuda.set_pinned_memory_allocator(pool.malloc)

    def wait_event(self, event: Any) -> None:
        """Lets what comes now start after an event."""
        self._stream.wait_event(event)

    def synchronize(self) -> None:
        """Waits for everything on the stream."""
        self._stream.synchronize()

    def used(self) -> int:
        """Returns what the pool holds."""
        return int(self._pool.total_bytes())


class _Foreign:
    """A caller's stream."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        """Returns the protocol's version and the stream's address."""
        return 0, self._address


def _abandon(stream: Any, failure: type[Exception]) -> None:
    try:
        stream.end_capture()
    except failure:
        return  # a capture that failed ends with its error, which the caller has already


class _Graph:
    def __init__(self, graph: Any, stream: Any, pool: Any) -> None:
        self._graph, self._stream, self._pool = graph, stream, pool

    def launch(self) -> None:
        self._graph.launch(self._stream)


class _Owned:
    """Memory that goes when nobody holds it."""

    __slots__ = ("__weakref__", "memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes


class _Registered:
    """Host memory that the device may read until this is let go."""

    def __init__(self, runtime: Any, address: int, owner: object) -> None:
        self._runtime, self._address, self.owner = runtime, address, owner

    def __del__(self) -> None:
        self._runtime.hostUnregister(self._address)


class _Opened:
    """Another process's memory, mapped here until this is let go."""

    def __init__(self, runtime: Any, address: int, closed: Callable[[], None]) -> None:
        self._runtime, self._address, self._closed = runtime, address, closed

    def __del__(self) -> None:
        self._runtime.ipcCloseMemHandle(self._address)
        self._closed()


def _no_room(error: Exception) -> OutOfDeviceMemoryError:
    return OutOfDeviceMemoryError(
        f"the device is out of memory: {error}; raise gpu_mem_limit if it is set, close sessions, "
        "or use smaller batches"
    )
