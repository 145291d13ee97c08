"""The weight registry: every weight exists once, for all its users and in every form of a model.

The registry hands out the same handle for the same bytes. It holds everything weakly: what
nobody uses any more is gone.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tenonnx.errors import Fail, InvalidArgument
from tenonnx.process.weak import WeakTable
from tenonnx.weights.digest import digest
from tenonnx.weights.locks import Locks
from tenonnx.weights.mapping import Identity, Mapping, content_of, in_memory, note, state_from
from tenonnx.weights.sidefile import SideFiles
from tenonnx.weights.storage import (
    PROCESS,
    UINT8,
    Element,
    Memory,
    NDArray,
    Storage,
    as_bytes,
    as_dtype,
    by_content,
    byte_size,
    dtype_of,
    is_packed,
    name_of,
    owns_just_this,
    pack,
    root,
)
from tenonnx.weights.weight import Holding, Weight, WeightDevice

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.mapping import Content
    from tenonnx.weights.report import MemoryReport

__all__ = ["Weight", "WeightDevice", "WeightRegistry", "default_registry"]

# Derived weights from this size on go to the side files.
SIDE_FILE_BYTES = 64 * 1024

S = TypeVar("S", bound=Storage)


class WeightRegistry:
    """Hands out weights so that each exists once. Safe from any thread, and after a fork.

    Args:
        side_files: Where derived weights are kept on disk; what the environment says if ``None``.

    Attributes:
        locks: The locks.
    """

    def __init__(self, side_files: SideFiles | None = None) -> None:
        self.side_files = side_files or SideFiles.from_environment()
        self._storages = WeakTable[Hashable, Storage]()
        self._weights = WeakTable[str, Weight]()
        self._derived = WeakTable[str, Weight]()
        self._holdings: list[Holding] = []
        self.locks, self.devices = Locks(), WeakTable[str, WeightDevice]()

    def map(self, path: str | os.PathLike[str]) -> Mapping:
        """Map a file; the same mapping for the same file while anybody uses it.

        Args:
            path: Of a regular file; it is mapped whole and read-only.

        Raises:
            InvalidArgument: The file is empty or not a regular file.
            Fail: The file cannot be opened.
        """
        try:
            status = os.stat(path)
        except OSError as error:
            raise Fail(f"{os.fspath(path)} cannot be opened: {error.strerror}") from error
        with self.locks.table:
            known = self._storages.get(Identity.of(status))
            if isinstance(known, Mapping):
                mapping, state = known, state_from(status)  # of the very file that is mapped
            else:
                made = Mapping(path)
                mapping, state = self._share(made.identity, made), made.state
        note(path, state)
        return mapping

    def from_buffer(self, buffer: Any) -> Storage:
        """Return a storage over a caller's bytes, bytearray, memoryview or mmap, uncopied.

        The caller must leave the bytes alone while weights look into them.

        Raises:
            InvalidArgument: The buffer is not contiguous.
        """
        view = memoryview(buffer)
        if not view.contiguous:
            raise InvalidArgument("the buffer is not contiguous, so it cannot be read as bytes")
        return self._memory(as_bytes(view))

    def from_array(self, array: NDArray, dtype: ir.DataType | None = None) -> Weight:
        """Return a weight over a caller's array, uncopied.

        The caller must leave the elements alone while the weight is in use.

        Args:
            array: Any numeric array. Elements narrower than a byte come one to a byte, as in
                ml_dtypes, and are packed, which takes a copy; so does another byte order.
            dtype: The ONNX element type; the array's if ``None``.

        Raises:
            InvalidArgument: ONNX has no such element type, or ``dtype`` has another width.
        """
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        dtype = dtype or dtype_of(array)
        if is_packed(dtype):
            return self.constant(pack(array, dtype).tobytes(), dtype, array.shape)
        array = as_dtype(array, dtype)
        return self._inside(array, dtype) or self._over(self._memory(root(array)), array, dtype)

    def constant(self, content: bytes, dtype: Element, shape: Sequence[int]) -> Weight:
        """Return a weight over bytes named by what they are: equal content, one weight.

        For bytes that nobody else holds. Reads each of them once, to name them. From 64 KiB on
        they go to a side file, as derived weights do.
        """
        key, size = by_content(content), len(content)
        array = as_bytes(memoryview(content))
        if size >= SIDE_FILE_BYTES and self.side_files.folder is not None:
            storage = self._materialized(key, UINT8, (size,), content_of(array)).storage
        else:
            storage = self._share(key, Memory(array, "private", key))
        return self.view(storage, 0, size, dtype, shape)

    def view(
        self, storage: Storage, offset: int, nbytes: int, dtype: Element, shape: Sequence[int]
    ) -> Weight:
        """Return the weight at a place in a storage; for the same arguments the same one.

        Args:
            storage: What ``map`` or ``from_buffer`` returned.
            offset: Where the tensor begins, in bytes.
            nbytes: How many bytes it takes.
            dtype: Its element type.
            shape: Its sizes; elements lie in order (C-contiguous).

        Raises:
            InvalidArgument: The tensor takes another number of bytes, or ends outside.
        """
        shape = tuple(map(int, shape))
        if min(shape, default=0) < 0:
            raise InvalidArgument(f"a shape cannot have negative dimensions, as {shape} has")
        if nbytes != (expected := byte_size(dtype, shape)):
            raise InvalidArgument(
                f"{name_of(dtype)}{list(shape)} takes {expected} bytes, not {nbytes}"
            )
        if offset < 0 or offset + nbytes > storage.size:
            raise InvalidArgument(
                f"{nbytes} bytes at offset {offset} end outside {storage.label}, "
                f"which has {storage.size}"
            )
        return self._weight(storage, offset, dtype, shape, None)

    def derive(
        self,
        key: str,
        build: Callable[[], NDArray],
        sources: Sequence[Weight] = (),
        dtype: ir.DataType | None = None,
    ) -> Weight:
        """Return what ``build`` makes of other weights, built once per process and kept.

        A view of another weight's memory costs no bytes. Other results are stored contiguously,
        from 64 KiB on in a side file that other and later processes map too. So the key must say
        all that the result depends on: the sources' keys, every parameter, and a version of the
        algorithm.

        Args:
            key: Names the result. Concurrent callers with one key get one weight.
            build: Returns the result.
            sources: The weights from which it is derived; it may be a view of their memory.
            dtype: The ONNX element type; the array's if ``None``.
        """
        key = _of_sources(key, sources)
        with self.locks.only_one("derive", key):
            if (weight := self._find(key)) is not None:
                return weight
            array = np.asarray(build())
            dtype, shape = dtype or dtype_of(array), array.shape
            if is_packed(dtype):
                array = pack(array, dtype)
            elif weight := self._inside(array := as_dtype(array, dtype), dtype, sources):
                self._derived[key] = weight
                return weight
            return self._store(key, dtype, shape, content_of(array), array)

    def materialize(
        self,
        key: str,
        dtype: Element,
        shape: Sequence[int],
        fill: Callable[[NDArray], object],
        sources: Sequence[Weight] = (),
    ) -> Weight:
        """Return a derived weight whose bytes ``fill`` writes straight into the side file.

        Like ``derive`` otherwise, but never holds the result in private memory unless the side
        file cannot be had.

        Args:
            key: Names the result, as in ``derive``.
            dtype: The ONNX element type.
            shape: The logical shape.
            fill: Writes every element of the array it is given: flat packed bytes for elements
                narrower than a byte.
            sources: The weights from which it is derived.
        """
        key = _of_sources(key, sources)
        return self._materialized(key, dtype, tuple(shape), fill)

    def _materialized(
        self, key: str, dtype: Element, shape: tuple[int, ...], content: Content
    ) -> Weight:
        with self.locks.only_one("derive", key):
            # Small weights have no side files, and looking for one is a system call for each.
            small = byte_size(dtype, shape) < SIDE_FILE_BYTES
            known = self._derived.get(key) if small else self._find(key)
            return known or self._store(key, dtype, shape, content, None)

    def kept(self, key: str, build: Callable[[], bytes]) -> Weight:
        """Return bytes that ``build`` makes, as a weight, kept in a side file of whatever size.

        Args:
            key: Names the bytes, as in ``derive``.
            build: Makes them, if neither this process nor an earlier one has.
        """
        with self.locks.only_one("derive", key):
            if (weight := self._find(key)) is not None:
                return weight
            content = np.frombuffer(build(), np.uint8)
            return self._store(key, UINT8, content.shape, content_of(content), content, least=1)

    def aligned(self, weight: Weight) -> Weight:
        """Return the weight itself if numpy can use it in place, else its one aligned copy."""
        if weight.is_aligned:
            return weight
        key = f"aligned:{weight.name_for_others()}"
        content = content_of(weight.array, weight.storage, weight.offset)
        return self._materialized(key, weight._dtype, weight.shape, content)

    def attach(self, holder: object, name: str, weights: Iterable[Weight] | None = None) -> None:
        """Note for the report that an object uses some weights; keep neither alive.

        ``None`` stands for those that it has as its ``weights`` when a report is made.
        """
        own = None if weights is None else tuple(map(weakref.ref, dict.fromkeys(weights)))
        holding = Holding(weakref.ref(holder), name, own)
        # Who attaches again under the same name replaces its former weights.
        with self.locks.table:
            others = [h for h in self._holdings if h.holder() is not None and h[:2] != holding[:2]]
            self._holdings = [*others, holding]

    def report(self) -> MemoryReport:
        """Return what the weights take, where, and who holds them."""
        from tenonnx.weights.report import take_report

        # A holder may make its weights as it is asked.
        held = [(h.name, h.held()) for h in list(self._holdings) if h.holder() is not None]
        with self.locks.table:
            storages, weights = self._storages.values(), self._weights.values()
        return take_report(storages, weights, held, self.devices.values())

    def _weight(
        self,
        storage: Storage,
        offset: int,
        dtype: Element,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
    ) -> Weight:
        key = f"{storage.key}+{offset:x}:{name_of(dtype)}{list(shape)}"
        if strides is not None:
            key += f"/{list(strides)}"
        return self._named(key, storage, offset, dtype, shape, strides)

    def _named(
        self,
        key: str,
        storage: Storage,
        offset: int,
        dtype: Element,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
    ) -> Weight:
        """Return the weight of a key; if there is none yet, at a place that has its bytes."""
        with self.locks.table:
            weight = self._weights.get(key)
            if weight is None:
                weight = Weight(self, key, storage, offset, dtype, shape, strides)
                self._weights[key] = weight
            return weight

    def _inside(
        self, array: NDArray, dtype: ir.DataType, sources: Sequence[Weight] = ()
    ) -> Weight | None:
        """Return the array as a view of the weight whose memory it lies in, if it does."""
        base = root(array).base
        storages = [base.storage] if isinstance(base, Weight) else [w.storage for w in sources]
        start, stop = byte_bounds(array)
        for storage in storages:
            if storage.address <= start and stop <= storage.address + storage.size:
                return self._over(storage, array, dtype)
        return None

    def _over(self, storage: Storage, array: NDArray, dtype: ir.DataType) -> Weight:
        strides = None if array.flags.c_contiguous else array.strides
        offset = array.__array_interface__["data"][0] - storage.address
        return self._weight(storage, offset, dtype, array.shape, strides)

    def _find(self, key: str) -> Weight | None:
        weight = self._derived.get(key)
        if weight is None and PROCESS not in key:
            found = self.side_files.find(key, _short(key))
            if found is not None:
                weight = self._keep(key, found.mapping, found.dtype, found.shape)
        return weight

    def _store(
        self,
        key: str,
        dtype: Element,
        shape: tuple[int, ...],
        content: Content,
        array: NDArray | None,
        least: int = SIDE_FILE_BYTES,
    ) -> Weight:
        if byte_size(dtype, shape) >= least and PROCESS not in key:
            found = self.side_files.write(key, _short(key), dtype, shape, content)
            if found is not None:
                return self._keep(key, found.mapping, dtype, shape)
        if array is None:
            array = in_memory(content, dtype, shape)
        elif not owns_just_this(array):
            array = array.copy()  # a view would keep all of its larger array alive
        return self._keep(key, Memory(root(array), "private", _short(key)), dtype, shape)

    def _keep(self, key: str, storage: Storage, dtype: Element, shape: tuple[int, ...]) -> Weight:
        weight = self._weight(self._share(storage.key, storage), 0, dtype, shape, None)
        self._derived[key] = weight
        return weight

    def _memory(self, owner: NDArray) -> Storage:
        return self._share(byte_bounds(owner), Memory(owner, "borrowed"))

    def _share(self, key: Hashable, storage: S) -> S:
        """Return the storage that has the key; keys of different kinds of storage differ."""
        with self.locks.table:
            return cast("S", self._storages.setdefault(key, storage))


_locks = Locks()


@functools.cache
def _default_registry() -> WeightRegistry:
    return WeightRegistry()


def default_registry() -> WeightRegistry:
    """Return the process-wide registry."""
    with _locks.table:  # without it, functools.cache could make two in two threads
        return _default_registry()


def _of_sources(key: str, sources: Sequence[Weight]) -> str:
    """Return the key, which means nothing to other processes if a source does not."""
    ours = any(
        PROCESS in source.key and (PROCESS in source.lasting or source.lasting not in key)
        for source in sources
    )
    return f"{key}:{PROCESS}" if ours else key


def _short(key: str) -> str:
    """Name a derived weight's storage; keys nest, and would double with every step."""
    short = digest(key)[:40]
    return f"derived:{short}" + (f":{PROCESS}" if PROCESS in key else "")
