"""A session's stream on a device, by way of cupy, and the CUDA graphs captured on it."""

from __future__ import annotations

import functools
import importlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenonnx import DeviceReset
from tenonnx.operators import Array
from tenonnx_cuda.matmul.cublas import TF32
from tenonnx_cuda.platform import CannotCaptureError, Graph, OutOfDeviceMemoryError

# cupy's pools take a signed number.
LARGEST_LIMIT = 2**62

# CUBLAS_DEFAULT_MATH: float32 is multiplied as it is.
DEFAULT_MATH = 0

# Errors of memory and links that cannot be corrected, wild accesses, kernels that take too long,
# failed assertions, wild instructions: after them each call of the process fails.
LOST = {214, 220, 700, 702, 710, *range(714, 720)}

_making = threading.Lock()

# cupy has one allocator of pinned memory for all threads.
_capturing = threading.Lock()


def no_room(error: Exception) -> OutOfDeviceMemoryError:
    """Return an error that says what to do about a device that is full."""
    return OutOfDeviceMemoryError(
        f"the device is out of memory: {error}; raise gpu_mem_limit if it is set, close sessions, "
        "or use smaller batches"
    )


def raise_lost(error: object) -> None:
    """Raise an error that says what to do, if an error is one of a device that was lost."""
    if getattr(error, "status", None) in LOST and isinstance(error, Exception):
        raise DeviceReset(
            f"this process has lost the device: {error}",
            hint="start another process; `compute-sanitizer python ...` names the kernel",
        ) from error


class Ordered:
    """Device and stream of a thread, for as long as it is entered; by any number of threads."""

    def __init__(self, device: Any, owner: CupyStream) -> None:
        self._device, self._owner = device, owner

    def __enter__(self) -> None:
        self._device.__enter__()
        self._owner.stream.__enter__()

    def __exit__(self, *error: object) -> None:
        try:
            self._owner.stream.__exit__(*error)
            self._device.__exit__(*error)
        finally:
            raise_lost(error[1])


