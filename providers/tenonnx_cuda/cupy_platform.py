"""A device by way of cupy: this module, and ``cupy_stream``, alone touch it."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenonnx.errors import EPFail
from tenonnx.operators import Array, Namespace
from tenonnx_cuda.cudnn.plans import Cudnn, cudnn_of
from tenonnx_cuda.cupy_stream import CupyStream, no_room
from tenonnx_cuda.launching import Launch, launch_function, launched
from tenonnx_cuda.matmul.cublas import products
from tenonnx_cuda.namespace import DeviceNamespace
from tenonnx_cuda.platform import Grid, Launcher, NDArray, View

# cudaHostRegister's flags for memory that every context may read in place.
PORTABLE_MAPPED_READ_ONLY = 0x01 | 0x02 | 0x08

# cudaErrorMemoryAllocation.
NO_MEMORY = 2

# CUDA's version from which on a graph captures kernels that follow each other closely.
GRAPH_FOLLOWING_VERSION = 12040

# cudaDevAttrCanUseHostPointerForRegisteredMem.
SAME_ADDRESS = 91


def connect(number: int) -> CupyPlatform:
    """Return the platform of a device; the same one for the whole process.

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
    def cudnn(self) -> Cudnn | None:
        """cuDNN; ``None``, with a line in the log, if it is not found."""
        with self._device:
            return cudnn_of(self._cupy)

    def stream(self, limit: int, address: int = 0, *, tf32: bool = False) -> CupyStream:
        """Return a stream with a pool."""
        with self._device:
            return CupyStream(self._cupy, self._device, limit, address, tf32=tf32)

    def to_device(self, array: NDArray) -> Array:
        """Copy a host array on the current stream."""
        return self._cupy.asarray(np.ascontiguousarray(array).reshape(array.shape))

    def to_host(self, array: Array) -> NDArray:
        """Copy an array to the host."""
        return self._cupy.asnumpy(array)  # type: ignore[no-any-return]  # cupy has no types

    def allocate(self, nbytes: int) -> Any:
        """Return memory straight from the driver, so that it goes back there."""
        cuda = self._cupy.cuda
        with self._device:
            try:
                return _Owned(cuda.memory.Memory(max(nbytes, 1)), nbytes)
            except cuda.memory.OutOfMemoryError as error:
                raise no_room(error) from error
            except cuda.runtime.CUDARuntimeError as error:
                if error.status == NO_MEMORY:
                    raise no_room(error) from error
                raise

    def array(self, block: Any, view: View) -> Array:
        """Return an array over a part of a block."""
        pointer = self._cupy.cuda.MemoryPointer(block.memory, view.offset)
        return self._cupy.ndarray(view.shape, view.dtype, memptr=pointer, strides=view.strides)

    def part(self, array: Array, view: View, hold: object = None) -> Array:
        """Return an array over another one's memory."""
        pointer = array.data + view.offset
        if hold is not None:
            cuda = self._cupy.cuda
            memory = cuda.UnownedMemory(array.data.ptr, array.nbytes, hold, self._device.id)
            pointer = cuda.MemoryPointer(memory, view.offset)
        return self._cupy.ndarray(view.shape, view.dtype, memptr=pointer, strides=view.strides)

    def write(self, target: Array, source: Array) -> None:
        """Copy an array; as bytes if both lie together, which cupy starts faster."""
        if target.flags.c_contiguous and source.flags.c_contiguous:
            target.data.copy_from_device_async(source.data, source.nbytes)
        else:
            target[...] = source

    def adopt(self, data: Any) -> Array:
        """Return an array over another library's memory.

        cupy's own arrays come from the caller's current stream, which they do not know.
        """
        with self._device:
            array = self._cupy.from_dlpack(data)
            self._cupy.cuda.get_current_stream().synchronize()
        return array

    def at(self, address: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        """Return an array over a caller's memory."""
        nbytes = math.prod(shape) * dtype.itemsize
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, None, self._device.id)
        return self.array(_Owned(memory, nbytes), View(0, dtype, shape))

    def pinned(self, nbytes: int) -> NDArray:
        """Return pinned bytes."""
        memory = self._cupy.cuda.alloc_pinned_memory(nbytes)
        return np.frombuffer(memory, np.uint8, nbytes)

    def copy(self, block: Any, offset: int, source: NDArray) -> Any:
        """Copy pinned bytes on a stream of its own."""
        with self._device:
            pointer = self._cupy.cuda.MemoryPointer(block.memory, offset)
            pointer.copy_from_host_async(source.ctypes.data, source.nbytes, self._copies)
            event = self._cupy.cuda.Event(disable_timing=True)
            event.record(self._copies)
        return event

    def map_host(self, address: int, nbytes: int, owner: object) -> Any:
        """Register host memory and return it as the device sees it."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            if not runtime.deviceGetAttribute(SAME_ADDRESS, self._device.id):
                raise OSError("the device sees the host's memory at other addresses")
            try:
                runtime.hostRegister(address, nbytes, PORTABLE_MAPPED_READ_ONLY)
            except runtime.CUDARuntimeError as error:
                raise OSError(f"the device cannot read the host's memory: {error}") from error
        held = _Mapped(functools.partial(runtime.hostUnregister, address), owner)
        memory = self._cupy.cuda.UnownedMemory(address, nbytes, held, self._device.id)
        return _Owned(memory, 0)

    def export(self, block: Any) -> bytes:
        """Return the handle of an allocation."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            try:
                return bytes(runtime.ipcGetMemHandle(block.memory.ptr))
            except runtime.CUDARuntimeError as error:
                raise OSError(f"CUDA gives no handle: {error}") from error

    def open(self, handle: bytes, nbytes: int, closed: Callable[[], None]) -> Any:
        """Map an allocation of another process."""
        runtime = self._cupy.cuda.runtime
        with self._device:
            try:
                address = runtime.ipcOpenMemHandle(handle)
            except runtime.CUDARuntimeError as error:
                raise OSError(f"CUDA does not open the handle: {error}") from error

        def close() -> None:
            runtime.ipcCloseMemHandle(address)
            closed()

        memory = self._cupy.cuda.UnownedMemory(address, nbytes, _Mapped(close), self._device.id)
        return _Owned(memory, 0)

    def lend(self, block: Any, hold: object) -> Any:
        """Return the same memory, with an owner."""
        inner = block.memory
        both = (inner, hold)
        memory = self._cupy.cuda.UnownedMemory(inner.ptr, inner.size, both, self._device.id)
        return _Owned(memory, block.nbytes)

    @functools.cache  # noqa: B019 - platforms live as long as the process, and graphs need all
    def compile(self, source: str, name: str, options: Sequence[str]) -> Launcher:
        """Compile a kernel with NVRTC; cupy keeps the result on disk."""
        launch = None if "-DALONE=1" in options else self._launch
        if launch is not None:
            options = (*options, "-DFOLLOWS")
        module = self._cupy.RawModule(code=source, options=("-std=c++17", *options))
        with self._device:
            function = module.get_function(name)
        return functools.partial(_launcher, self._cupy.cuda, function, launch)

    @functools.cached_property
    def _launch(self) -> Any:
        """The driver's function for kernels that follow; ``None`` where none may."""
        runtime = self._cupy.cuda.runtime
        if self.capability < (9, 0) or runtime.driverGetVersion() < GRAPH_FOLLOWING_VERSION:
            return None
        return launch_function()


