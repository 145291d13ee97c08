"""A model's inputs and outputs as callers see them, and checking what they pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from tenonnx.errors import InvalidArgument
from tenonnx.options import did_you_mean

_TYPE_NAMES = {
    "FLOAT": "float",
    "DOUBLE": "double",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
}


STRING: Final = np.dtype(object)


@dataclass(frozen=True)
class NodeArg:
    """A model input or output, as onnxruntime describes it.

    Attributes:
        name: Its name.
        type: ``tensor(float)``, ``seq(tensor(int64))``, ``map(string,tensor(float))``, ...
        shape: Sizes; a string names a symbolic dimension, ``None`` is an unknown one.
    """

    name: str
    type: str
    shape: list[int | str | None]


def describe(value: ir.Value) -> NodeArg:
    """Returns a graph input or output as a :class:`NodeArg`."""
    return NodeArg(value.name or "", type_name(value.type), _shape(value))


def type_name(value_type: ir.TypeProtocol | None) -> str:
    """Returns onnxruntime's name of a type; ``""`` if it is unknown."""
    match value_type:
        case ir.TensorType():
            name = value_type.dtype.name
            return f"tensor({_TYPE_NAMES.get(name, name.lower())})"
        case ir.SequenceType():
            return f"seq({type_name(value_type.elem_type)})"
        case ir.OptionalType():
            return f"optional({type_name(value_type.elem_type)})"
        case ir.SparseTensorType():
            return f"sparse_{type_name(ir.TensorType(value_type.dtype))}"
    return ""


def _shape(value: ir.Value) -> list[int | str | None]:
    if value.shape is None:
        return []
    return [d if isinstance(d, int) else d.value for d in value.shape.dims]


class InputCheck:
    """Checks and converts what a caller passes for one input; built once per session.

    Args:
        value: The graph input.
        default: What to use when the caller passes nothing; ``None`` makes it required.
    """

    def __init__(self, value: ir.Value, default: Any = None) -> None:
        self.arg = describe(value)
        self.default = default
        self.optional = isinstance(value.type, ir.OptionalType)
        tensor = isinstance(value.type, ir.TensorType)
        self._dtype = value.type.dtype.numpy() if tensor and value.type is not None else None
        self._dims = None if value.shape is None or not tensor else tuple(self.arg.shape)
        self._fixed = tuple((i, d) for i, d in enumerate(self._dims or ()) if isinstance(d, int))

    def __call__(self, given: Any) -> Any:
        """Returns the input as the plan takes it.

        Raises:
            InvalidArgument: Wrong kind, dtype, rank or size; the message says which and what
                was expected.
        """
        if self._dtype is None:
            return given
        array = given if type(given) is np.ndarray else self._as_array(given)
        if array.dtype != self._dtype:
            array = self._convert(array, given)
        if self._dims is not None:
            if array.ndim != len(self._dims):
                raise self._wrong(f"rank {array.ndim} (shape {list(array.shape)})")
            for position, size in self._fixed:
                if array.shape[position] != size:
                    raise self._wrong(f"shape {list(array.shape)}")
        return array

    def _as_array(self, given: Any) -> np.ndarray[Any, Any]:
        if given is None:
            raise self._wrong("None")
        if isinstance(given, dict):
            raise self._wrong("a dict")
        if self._dtype is not None and self._dtype != STRING and not hasattr(given, "dtype"):
            try:
                return np.asarray(given, self._dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise self._wrong(
                    f"{type(given).__name__} that is no such array ({error})"
                ) from error
        return np.asarray(given)

    def _convert(self, array: np.ndarray[Any, Any], given: Any) -> np.ndarray[Any, Any]:
        assert self._dtype is not None
        if array.dtype.newbyteorder("=") == self._dtype:
            return array.astype(self._dtype)
        if self._dtype == STRING and array.dtype.kind in "UO":
            return array.astype(object)
        if self._dtype == STRING and array.dtype.kind == "S":
            return np.char.decode(array, "utf-8").astype(object)
        del given
        raise self._wrong(
            f"dtype {array.dtype}", hint=f"convert it: {self.arg.name}.astype('{self._dtype}')"
        )

    def _wrong(self, found: str, hint: str | None = None) -> InvalidArgument:
        shape = "" if self._dims is None else f" of shape {list(self._dims)}"
        return InvalidArgument(
            f"input '{self.arg.name}': expected {self.arg.type}{shape}, got {found}", hint=hint
        )


class Signature:
    """The inputs and outputs of a graph.

    Args:
        graph: The main graph.
        defaults: Values of the inputs that callers may leave out, by name.
    """

    def __init__(self, graph: ir.Graph, defaults: Mapping[str, Any]) -> None:
        self.checks = [InputCheck(value, defaults.get(value.name or "")) for value in graph.inputs]
        self.inputs = [check.arg for check in self.checks if check.default is None]
        self.overridable = [check.arg for check in self.checks if check.default is not None]
        self.outputs = [describe(value) for value in graph.outputs]
        self._input_names = [check.arg.name for check in self.checks]
        self._output_positions = {arg.name: i for i, arg in enumerate(self.outputs)}

    def arguments(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Returns the plan's arguments for a caller's feeds.

        Raises:
            InvalidArgument: An unknown or missing input, or one that does not fit.
        """
        arguments = []
        used = 0
        for check in self.checks:
            if check.arg.name in feeds:
                used += 1
                arguments.append(check(feeds[check.arg.name]))
            elif check.default is not None:
                arguments.append(check.default)
            elif check.optional:
                arguments.append(None)
            else:
                self._refuse_unknown(feeds)
                raise InvalidArgument(
                    f"input '{check.arg.name}' is missing: expected {check.arg.type} of shape "
                    f"{check.arg.shape}"
                )
        if used != len(feeds):
            self._refuse_unknown(feeds)
        return arguments

    def _refuse_unknown(self, feeds: Mapping[str, Any]) -> None:
        for name in feeds:
            if name not in self._input_names:
                raise InvalidArgument(
                    f"the model has no input {name!r}{did_you_mean(name, self._input_names)}"
                )

    def positions(self, names: Sequence[str]) -> list[int]:
        """Returns where the named outputs stand.

        Raises:
            InvalidArgument: There is no such output.
        """
        for name in names:
            if name not in self._output_positions:
                known = self._output_positions
                raise InvalidArgument(
                    f"the model has no output {name!r}{did_you_mean(name, known)}"
                )
        return [self._output_positions[name] for name in names]
