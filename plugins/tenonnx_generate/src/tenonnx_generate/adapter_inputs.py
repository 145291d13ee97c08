"""Inputs of a graph that adapters give, and what they are in a run of several rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx import NodeArg
from tenonnx_generate.cache import reserve
from tenonnx_generate.errors import Unsupported
from tenonnx_generate.tensor import FLOAT_NAMES, float_type

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapter

NDArray = np.ndarray[Any, np.dtype[Any]]

# Marks of a row's copy besides the adapters' numbers.
NO_ADAPTER, UNKNOWN = 0, -1


class AdapterInputs:
    """The inputs of a graph that adapters give.

    Args:
        asked: Inputs that have no value of their own.
        overridable: Inputs that have one.

    Raises:
        Unsupported: One that needs a value is not of floats.

    Attributes:
        types: onnxruntime's names of their types.
        shapes: Their shapes, of one adapter's.
        asked: Those that every adapter has to give.
        by_row: Those that may differ by row of a batch; they are zeros, or nothing, without one.
    """

    def __init__(self, asked: Iterable[NodeArg], overridable: Iterable[NodeArg]) -> None:
        required = list(asked)
        args = {arg.name: arg for arg in (*required, *overridable)}
        self.asked = frozenset(arg.name for arg in required)
        self.types = {name: arg.type for name, arg in args.items()}
        self.by_row = frozenset(
            name for name, arg in args.items() if arg.shape[:1] == [f"{name}_rows"]
        )
        self.shapes = {
            name: arg.shape[1:] if name in self.by_row else arg.shape for name, arg in args.items()
        }

        for name in self.asked | self.by_row:
            if self.types[name] not in FLOAT_NAMES:
                raise Unsupported(
                    f"input {name!r} for adapters is {self.types[name]}; expected floats"
                )

    def without(self, name: str) -> NDArray:
        """Return what an input is where no adapter gives it: zeros of the least size."""
        sizes = [size if isinstance(size, int) else 0 for size in self.shapes[name]]
        return np.zeros(sizes, float_type(self.types[name]))

    def share_a_run(self, adapters: Iterable[Adapter | None]) -> bool:
        """Return whether rows with these adapters can be in one run."""
        different = set(adapters)
        given = {name for each in different if each is not None for name in each.parameters}
        return len(different) < 2 or given | self.asked <= self.by_row


class RowAdapters:
    """The values of a decoder's rows for the inputs that adapters give.

    Rows of one adapter, or of none, share its arrays as they are mapped. Where rows differ, each
    has a copy of its own, made once and kept until the row has another adapter: a product of rows
    with different matrices reads each of them once, as it has to, and none is gathered in a step.

    Args:
        inputs: The inputs.
        rows: How many rows there are.
    """

    def __init__(self, inputs: AdapterInputs, rows: int) -> None:
        self._inputs, self._rows = inputs, rows
        self._filled = [UNKNOWN] * rows
        self._buffers: dict[str, NDArray] = {}
        self._without = {name: inputs.without(name) for name in inputs.asked | inputs.by_row}
        self._latest: dict[bool, tuple[tuple[Any, ...], dict[str, NDArray]]] = {}

    def given(
        self, first: int, count: int, adapters: Mapping[int, Adapter | None]
    ) -> dict[str, NDArray]:
        """Return the inputs of a run of some rows: the same object while the adapters stay.

        Args:
            first: The first of the rows.
            count: How many.
            adapters: The adapter of each row whose result counts.
        """
        different = set(adapters.values())
        alone = len(different) < 2
        key = (*different,) if alone else (first, count, *adapters.items())
        latest = self._latest.get(alone)
        if latest is None or latest[0] != key:
            made = self._of_one(*different) if alone else self._of_rows(first, count, adapters)
            latest = self._latest[alone] = key, made
        return latest[1]

    def _of_one(self, adapter: Adapter | None = None) -> dict[str, NDArray]:
        given = {**self._without, **(adapter.parameters if adapter else {})}
        rows = self._inputs.by_row
        return {name: array[None] if name in rows else array for name, array in given.items()}

    def _of_rows(
        self, first: int, count: int, adapters: Mapping[int, Adapter | None]
    ) -> dict[str, NDArray]:
        self._make_room(adapter for adapter in adapters.values() if adapter is not None)
        for row, adapter in adapters.items():
            number = adapter.number if adapter else NO_ADAPTER
            if self._filled[row] != number:
                self._fill(row, adapter.parameters if adapter else {})
                self._filled[row] = number
        return {name: buffer[first : first + count] for name, buffer in self._buffers.items()}

    def _make_room(self, adapters: Iterable[Adapter]) -> None:
        """Have copies of the adapters with the highest rank fit; others have zeros after theirs."""
        given = [adapter.parameters for adapter in adapters]
        for name in self._inputs.by_row:
            arrays = [self._without[name], *(each[name] for each in given if name in each)]
            arrays += [self._buffers[name][0]] if name in self._buffers else []
            sizes = [max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True)]
            if name not in self._buffers or sizes != list(self._buffers[name].shape[1:]):
                self._buffers[name] = reserve((self._rows, *sizes), arrays[0].dtype)
                self._filled = [UNKNOWN] * self._rows

    def _fill(self, row: int, parameters: Mapping[str, NDArray]) -> None:
        for name, buffer in self._buffers.items():
            buffer[row] = 0
            if name in parameters:
                array = parameters[name]
                buffer[row, : array.shape[0], : array.shape[1]] = array
