"""Tensors as a model has them, in whichever form, become tensors over the registry."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import onnx_ir as ir

from tenonnx.errors import InvalidGraph, NoSuchFile
from tenonnx.formats.in_memory_data import NO_DATA, Supplied
from tenonnx.formats.paths import DataFolders
from tenonnx.weights.constants import constants
from tenonnx.weights.storage import NUMPY_TYPES, Storage, byte_size
from tenonnx.weights.tensors import WeightTensor
from tenonnx.weights.weight import Weight

if TYPE_CHECKING:
    from tenonnx.weights.constants import Constant
    from tenonnx.weights.registry import WeightRegistry

MAX_RANK = 64
# Of the widest type, what can be addressed; numpy wants it of the other dimensions if one is 0.
MAX_ELEMENTS = 2**59


# Bytes of an initializer that lies together with others, unless the file has it mapped.
MAX_PACKED_BYTES = 1024

# The classes of numbers in a file. A check for other classes of tensors takes as long as reading
# them, for those implement a protocol.
OF_FILES = (ir.serde.TensorProtoTensor, ir.ExternalTensor)


class TensorReader:
    """The reader of a model's tensors.

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
        supplied: Supplied = NO_DATA,
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
        """Return the tensor over its weight; itself if it is one already, or holds strings.

        A tensor that the caller supplies by its name is never looked for anywhere else.
        """
        if name in self.supplied.initializers:
            given = self.supplied.weight(self.registry, tensor, name)
            return WeightTensor(given, name=tensor.name, doc_string=tensor.doc_string)
        if type(tensor) is WeightTensor:
            return tensor
        if type(tensor) not in OF_FILES and isinstance(tensor, ir.StringTensor):
            found, expected = len(tensor.string_data()), tensor.size
            if found != expected:
                raise InvalidGraph(f"tensor {name!r} has {found} strings, its shape {expected}")
            return tensor
        return WeightTensor(
            self.weight(tensor, name),
            name=tensor.name,
            doc_string=tensor.doc_string,
            metadata_props=dict(tensor.metadata_props),
        )

    def read_all(self, tensors: Mapping[str, ir.TensorProtocol]) -> Iterator[ir.TensorProtocol]:
        """Yield what ``read`` returns for each of a graph's initializers, by name.

        Small ones, of which there may be a hundred thousand, lie together.
        """
        supplied = self.supplied.initializers
        small = {
            name: numbers
            for name, tensor in tensors.items()
            if name not in supplied and (numbers := _small_numbers(tensor)) is not None
        }
        weights = dict(zip(small, constants(self.registry, [*small.values()]), strict=True))
        for name, tensor in tensors.items():
            if (weight := weights.get(name)) is None:
                yield self.read(tensor, name)
                continue
            made = WeightTensor(weight, name=tensor.name, doc_string=tensor.doc_string)
            made.metadata_props.update(tensor.metadata_props)
            yield made

    def weight(self, tensor: ir.TensorProtocol, name: str) -> Weight:
        """Return the weight of a tensor, which errors call by the name given.

        Raises:
            InvalidGraph: The tensor contradicts itself, or its data is not to be had.
        """
        try:
            if isinstance(tensor, ir.serde.TensorProtoTensor):
                content, dtype = tensor.tobytes(), tensor.dtype
                shape = _checked_shape(tensor, dtype, name, len(content), "the model")
                if not tensor.raw.HasField("raw_data"):
                    tensor.numpy()  # refuses data in the field of another element type
                return self.registry.constant(content, dtype, shape)
            if isinstance(tensor, ir.ExternalTensor):
                return self._external(tensor, name)
            if isinstance(tensor, ir.PackedTensor):
                packed = self.registry.from_array(tensor.numpy_packed().reshape(-1))
                place = packed.storage, packed.offset, packed.nbytes
                return self.registry.view(*place, tensor.dtype, tensor.shape.numpy())
            return self.registry.from_array(tensor.numpy(), tensor.dtype)
        except (NoSuchFile, InvalidGraph):
            raise
        except (ValueError, TypeError, AssertionError, OverflowError) as error:
            from tenonnx.process.exceptions import message_of

            why = message_of(error) or "its fields contradict each other"
            raise InvalidGraph(f"tensor {name!r} is not well-formed: {why}") from error

    def _external(self, tensor: ir.ExternalTensor, name: str) -> Weight:
        location = os.fspath(tensor.location)
        if (weight := self.known.get(location)) is not None:
            return weight
        storage = self.inline.get(location)
        offset = tensor.offset or 0
        if offset < 0 or (tensor.length or 0) < 0:  # onnx refuses these from 1.21 on
            raise ValueError(f"its data has offset {offset} and length {tensor.length}")
        where = repr(location) if storage is None else "the model"
        dtype = tensor.dtype
        shape = _checked_shape(tensor, dtype, name, tensor.length, where)
        nbytes = byte_size(dtype, shape)
        if not nbytes:
            return self.registry.constant(b"", dtype, shape)
        if storage is None:
            storage = self._file(location, os.fspath(tensor.base_dir), name)
        if offset + nbytes > storage.size:
            raise InvalidGraph(
                f"tensor {name!r} takes {nbytes} bytes at offset {offset} of "
                f"{storage.label}, which has only {storage.size}",
                hint="Was the download or copy of the file completed?",
            )
        return self.registry.view(storage, offset, nbytes, dtype, shape)

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


def _small_numbers(tensor: ir.TensorProtocol) -> Constant | None:
    """Return the parts of a plain, small and well-formed tensor; ``None`` for others."""
    if type(tensor) is not ir.serde.TensorProtoTensor:
        return None
    proto = tensor.raw
    content, number = proto.raw_data, proto.data_type
    if not 0 < len(content) <= MAX_PACKED_BYTES or number not in NUMPY_TYPES or proto.data_location:
        return None
    shape = tuple(proto.dims)
    well_formed = min(shape, default=1) > 0 and len(shape) <= MAX_RANK
    if not well_formed or byte_size(number, shape) != len(content):
        return None
    return content, number, shape


def _checked_shape(
    tensor: ir.TensorProtocol, dtype: ir.DataType, name: str, nbytes: int | None, where: str
) -> tuple[int, ...]:
    """Return a tensor's shape, if there can be such a tensor and it takes so many bytes."""
    shape = tuple(map(int, tensor.shape.numpy()))
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
