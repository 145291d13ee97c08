"""Weights as onnx_ir tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import MutableMapping
from typing import IO, Any

import numpy as np
import onnx_ir as ir

from tenonnx.weights.storage import NDArray, is_packed, unpack
from tenonnx.weights.weight import Weight


@functools.lru_cache(maxsize=1024)
def _shape(sizes: tuple[int, ...]) -> ir.Shape:
    """Return a shape that many tensors may have, as nobody changes one that is frozen."""
    return ir.Shape(sizes, frozen=True)


class WeightTensor(ir.TensorProtocol):
    """A tensor of a graph whose data is a weight of the registry.

    Passes, cloning and serialization treat it like any other tensor; the first two leave the
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
        self.shape = _shape(weight.shape)
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
        """Return a read-only view; below 8 bits a new array of one element to a byte."""
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
        """Return a copy of the bytes as ONNX lays them out."""
        return self.weight.array.tobytes()

    def tofile(self, file: IO[bytes]) -> None:
        """Write the bytes as ONNX lays them out, without a copy if they lie in one piece."""
        array = self.weight.array
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def __repr__(self) -> str:
        return f"WeightTensor<{self.dtype},{self.shape}>(name={self.name!r})"
