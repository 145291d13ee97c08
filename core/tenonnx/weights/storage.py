"""Memory of weights, and ONNX's layout of tensors in it."""

from __future__ import annotations

import functools
import itertools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tenonnx.errors import InvalidArgument
from tenonnx.process.memory import keep_room
from tenonnx.weights.digest import digest

if TYPE_CHECKING:
    import onnx_ir as ir

NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# A model's file, a side file, memory of the registry's own, memory of a caller's.
Kind: TypeAlias = Literal["mapped", "derived", "private", "borrowed"]

# Part of every key that means nothing to another process.
PROCESS = os.urandom(8).hex()

# Private memory from this size on takes longer to fill than to look whether it leaves room.
LARGE_BYTES = 1 << 18

# The beginning of keys of bytes that are named by their content.
CONTENT = "bytes:"

# An ONNX element type. One of `NUMPY_TYPES` may be its number: onnx_ir and ml_dtypes take longer to
# import than a plan that was kept takes to open.
Element: TypeAlias = "ir.DataType | int"

# The element types that numpy has: their names, and its dtypes.
NUMPY_TYPES: Final[dict[int, tuple[str, np.dtype[Any]]]] = {
    1: ("FLOAT", np.dtype("f4")), 2: ("UINT8", np.dtype("u1")), 3: ("INT8", np.dtype("i1")),
    4: ("UINT16", np.dtype("u2")), 5: ("INT16", np.dtype("i2")), 6: ("INT32", np.dtype("i4")),
    7: ("INT64", np.dtype("i8")), 9: ("BOOL", np.dtype("?")), 10: ("FLOAT16", np.dtype("f2")),
    11: ("DOUBLE", np.dtype("f8")), 12: ("UINT32", np.dtype("u4")), 13: ("UINT64", np.dtype("u8")),
    14: ("COMPLEX64", np.dtype("c8")), 15: ("COMPLEX128", np.dtype("c16")),
}  # fmt: skip

# The number of bytes' element type.
UINT8 = 2


# The alignment of small weights that lie together, as of memory that is allocated.
SMALL_WEIGHT_ALIGNMENT = 16


def padded(content: bytes) -> bytes:
    """Return the bytes of a small weight, and zeros up to the place of the next one."""
    return content + bytes(-len(content) % SMALL_WEIGHT_ALIGNMENT)


def by_content(content: bytes | bytearray) -> str:
    """Return the key of bytes that are named by what they are."""
    return f"{CONTENT}{digest(content)}"


@functools.cache
def _packed() -> frozenset[ir.DataType]:
    """Return those that are narrower than a byte; asking one for its width takes longer."""
    import onnx_ir as ir

    others = {ir.DataType.STRING, ir.DataType.UNDEFINED}
    return frozenset(t for t in ir.DataType if t not in others and t.bitwidth < 8)


def element(number: int) -> Element:
    """Return an element type of a number."""
    if number in NUMPY_TYPES:
        return number
    import onnx_ir as ir

    return ir.DataType(number)


def name_of(dtype: Element) -> str:
    """Return an element type's name."""
    if dtype in NUMPY_TYPES:
        return NUMPY_TYPES[dtype][0]
    import onnx_ir as ir

    return ir.DataType(dtype).name


# A whole number of elements of every width: three bytes hold four elements of six bits.
UNPACKED_PIECE_BYTES = 3 << 20

_serial = itertools.count()


class Storage(Protocol):
    """A stretch of memory that stays where it is, and unchanged, as long as it is held."""

    @property
    def key(self) -> str:
        """Name the bytes: equal keys, equal bytes."""
        ...

    @property
    def kind(self) -> Kind:
        """The owner of the memory."""
        ...

    @property
    def address(self) -> int:
        """The address of its first byte."""
        ...

    @property
    def size(self) -> int:
        """Its length in bytes."""
        ...

    @property
    def label(self) -> str:
        """Its name in reports."""
        ...


class Memory:
    """Memory of this process: a buffer or an array, held for as long as weights look into it.

    Args:
        owner: The array whose memory it is, root of its views.
        kind: ``"borrowed"`` or ``"private"``.
        key: The name of the bytes; a name of this process alone if ``None``.

    Raises:
        MemoryError: It is private and large, and leaves no room for other needs.
    """

    __slots__ = ("__weakref__", "address", "key", "kind", "owner", "size")

    def __init__(self, owner: NDArray, kind: Kind, key: str | None = None) -> None:
        self.owner = owner
        self.kind = kind
        if owner.flags.c_contiguous:  # most are, and to compute bounds takes longer
            self.address, self.size = owner.__array_interface__["data"][0], owner.nbytes
        else:
            self.address, end = byte_bounds(owner)
            self.size = end - self.address
        if kind == "private" and self.size >= LARGE_BYTES:
            keep_room()
        self.key = key or f"memory:{PROCESS}:{next(_serial):x}"

    @property
    def is_immutable(self) -> bool:
        """Whether nobody can change it: it is a ``bytes`` object's."""
        base = self.owner.base
        return isinstance(base.obj if isinstance(base, memoryview) else base, bytes)

    @property
    def label(self) -> str:
        """Its name in reports."""
        return f"{self.kind} memory at {self.address:#x}"

    def __repr__(self) -> str:
        return f"<Memory {self.kind}, {self.size} bytes at {self.address:#x}>"


