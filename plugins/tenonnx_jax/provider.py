"""The provider: a segment becomes one function of its inputs and weights, which XLA compiles."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tenonnx import Kernel, Segment, Step
from tenonnx_array.provider import ArrayDevice, ArrayProvider
from tenonnx_jax.declined import DECLINED
from tenonnx_jax.windows import WINDOWS

if TYPE_CHECKING:
    import onnx_ir as ir

ELEMENTS = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT16 BFLOAT16 FLOAT DOUBLE"


FUSIONS = frozenset(
    ("attention", "bias-gelu", "conv-activation", "packed-heads", "rotary", "skip-norm")
)
"""Transforms that make operators of com.microsoft."""


class JaxDevice(ArrayDevice):
    """jax's default device. On the CPU an aligned array is used where it is, weights too."""

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Returns a jax array, which on the CPU is the same memory if it is aligned to 64 bytes."""
        jax = importlib.import_module("jax")
        with jax.enable_x64(True):
            return jax.device_put(array)


class Shape:
    """An array that a trace depends on by value: equal contents, one compiled function."""

    def __init__(self, array: Any) -> None:
        self.array = np.asarray(array)
        self.key = (self.array.tobytes(), self.array.shape, self.array.dtype.str)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and self.key == other.key


class JaxExecutionProvider(ArrayProvider):
    """Compiles segments with XLA for jax's default device."""

    name: ClassVar[str] = "JaxExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("jax",)
    unasked: ClassVar[bool] = False
    namespace = "jax.numpy"
    device = JaxDevice("jax.numpy", "jax")
    overrides = WINDOWS
    elements = frozenset(ELEMENTS.split())
    without: ClassVar[dict[str, str]] = DECLINED

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts a node that can be traced."""
        if node.domain in ("ai.onnx.ml", "ai.tenonnx", "com.microsoft"):
            return f"the kernels of {node.domain} cannot be traced"
        verdict = super().supports(node)
        if verdict is not True:
            return verdict
        kernel = self.kernel(node)
        if kernel.host == "all":
            return "its kernel is for the host"
        for value in _by_value(node, kernel):
            if not self._known(value):
                return f"'{value.name}' would have to be known before the run, and is computed"
        return True

    def declines(self, transform: str) -> str | None:
        """Declines fusions into operators that are written for numpy."""
        return "XLA fuses on its own" if transform in FUSIONS else None

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns one step for the whole segment; weights are its arguments, uploaded once."""
        jax = importlib.import_module("jax")
        static = self._static(segment)
        bodies = [(node, self.kernel(node)) for node in segment.nodes]

        def traced(shapes: tuple[Shape, ...], *arrays: Any) -> tuple[Any, ...]:
            given = iter([shape.array for shape in shapes])
            rest = iter(arrays)
            values: dict[Any, Any] = {None: None}
            for position, value in enumerate(segment.inputs):
                values[value] = next(given if position in static else rest)
            for node, kernel in bodies:
                self._trace(node, kernel, values)
            return tuple(values[value] for value in segment.outputs)

        compiled = jax.jit(traced, static_argnums=0)

        def call(*inputs: Any) -> tuple[Any, ...]:
            shapes = tuple(Shape(inputs[position]) for position in static)
            arrays = (a for position, a in enumerate(inputs) if position not in static)
            with jax.enable_x64(True):
                return tuple(compiled(shapes, *arrays))

        return [
            Step(
                call,
                segment.inputs,
                segment.outputs,
                segment.nodes,
                multiple=True,
                device=self.device,
                host=static,
            )
        ]

    def _trace(self, node: ir.Node, kernel: Kernel, values: dict[Any, Any]) -> None:
        """Computes a node; on numpy if nothing in it is traced, so that shapes stay known."""
        inputs = [values[value] for value in node.inputs]
        known = all(value is None or isinstance(value, np.ndarray) for value in inputs)
        outputs = self.bound(node, np if known else self.xp)(*inputs)
        results = outputs if kernel.multiple else (outputs,)
        values.update(zip(node.outputs, map(_as_array, results), strict=False))

    def _known(self, value: ir.Value) -> bool:
        """Says whether a value is there before the run, or follows from shapes and such values."""
        node = value.producer()
        if node is None or node.op_type in ("Shape", "Size", "Constant"):
            return True
        return self.supports(node) is True and all(
            self._known(given) for given in node.inputs if given is not None
        )

    def _static(self, segment: Segment) -> tuple[int, ...]:
        """Returns the positions of the inputs that the trace needs by value."""
        inside = set(segment.nodes)
        found: set[ir.Value] = set()
        todo = [v for node in segment.nodes for v in _by_value(node, self.kernel(node))]
        while todo:
            value = todo.pop()
            producer = value.producer()
            if value in found:
                continue
            found.add(value)
            if producer in inside and producer.op_type not in ("Shape", "Size"):
                todo += [given for given in producer.inputs if given is not None]
        return tuple(i for i, value in enumerate(segment.inputs) if value in found)


def _by_value(node: ir.Node, kernel: Kernel) -> list[ir.Value]:
    """Returns the inputs of a node that its kernel takes on the host."""
    assert kernel.host != "all"
    given = (node.inputs[position] for position in kernel.host if position < len(node.inputs))
    return [value for value in given if value is not None]


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic | int | float) else value
