"""Sparse tensors as values, in onnxruntime's three layouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.errors import InvalidArgument, NotSupported
from tenonnx.graph.type_names import type_name
from tenonnx.interface.device_enums import OrtSparseFormat
from tenonnx.interface.devices import OrtDevice

NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class CooView:
    """The coordinates of a sparse tensor's values."""

    _indices: NDArray

    def indices(self) -> NDArray:
        """Positions in the flat tensor, or one row of coordinates for each value."""
        return self._indices


@dataclass(frozen=True)
class CsrView:
    """The rows and columns of a sparse matrix's values."""

    _inner: NDArray
    _outer: NDArray

    def inner(self) -> NDArray:
        """The column of every value."""
        return self._inner

    def outer(self) -> NDArray:
        """The start of every row's values, and the number of values at the end."""
        return self._outer


class SparseTensor:
    """A sparse tensor over the caller's arrays.

    Args:
        layout: Its format.
        dense_shape: The shape it stands for.
        values: The values that are no zeros.
        view: Where they belong.
    """

    def __init__(
        self,
        layout: OrtSparseFormat,
        dense_shape: Any,
        values: NDArray,
        view: CooView | CsrView,
    ) -> None:
        self._layout = layout
        self._shape = [int(size) for size in dense_shape]
        self._values = values
        self._view = view

    @classmethod
    def sparse_coo_from_numpy(
        cls, dense_shape: Any, values: NDArray, coo_indices: NDArray, ort_device: OrtDevice
    ) -> SparseTensor:
        """Return a tensor from values and their positions.

        Args:
            dense_shape: The sizes of the dense tensor.
            values: What is stored, one-dimensional.
            coo_indices: Positions, int64: in the flat tensor, or rows of coordinates.
            ort_device: Without effect: sparse tensors are on the host.

        Raises:
            InvalidArgument: There are not as many positions as values.
        """
        del ort_device
        if len(coo_indices) != len(values) and coo_indices.size != len(values) * len(dense_shape):
            raise InvalidArgument(f"{len(values)} values have {coo_indices.size} coordinates")
        coordinates = coo_indices
        if coo_indices.ndim == 1 and coo_indices.size != len(values):
            coordinates = coo_indices.reshape(len(values), -1)
        return cls(OrtSparseFormat.ORT_SPARSE_COO, dense_shape, values, CooView(coordinates))

    @classmethod
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Any,
        values: NDArray,
        inner_indices: NDArray,
        outer_indices: NDArray,
        ort_device: OrtDevice,
    ) -> SparseTensor:
        """Return a matrix from values, their columns, and where each row starts.

        Args:
            dense_shape: The sizes of the dense tensor.
            values: What is stored, one-dimensional.
            inner_indices: The column of each value, int64.
            outer_indices: For each row, and the end, where its values start, int64.
            ort_device: Without effect: sparse tensors are on the host.

        Raises:
            InvalidArgument: Columns or rows are not as many as they must be.
        """
        del ort_device
        if len(inner_indices) != len(values) or len(outer_indices) != dense_shape[0] + 1:
            raise InvalidArgument(
                f"{len(values)} values of {dense_shape[0]} rows have {len(inner_indices)} columns "
                f"and {len(outer_indices)} row starts; expected {len(values)} and "
                f"{dense_shape[0] + 1}"
            )
        view = CsrView(inner_indices, outer_indices)
        return cls(OrtSparseFormat.ORT_SPARSE_CSRC, dense_shape, values, view)

    def values(self) -> NDArray:
        """The values: the array from which the tensor was made."""
        return self._values

    def dense_shape(self) -> list[int]:
        """The shape it stands for."""
        return self._shape

    def format(self) -> OrtSparseFormat:
        """The way in which it notes the places of values."""
        return self._layout

    def data_type(self) -> str:
        """Its type's name: ``sparse_tensor(float)``."""
        return f"sparse_{type_name(ir.TensorType(ir.DataType.from_numpy(self._values.dtype)))}"

    def device_name(self) -> str:
        """Its device: always the host."""
        return "cpu"

    def as_coo_view(self) -> CooView:
        """Return its coordinates.

        Raises:
            InvalidArgument: It is in another format.
        """
        if not isinstance(self._view, CooView):
            raise InvalidArgument(f"the sparse tensor is {self._layout.name}, not COO")
        return self._view

    def as_csrc_view(self) -> CsrView:
        """Return its columns and rows.

        Raises:
            InvalidArgument: It is in another format.
        """
        if not isinstance(self._view, CsrView):
            raise InvalidArgument(f"the sparse tensor is {self._layout.name}, not CSR")
        return self._view

    def as_blocksparse_view(self) -> Any:
        """Refuse: no sparse tensor is made of blocks.

        Raises:
            InvalidArgument: Always.
        """
        raise InvalidArgument(f"the sparse tensor is {self._layout.name}, not block-sparse")

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Refuse: sparse tensors stay on the host.

        Raises:
            NotSupported: Always.
        """
        raise NotSupported(f"sparse tensors stay on the host; {ort_device.name} takes dense ones")

    def coordinates(self) -> tuple[NDArray, ...]:
        """Return where the values belong: an array for each axis, as ``numpy.nonzero`` gives."""
        if isinstance(self._view, CsrView):
            outer = self._view.outer()
            return np.repeat(np.arange(len(outer) - 1), np.diff(outer)), self._view.inner()
        indices = self._view.indices()
        if indices.ndim == 1:
            return np.unravel_index(indices, tuple(self._shape))
        return tuple(indices.T)

    def to_dense(self) -> NDArray:
        """Return the tensor with its zeros, as a new array."""
        dense = np.zeros(tuple(self._shape), self._values.dtype)
        dense[self.coordinates()] = self._values
        return dense
