"""A model's inputs and outputs as callers see them, and checking what they pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tenonnx import errors
from tenonnx.by_name import cacheable
from tenonnx.errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    import onnx_ir as ir

STRING: Final = np.dtype(object)


@cacheable
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
    """Return a graph input or output as a :class:`NodeArg`."""
    from tenonnx.graph.type_names import (
        TYPE,
        proto_type_name,
        type_name,
    )

    noted = value.meta.get(TYPE)
    name = type_name(value.type) if noted is None else proto_type_name(noted)
    return NodeArg(value.name or "", name, _shape(value))


def _shape(value: ir.Value) -> list[int | str | None]:
    import onnx_ir as ir

    kind = value.type
    while isinstance(kind, ir.OptionalType):
        kind = kind.elem_type
    if value.shape is None or isinstance(kind, ir.SequenceType):
        return []
    return [d if isinstance(d, int) else d.value for d in value.shape.dims]


@cacheable
class InputCheck:
    """The check and conversion of what a caller passes for one input; built once per session.

    Args:
        value: The graph input.
        default: What to use when the caller passes nothing; ``None`` makes it required.
    """

    def __init__(self, value: ir.Value, default: Any = None) -> None:
        import onnx_ir as ir

        self.arg = describe(value)
        self.default = default
        self.optional = isinstance(value.type, ir.OptionalType)
        self._absent = self.optional or _asked_for(value)
        self.sparse = isinstance(value.type, ir.SparseTensorType)
        tensor = isinstance(value.type, ir.TensorType)
        self._element = _element_dtype(value)
        self._dtype = self._element if tensor else None
        self._dims = None if value.shape is None or not tensor else tuple(self.arg.shape)
        self._fixed = tuple((i, d) for i, d in enumerate(self._dims or ()) if isinstance(d, int))

    def __call__(self, given: Any) -> Any:
        """Return the input as the plan takes it.

        Raises:
            InvalidArgument: Wrong kind, dtype, rank or size; the message names it and the expected
                one.
        """
        if self._dtype is None:
            return self._as_other(given)
        array = given if type(given) is np.ndarray else self._as_array(given)
        if array is None:
            return self.default
        if array.dtype is not self._dtype and array.dtype != self._dtype:
            array = self._convert(array)
        elif self._dtype is STRING:
            array = _worded(array)
        return self._of_this_shape(array)

    def on_device(self, array: Any) -> Any:
        """Return an array of a device as the plan takes it.

        Raises:
            InvalidArgument: Wrong dtype, rank or size.
        """
        if array.dtype is not self._dtype and array.dtype != self._dtype:
            raise self._wrong(f"dtype {array.dtype}")
        return self._of_this_shape(array)

    def _of_this_shape(self, array: Any) -> Any:
        if self._dims is not None:
            shape, rank = array.shape, len(self._dims)
            if len(shape) != rank:
                hint = f"add an axis: {self.arg.name}[None]" if len(shape) + 1 == rank else None
                raise self._wrong(f"rank {len(shape)} (shape {list(shape)})", hint)
            for position, size in self._fixed:
                if shape[position] != size:
                    raise self._wrong(f"shape {list(shape)}")
        return array

    def _as_other(self, given: Any) -> Any:
        """Return a sequence, map, optional or sparse tensor."""
        if self.sparse:
            return self._as_sparse(given)
        given = _unwrap(given)
        kind = self.arg.type.removeprefix("optional(")
        if given is None:
            self._take_none()
            return self.default
        if kind.startswith("seq("):
            if isinstance(given, dict | str) or not hasattr(given, "__iter__"):
                raise self._wrong(type(given).__name__)
            items = [_unwrap(item) for item in given]
            return items if kind.startswith("seq(map") else self._sequence(items)
        if kind.startswith("map(") and not isinstance(given, dict):
            raise self._wrong(type(given).__name__)
        if kind.startswith("tensor("):
            return self._made(given, self._element, type(given).__name__)
        return given

    def _as_sparse(self, given: Any) -> Any:
        is_sparse = getattr(given, "is_sparse_tensor", None)
        if is_sparse is not None and is_sparse():
            given = given.as_sparse_tensor()
        found = type(given).__name__
        if hasattr(given, "coordinates"):
            found = given.data_type()
        if found != self.arg.type:
            raise self._wrong(found, hint="see tenonnx.SparseTensor")
        return given

    def _sequence(self, items: list[Any]) -> list[Any]:
        for position, item in enumerate(items):
            array = _as_strings(self._made(item, None, f"an item {position}"))
            if array.dtype != self._element and self._element is not None:
                if hasattr(item, "dtype"):
                    raise self._wrong(f"an item {position} of dtype {item.dtype}")
                array = self._made(item, self._element, f"an item {position}")
            items[position] = array
        return items

    def _take_none(self) -> None:
        """Take ``None`` for an input that is not passed, as onnxruntime does."""
        if not self._absent and self.default is None:
            raise self._wrong("None")

    def _as_array(self, given: Any) -> np.ndarray[Any, Any] | None:
        given = _unwrap(given)
        if type(given) is np.ndarray:
            return given
        if given is None:
            self._take_none()
            return None
        if isinstance(given, dict):
            raise self._wrong("a dict")
        dtype = None if self._dtype == STRING or hasattr(given, "dtype") else self._dtype
        return self._made(given, dtype, type(given).__name__)

    def _made(self, given: Any, dtype: Any, what: str) -> np.ndarray[Any, Any]:
        try:
            return np.asarray(given, dtype)
        except (TypeError, ValueError, OverflowError) as error:
            from tenonnx.process.exceptions import message_of

            why = message_of(error) or "its elements do not fit"
            raise self._wrong(f"{what} that is no such array ({why})") from error

    def _convert(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        assert self._dtype is not None
        kind = array.dtype.kind
        if self._dtype == STRING and kind in "UT":
            words = array.astype(object)
            return words if kind == "U" else _worded(words)  # a StringDType may have other objects
        if self._dtype == STRING and kind == "S":
            return np.char.decode(array, "utf-8").astype(object)
        # numpy's StringDType, of kind T, has no order of bytes.
        if kind != "T" and array.dtype.newbyteorder("=") == self._dtype:
            return array.astype(self._dtype)
        raise self._wrong(
            f"dtype {array.dtype}", hint=f"convert it: {self.arg.name}.astype('{self._dtype}')"
        )

    def _wrong(self, found: str, hint: str | None = None) -> InvalidArgument:
        shape = "" if self._dims is None else f" of shape {list(self._dims)}"
        return InvalidArgument(
            f"input '{self.arg.name}': expected {self.arg.type}{shape}, got {found}", hint=hint
        )


def _asked_for(value: ir.Value) -> bool:
    """Return whether the model tests for the presence of an input, which may then be absent."""
    return any(user.op_type == "OptionalHasElement" for user in value.consumers())


def _unwrap(given: Any) -> Any:
    """Return the array in an ``OrtValue``, and anything else as it is."""
    numpy = getattr(given, "numpy", None)
    return numpy() if numpy is not None and hasattr(given, "is_tensor_sequence") else given


def _element_dtype(value: ir.Value) -> np.dtype[Any] | None:
    """Return the dtype of an input's tensors, which a sequence or optional may hold.

    Raises:
        InvalidGraph: The file does not say it.
    """
    import onnx_ir as ir

    kind = value.type
    while isinstance(kind, ir.SequenceType | ir.OptionalType):
        kind = kind.elem_type
    if not isinstance(kind, ir.TensorType):
        return None
    if kind.dtype == ir.DataType.UNDEFINED:
        raise errors.MalformedGraph(f"input {value.name!r} is of tensors without an element type")
    return kind.dtype.numpy()


def _as_strings(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "U":
        return array.astype(object)
    return _worded(array) if array.dtype == STRING else array


def _worded(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of objects as one of strings, which those of data frames often are not."""
    items = array.ravel().tolist()
    if list(map(type, items)).count(str) == len(items):
        return array
    words = np.empty(array.shape, object)
    words.reshape(-1)[:] = [str(item) for item in array.flat]
    return words


