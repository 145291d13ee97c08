"""LoRA adapters: files of parameters that a run feeds to a model's inputs, mapped, not read.

The file is a flatbuffer with the identifier ``TORT``: a table of three versions and a vector of
parameters, each a table of name, dimensions, ONNX element type and bytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from tenonnx.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from tenonnx.interface.ort_value import OrtValue
from tenonnx.interface.value_types import onnx_type
from tenonnx.weights.registry import default_registry
from tenonnx.weights.storage import byte_size, is_packed
from tenonnx.weights.weight import Weight

NDArray = np.ndarray[Any, np.dtype[Any]]

IDENTIFIER: Final = b"TORT"
FORMAT_VERSION: Final = 1
# The vtable of both tables: four fields of four bytes after the offset of the vtable.
FOUR_FIELDS: Final = struct.pack("<6H", 12, 20, 4, 8, 12, 16)


class AdapterFormat:
    """The content of an adapter file, to read and to write."""

    def __init__(self, adapter: Any = None) -> None:
        del adapter
        self._format_version = FORMAT_VERSION
        self._adapter_version = 0
        self._model_version = 0
        self._parameters: dict[str, OrtValue] = {}

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """Return what a file holds; its parameters are views of the mapped file.

        Raises:
            NoSuchFile: There is no such file.
            InvalidProtobuf: It is no adapter file.
        """
        content = read(file_path)
        adapter = AdapterFormat()
        adapter._format_version, adapter._adapter_version, adapter._model_version = content.versions
        adapter._parameters = {n: OrtValue(array) for n, array in content.parameters.items()}
        return adapter

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """Write a file."""
        versions = (self._format_version, self._adapter_version, self._model_version)
        arrays = {name: value.numpy() for name, value in self._parameters.items()}
        Path(file_path).write_bytes(b"".join(encode(versions, arrays)))

    def get_format_version(self) -> int:
        """Return the version of the file format."""
        return self._format_version

    def get_adapter_version(self) -> int:
        """Return the adapter's version."""
        return self._adapter_version

    def set_adapter_version(self, adapter_version: int) -> None:
        """Set the adapter's version."""
        self._adapter_version = adapter_version

    def get_model_version(self) -> int:
        """Return the version of the adapter's model."""
        return self._model_version

    def set_model_version(self, model_version: int) -> None:
        """Set the version of the adapter's model."""
        self._model_version = model_version

    def get_parameters(self) -> dict[str, OrtValue]:
        """Return the parameters by name."""
        return dict(self._parameters)

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        """Set the parameters."""
        self._parameters = dict(params)


class LoraAdapter:
    """Parameters that ``RunOptions.add_active_adapter`` feeds to a run; weights of the registry."""

    def __init__(self) -> None:
        self.parameters: dict[str, NDArray] = {}
        self._weights: list[Weight] = []

    def Load(self, path: str | os.PathLike[str]) -> None:  # noqa: N802 - onnxruntime's name
        """Map a file's parameters.

        Raises:
            NoSuchFile: There is no such file.
            InvalidProtobuf: It is no adapter file.
        """
        registry = default_registry()
        try:
            mapping = registry.map(path)
        except (Fail, InvalidArgument) as error:
            raise NoSuchFile(f"no adapter at {os.fspath(path)}: {error}") from error
        arrays = _checked(np.frombuffer(mapping.buffer, np.uint8), path).parameters
        self._weights = []
        for array in arrays.values():
            place, kind = array.ctypes.data - mapping.address, onnx_type(array)
            self._weights.append(registry.view(mapping, place, array.nbytes, kind, array.shape))
        self.parameters = arrays
        registry.attach(self, f"adapter {os.fspath(path)}", self._weights)


@dataclass(frozen=True)
class Content:
    """The content of an adapter file: versions of format, adapter and model, and the parameters."""

    versions: tuple[int, int, int]
    parameters: dict[str, NDArray] = field(default_factory=dict)


