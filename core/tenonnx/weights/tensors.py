"""Weights as onnx_ir tensors."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, MutableMapping
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from tenonnx.errors import InvalidGraph, NoSuchFile
from tenonnx.loading.supplied import NOTHING, Supplied
from tenonnx.weights.paths import DataFolders
from tenonnx.weights.storage import NDArray, Storage, byte_size, is_packed, unpack
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry

MAX_RANK = 64
MAX_ELEMENTS = 2**59
"""Of the widest type, what can be addressed; numpy wants it of the other dimensions if one is 0."""


class WeightTensor(ir.TensorProtocol):
    """A tensor of a graph whose data is a weight of the registry.

    Passes, cloning and serialisation treat it like any other tensor; the first two leave the
    weight where it is.

    Args:
        weight: The data, type and shape.
        name: The tensor's name; graphs rename tensors, weights have no name.
        doc_string: Documentation.
        metadata_props: Metadata that is saved with the model.
    """

    def __init__(
        self,
        weight: Weight,
        *,
        name: str | None = None,
        doc_string: str | None = None,
        metadata_props: MutableMapping[str, str] | None = None,
    ) -> None:
        self.weight = weight
        self.dtype = weight.dtype
        self.shape = ir.Shape(weight.shape, frozen=True)
        self.raw = weight
        self.name = name
        self.doc_string = doc_string
        self.metadata_props = {} if metadata_props is None else metadata_props
        self.meta: MutableMapping[str, Any] = {}

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.weight.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, packed."""
        return self.weight.nbytes

    def numpy(self) -> NDArray:
        """Returns a read-only view; below 8 bits a new array of one element to a byte."""
        array = self.weight.array
        if is_packed(self.dtype):
            return unpack(array, self.dtype, self.weight.shape)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        if copy:
            return np.array(self.numpy(), dtype=dtype)
        return np.asarray(self.numpy(), dtype=dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def tobytes(self) -> bytes:
        """Returns a copy of the bytes as ONNX lays them out."""
        return self.weight.array.tobytes()

    def tofile(self, file: IO[bytes]) -> None:
        """Writes the bytes as ONNX lays them out, without a copy if they lie in one piece."""
        array = self.weight.array
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def __repr__(self) -> str:
        return f"WeightTensor<{self.dtype},{self.shape}>(name={self.name!r})"


class TensorReader:
    """Turns the tensors of a model, in whichever form they come, into tensors over a registry.

    Args:
        registry: Where the weights are.
        folders: Where external data may lie; ``None`` if each tensor knows its own folder.
        allowed_roots: Folders that external data may lie in besides.
        supplied: Initializers and files that the caller has in memory.

    Attributes:
        inline: Storages that stand behind locations of external data.
        known: Weights that do.
    """

    def __init__(
        self,
        registry: WeightRegistry,
        folders: DataFolders | None,
        allowed_roots: Iterable[str | os.PathLike[str]],
        supplied: Supplied = NOTHING,
    ) -> None:
        self.registry = registry
        self.supplied = supplied
        self.inline: dict[str, Storage] = {
            name: registry.from_buffer(buffer) for name, buffer in supplied.files.items()
        }
        self.known: dict[str, Weight] = {}
        self._folders = folders
        self._roots = tuple(allowed_roots)
        self._files: dict[tuple[str, str], Storage] = {}
        self._base = ""

    def read(self, tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
        """Returns the tensor over its weight; itself if it is one already, or holds strings.

        A tensor that the caller supplies by its name is never looked for anywhere else.
        """
        if name in self.supplied.initializers:
            given = self.supplied.weight(self.registry, tensor, name)
            return WeightTensor(given, name=tensor.name, doc_string=tensor.doc_string)
        if isinstance(tensor, ir.StringTensor):
            found, expected = len(tensor.string_data()), tensor.size
            if found != expected:
                raise InvalidGraph(f"tensor {name!r} has {found} strings, its shape {expected}")
        if isinstance(tensor, (WeightTensor, ir.StringTensor)):
            return tensor
        return WeightTensor(
            self.weight(tensor, name),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )

    def weight(self, tensor: ir.TensorProtocol, name: str) -> Weight:
        """Returns the weight of a tensor, which errors call by the name given.

        Raises:
            InvalidGraph: The tensor contradicts itself, or its data is not to be had.
        """
        try:
            if isinstance(tensor, ir.ExternalTensor):
                return self._external(tensor, name)
            if isinstance(tensor, ir.serde.TensorProtoTensor):
                content = tensor.tobytes()
                shape = _checked_shape(tensor, name, len(content), "the model")
                if not tensor.raw.HasField("raw_data"):
                    tensor.numpy()  # refuses data in the field of another element type
                return self.registry.constant(content, tensor.dtype, shape)
            if isinstance(tensor, ir.PackedTensor):
                packed = self.registry.from_array(tensor.numpy_packed().reshape(-1))
                place = packed.storage, packed.offset, packed.nbytes
                return self.registry.view(*place, tensor.dtype, tensor.shape.numpy())
            return self.registry.from_array(tensor.numpy(), tensor.dtype)
        except (NoSuchFile, InvalidGraph):
            raise
        except (ValueError, TypeError, AssertionError, OverflowError) as error:
            raise InvalidGraph(f"tensor {name!r} is not well-formed: {error}") from error

    def _external(self, tensor: ir.ExternalTensor, name: str) -> Weight:
        location = os.fspath(tensor.location)
        if (weight := self.known.get(location)) is not None:
            return weight
        storage = self.inline.get(location)
        where = repr(location) if storage is None else "the model"
        shape = _checked_shape(tensor, name, tensor.length, where)
        nbytes, offset = byte_size(tensor.dtype, shape), tensor.offset or 0
        if not nbytes:
            return self.registry.constant(b"", tensor.dtype, shape)
        if storage is None:
            storage = self._file(location, os.fspath(tensor.base_dir), name)
        if offset < 0 or offset + nbytes > storage.size:
            raise InvalidGraph(
                f"tensor {name!r} takes {nbytes} bytes at offset {offset} of "
                f"{storage.label}, which has only {storage.size}",
                hint="Was the download or copy of the file completed?",
            )
        return self.registry.view(storage, offset, nbytes, tensor.dtype, shape)

    def _file(self, location: str, base: str, name: str) -> Storage:
        # onnx_ir does not tell the tensors of functions their folder; it is that of the others.
        self._base = base = base or self._base
        if (storage := self._files.get((location, base))) is None:
            folders = self._folders
            if folders is None:
                folders = DataFolders.of_folders([os.path.abspath(base)], self._roots)  # noqa: PTH100
            path = folders.resolve(location, name)
            if not os.path.getsize(path):  # noqa: PTH202 - a plain path
                raise InvalidGraph(f"tensor {name!r} has its data in {path}, which is empty")
            storage = self._files[location, base] = self.registry.map(path)
        return storage


def _checked_shape(
    tensor: ir.TensorProtocol, name: str, nbytes: int | None, where: str
) -> tuple[int, ...]:
    """Returns a tensor's shape, if there can be such a tensor and it takes so many bytes."""
    shape, dtype = tuple(map(int, tensor.shape.numpy())), tensor.dtype
    if min(shape, default=0) < 0:
        wrong = "has a negative dimension"
    elif len(shape) > MAX_RANK:
        wrong = f"has {len(shape)} dimensions; numpy has at most {MAX_RANK}"
    elif 0 in shape and math.prod(n for n in shape if n) > MAX_ELEMENTS:
        wrong = "has dimensions that no memory can have"
    elif nbytes not in (None, expected := byte_size(dtype, shape)):
        wrong = f"takes {expected} bytes, but has {nbytes} in {where}"
    else:
        return shape
    raise InvalidGraph(f"tensor {name!r}, {dtype}{list(shape)}, {wrong}")