class CupyStream:
    """A stream and its pools.

    Args:
        cupy: The module.
        device: The device.
        limit: Bytes that the pool may take.
        address: A ``cudaStream_t``; a new one if 0.
        tf32: Let cuBLAS round the factors of float32 products to 10 bits.

    Attributes:
        replaying: Held while a graph is launched and what it made is copied.
    """

    def __init__(
        self, cupy: Any, device: Any, limit: int, address: int = 0, *, tf32: bool = False
    ) -> None:
        self._cupy, self._device, self._math_mode = cupy, device, TF32 if tf32 else DEFAULT_MATH
        self._cublas = importlib.import_module("cupy_backends.cuda.libs.cublas")
        self._made: dict[str, Any] = {}
        if address:
            self._made["runs"] = cupy.cuda.Stream.from_external(_Foreign(address))
        self._ordered = Ordered(device, self)
        self.replaying = threading.RLock()
        self._pool = cupy.cuda.MemoryPool()
        self._of_graphs = cupy.cuda.MemoryPool(functools.partial(_for_graphs, cupy.cuda))
        if limit < LARGEST_LIMIT:
            with device:
                self._pool.set_limit(size=limit)
                self._of_graphs.set_limit(size=limit)
        weakref.finalize(self, _empty, device, self._pool, self._of_graphs).atexit = False

    @property
    def stream(self) -> Any:
        """The stream of runs; four take 2 MiB of a device, so an idle session has none."""
        return self._made.get("runs") or self._make("runs")

    def _make(self, name: str) -> Any:
        with _making, self._device:
            if name not in self._made:
                self._made[name] = self._cupy.cuda.Stream(non_blocking=True)
            return self._made[name]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make device, stream, pool and precision this thread's."""
        try:
            with self._device, self.stream, self._cupy.cuda.using_allocator(self._pool.malloc):
                yield from self._rounded()
        except Exception as error:
            raise_lost(error)
            raise

    def _rounded(self) -> Iterator[None]:
        """Have cuBLAS round as the session asks, in the stream's context."""
        cuda, cublas, mode = self._cupy.cuda, self._cublas, self._math_mode
        handle = self._device.cublas_handle  # this thread's, and everybody's in it
        before = cublas.getMathMode(handle)
        if before != mode:
            cublas.setMathMode(handle, mode)
        try:
            yield
        except cuda.memory.OutOfMemoryError as error:
            # What the pool keeps for later is what may make room now.
            self._pool.free_all_blocks()
            raise no_room(error) from error
        finally:
            if before != mode:
                cublas.setMathMode(handle, before)

    def ordered(self) -> Ordered:
        """Make device and stream this thread's."""
        return self._ordered

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return an array from the pool."""
        memory = self._pool.malloc(math.prod(shape) * dtype.itemsize)
        return self._cupy.ndarray(shape, dtype, memptr=memory)

    def capture(self, work: Callable[[], Any]) -> tuple[Graph, Any]:
        """Capture a CUDA graph.

        What it allocates comes from a pool that all graphs of the stream share, for no two of them
        run at once; what is left of a graph between its runs is held by its caller. Captures have a
        stream of their own: what other threads do on this one meanwhile would be captured, and not
        done.
        """
        # Pools have what was freed on one stream for that stream alone.
        cuda, capture = self._cupy.cuda, self._made.get("captures") or self._make("captures")
        allocator = cuda.using_allocator(self._of_graphs.malloc)
        with self.active(), self._no_uploads(), capture, allocator:
            capture.begin_capture()
            try:
                result = work()
            except Exception as error:
                _abandon(capture, cuda.runtime.CUDARuntimeError)
                raise CannotCaptureError(str(error)) from error
            try:
                return functools.partial(self._launch, capture.end_capture()), result
            except cuda.runtime.CUDARuntimeError as error:
                raise CannotCaptureError(str(error)) from error

    def _launch(self, graph: Any) -> None:
        """Start a graph, which writes to this stream's pool."""
        graph.launch(self.stream)

    @contextmanager
    def _no_uploads(self) -> Iterator[None]:
        """Refuse this thread's copies from the host.

        cupy puts them into pinned memory, which is somebody else's by the time of a replay.
        """
        thread, pool = threading.get_ident(), self._cupy.get_default_pinned_memory_pool()

        def malloc(nbytes: int) -> Any:
            if threading.get_ident() == thread:
                raise CannotCaptureError(f"{nbytes} bytes are copied from the host")
            return pool.malloc(nbytes)

        with _capturing:
            self._cupy.cuda.set_pinned_memory_allocator(malloc)
            try:
                yield
            finally:
                self._cupy.cuda.set_pinned_memory_allocator(pool.malloc)

    def wait_event(self, event: Any) -> None:
        """Make the stream wait for an event."""
        self.stream.wait_event(event)

    def synchronize(self) -> None:
        """Wait for everything on the stream."""
        if "runs" in self._made:
            with self._ordered:
                self.stream.synchronize()


class _Foreign:
    """A caller's stream."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the stream's address."""
        return 0, self._address


def _empty(device: Any, *pools: Any) -> None:
    """Give back what pools keep for later, which cupy keeps even when they are gone."""
    with device:
        for pool in pools:
            pool.free_all_blocks()


def _for_graphs(cuda: Any, nbytes: int) -> Any:
    """Allocate for a pool that graphs have.

    cupy answers errors that it knows by giving back all that is free in the pool, and trying again;
    but what is free between graphs is what they write when they are replayed.
    """
    try:
        return cuda.MemoryPointer(cuda.Memory(nbytes), 0)
    except (cuda.memory.OutOfMemoryError, cuda.runtime.CUDARuntimeError) as error:
        raise CannotCaptureError(str(no_room(error))) from error


def _abandon(stream: Any, failure: type[Exception]) -> None:
    try:
        stream.end_capture()
    except failure:
        return  # a capture that failed ends with its error, which the caller has already