def read(path: str | os.PathLike[str]) -> Content:
    """Return what a file holds, as views of its mapping.

    Raises:
        NoSuchFile: There is no such file.
        InvalidProtobuf: It is no adapter file.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise NoSuchFile(f"no adapter at {os.fspath(path)}: {error}") from error
    return _checked(data, path)


def _checked(data: NDArray, path: str | os.PathLike[str]) -> Content:
    try:
        if bytes(data[4:8]) != IDENTIFIER:
            raise ValueError(f"it begins with {bytes(data[4:8])!r} instead of {IDENTIFIER!r}")
        return _decode(data)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise InvalidProtobuf(f"{os.fspath(path)} is no adapter: {error}") from error


def _decode(data: NDArray) -> Content:
    root = _follow(data, 0)
    version, adapter, model, parameters = (_field(data, root, number) for number in range(4))
    numbers = [_int(data, place) if place else 0 for place in (version, adapter, model)]
    found = {}
    if parameters:
        vector = _follow(data, parameters)
        for position in range(_int(data, vector)):
            table = _follow(data, vector + 4 + 4 * position)
            name, dims, kind, raw = (_field(data, table, number) for number in range(4))
            shape = _vector(data, dims, 8).view(np.int64) if dims else ()
            dtype = ir.DataType(_int(data, kind) if kind else 0)
            array = _vector(data, raw, 1) if raw else data[:0]
            label = bytes(_vector(data, name, 1)).decode() if name else ""
            found[label] = _shaped(array, dtype, tuple(map(int, shape)))
    return Content((numbers[0], numbers[1], numbers[2]), found)


def _shaped(raw: NDArray, dtype: ir.DataType, shape: tuple[int, ...]) -> NDArray:
    if is_packed(dtype) or byte_size(dtype, shape) != len(raw):
        raise ValueError(f"a parameter of {dtype.name}{list(shape)} has {len(raw)} bytes")
    return raw.view(dtype.numpy()).reshape(shape)


def _int(data: NDArray, place: int) -> int:
    return int(struct.unpack_from("<i", data.data, place)[0])


def _follow(data: NDArray, place: int) -> int:
    return place + int(struct.unpack_from("<I", data.data, place)[0])


def _field(data: NDArray, table: int, number: int) -> int:
    """Return where a table's field is; 0 if it is not there."""
    vtable = table - _int(data, table)
    (size,) = struct.unpack_from("<H", data.data, vtable)
    slot = 4 + 2 * number
    offset = struct.unpack_from("<H", data.data, vtable + slot)[0] if slot < size else 0
    return table + offset if offset else 0


def _vector(data: NDArray, place: int, itemsize: int) -> NDArray:
    start = _follow(data, place)
    stop = start + 4 + _int(data, start) * itemsize
    if stop > len(data):
        raise ValueError("it is cut short")
    return data[start + 4 : stop]


def encode(versions: tuple[int, int, int], arrays: Mapping[str, NDArray]) -> Iterable[bytes]:
    """Return the pieces of a file."""
    items = list(arrays.items())
    # The header, the vtable at 8, the root's table at 20, its vector at 40, and the parameters'
    # tables, which share the vtable. FlatBuffers' offsets count from the place where they are.
    tables = 8 + 12 + 20 + 4 + 4 * len(items)
    heads, bodies = [], []
    place = tables + 20 * len(items)
    for position, (name, array) in enumerate(items):
        table = tables + 20 * position
        encoded = name.encode()
        text = _padded(place, 4, struct.pack("<I", len(encoded)) + encoded + b"\0")
        at_name = place + len(text) - 5 - len(encoded)
        place += len(text)
        dims = struct.pack(f"<I{array.ndim}q", array.ndim, *array.shape)
        padded = _padded(place + 4, 8, dims)
        at_dims = place + len(padded) - len(dims)
        place += len(padded)
        raw = struct.pack("<I", array.nbytes) + np.ascontiguousarray(array).tobytes()
        content = _padded(place + 4, 8, raw)
        at_raw = place + len(content) - len(raw)
        place += len(content)
        kind = int(onnx_type(array))
        ends = (at_name - table - 4, at_dims - table - 8, kind, at_raw - table - 16)
        heads.append(struct.pack("<iIIiI", table - 8, *ends))
        bodies += [text, padded, content]
    offsets = [20 * i + 4 * (len(items) - i) for i in range(len(items))]
    yield struct.pack("<I", 20) + IDENTIFIER + FOUR_FIELDS
    yield struct.pack("<iiiiI", 12, *versions, 4)
    yield struct.pack(f"<I{len(items)}I", len(items), *offsets)
    yield from heads
    yield from bodies


def _padded(place: int, alignment: int, content: bytes) -> bytes:
    return bytes(-place % alignment) + content