@cacheable
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
        self._checks = [(check.arg.name, check) for check in self.checks]
        self._input_names = [check.arg.name for check in self.checks]
        self._output_positions = {arg.name: i for i, arg in enumerate(self.outputs)}

    def arguments(
        self, feeds: Mapping[str, Any], on_devices: Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Return the plan's arguments for a caller's feeds.

        Args:
            feeds: Inputs by name. One that is ``None`` counts as not passed, whatever its name.
            on_devices: Arrays of devices in place of some of them; they are used where they are.

        Raises:
            InvalidArgument: An unknown or missing input, or one that does not fit.
        """
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InvalidArgument(
                f"the inputs are {type(feeds).__name__}; expected a dict of arrays by name",
                hint=f"for example {{{self._input_names[0]!r}: x}}" if self._checks else None,
            )
        # Counting finds unknown names without a set of names in every run.
        arguments = []
        used = 0
        for name, check in self._checks:
            if name in feeds:
                used += 1
                if on_devices and name in on_devices:
                    arguments.append(check.on_device(on_devices[name]))
                else:
                    arguments.append(check(feeds[name]))
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
        for name, given in feeds.items():
            if name not in self._input_names and given is not None:
                raise InvalidArgument(
                    f"the model has no input {name!r}{did_you_mean(name, self._input_names)}"
                )

    def positions(self, names: Sequence[str]) -> list[int]:
        """Return where the named outputs stand.

        Raises:
            InvalidArgument: There is no such output.
        """
        if isinstance(names, str):
            raise InvalidArgument(f"output_names is a string; pass a list: [{names!r}]")
        for name in names:
            if name not in self._output_positions:
                known = self._output_positions
                raise InvalidArgument(
                    f"the model has no output {name!r}{did_you_mean(name, known)}"
                )
        return [self._output_positions[name] for name in names]