def _launcher(
    cuda: Any, function: Any, follow: Any, grid: Grid, block: Grid, arguments: Sequence[Any]
) -> Callable[..., None]:
    """Return what puts addresses among arguments that lie in memory as the driver takes them.

    cupy looks at each argument's type in each call, which takes longer than all the rest.
    """
    cells = (ctypes.c_uint64 * len(arguments))()
    places = [i for i, each in enumerate(arguments) if not isinstance(each, np.generic)]
    first, width = ctypes.addressof(cells), ctypes.sizeof(ctypes.c_uint64)
    for i, each in enumerate(arguments):
        if isinstance(each, np.generic):
            ctypes.memmove(first + width * i, each.tobytes(), each.itemsize)
    each_at = [first + width * i for i in range(len(arguments))]
    pointers = (ctypes.c_void_p * len(arguments))(*each_at)
    sizes = tuple(map(int, (*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block)))))
    kernel, stream, given = function.kernel, cuda.get_current_stream, ctypes.addressof(pointers)
    held = pointers, kernel  # by the closure ``start``: the driver has only their addresses
    if follow is None:
        plain = cuda.driver.launchKernel

        def launch(on: int) -> None:
            plain(kernel.ptr, *sizes, 0, on, given, 0)

    else:
        launch = functools.partial(launched, follow, Launch.of(sizes), kernel.ptr, given)

    def start(*addresses: int) -> None:
        assert held, "what the driver reads is there"
        for place, address in zip(places, addresses, strict=True):
            cells[place] = address
        launch(stream().ptr)

    return start


class _Owned:
    """Memory that goes when nobody holds it."""

    __slots__ = ("__weakref__", "memory", "nbytes")

    def __init__(self, memory: Any, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes


class _Mapped:
    """An owner of mapped memory, which unmaps it in the end."""

    def __init__(self, end: Callable[[], object], owner: object = None) -> None:
        self._end, self.owner = end, owner

    def __del__(self) -> None:
        self._end()