def is_packed(dtype: Element) -> bool:
    """Return whether elements are narrower than a byte and lie packed in memory."""
    return dtype not in NUMPY_TYPES and dtype in _packed()


@functools.cache
def stored_as(dtype: Element) -> tuple[np.dtype[Any], str]:
    """Return numpy's dtype of elements as they lie in memory, and its name for other libraries."""
    if dtype in NUMPY_TYPES:
        stored = NUMPY_TYPES[dtype][1]
        return stored, stored.str
    import onnx_ir as ir

    stored = np.dtype(np.uint8) if is_packed(dtype) else ir.DataType(dtype).numpy()
    return stored, stored.str if stored.isbuiltin == 1 else f"|V{stored.itemsize}"


def elements_in(content: NDArray, dtype: Element, shape: Sequence[int]) -> NDArray:
    """Return the elements in bytes: those narrower than a byte stay packed, and flat."""
    return content if is_packed(dtype) else content.view(stored_as(dtype)[0]).reshape(shape)


def byte_size(dtype: Element, shape: Sequence[int]) -> int:
    """Return the bytes a contiguous tensor takes; ValueError for a dtype without a width."""
    if dtype in NUMPY_TYPES:
        return NUMPY_TYPES[dtype][1].itemsize * math.prod(shape)
    import onnx_ir as ir

    dtype = ir.DataType(dtype)
    if dtype in (ir.DataType.STRING, ir.DataType.UNDEFINED):
        raise ValueError(f"{dtype} elements have no fixed width")
    return -(-dtype.bitwidth * math.prod(shape) // 8)


def unpack(packed: NDArray, dtype: ir.DataType, shape: Sequence[int]) -> NDArray:
    """Return sub-byte elements one to a byte, as ml_dtypes has them."""
    import onnx_ir as ir

    return ir.PackedTensor(packed, dtype, shape=ir.Shape(shape)).numpy()


def unpack_into(target: NDArray, packed: NDArray, dtype: ir.DataType) -> None:
    """Write sub-byte elements one to a byte, piece by piece, so that no second copy exists."""
    flat = target.reshape(-1)
    for start in range(0, packed.size, UNPACKED_PIECE_BYTES):
        piece = packed[start : start + UNPACKED_PIECE_BYTES]
        first = start * 8 // dtype.bitwidth
        count = min(flat.size - first, piece.size * 8 // dtype.bitwidth)
        flat[first : first + count] = unpack(piece, dtype, (count,)).view(np.uint8)


def pack(array: NDArray, dtype: ir.DataType) -> NDArray:
    """Return sub-byte elements packed, little end first, as a flat uint8 array."""
    import onnx_ir as ir

    return np.frombuffer(ir.Tensor(array, dtype=dtype).tobytes(), np.uint8)


def dtype_of(array: NDArray) -> ir.DataType:
    """Return the ONNX element type of an array; InvalidArgument if it is none of a weight."""
    import onnx_ir as ir

    try:
        dtype = ir.DataType.from_numpy(array.dtype)
    except TypeError:
        dtype = ir.DataType.UNDEFINED
    if dtype in (ir.DataType.UNDEFINED, ir.DataType.STRING):
        raise InvalidArgument(f"an array of {array.dtype} cannot be a weight")
    return dtype


def as_dtype(array: NDArray, dtype: ir.DataType) -> NDArray:
    """Return an array's bits as elements of an ONNX type of the same width."""
    if array.dtype.itemsize * 8 != dtype.bitwidth:
        raise InvalidArgument(f"an array of {array.dtype} cannot be a weight of {dtype}")
    return array.view(dtype.numpy())


def as_bytes(view: memoryview) -> NDArray:
    """Return a flat uint8 array over a contiguous buffer."""
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def root(array: NDArray) -> NDArray:
    """Return the base array of a view, through all views between."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def owns_just_this(array: NDArray) -> bool:
    """Return whether nothing but this array, in order, lies in the memory it holds."""
    owner = root(array)
    whole = array.flags.c_contiguous and array.nbytes == owner.nbytes
    return bool(whole and owner.flags.owndata)
