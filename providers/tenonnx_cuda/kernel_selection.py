"""Kernels of the CUDA provider's own, chosen for a node when it is compiled.

A choice looks at a node and returns a call, or ``None`` to leave it to the array kernel. That one,
``plain``, is handed to it: what the call does not take at run time goes there.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tenonnx.graph import attribute as attribute
from tenonnx.operators import Array
from tenonnx.planning.lower import weight_of
from tenonnx.weights.tensors import WeightTensor
from tenonnx_cuda.options import CudaOptions
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import SOURCE_TYPES, Kernel, kernel

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

Call: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Target:
    """The device that a call is compiled for.

    Attributes:
        platform: The device.
        options: The session's.
    """

    platform: Platform
    options: CudaOptions

    @property
    def xp(self) -> Any:
        """The namespace of the device's arrays."""
        return self.platform.xp

    @property
    def tf32(self) -> bool:
        """Whether float32 factors may be rounded to 10 bits."""
        return self.options.use_tf32

    @property
    def has_tensor_cores(self) -> bool:
        """Whether the device has the instructions that ``mma.cuh`` uses."""
        return self.platform.capability >= (8, 0)

    def element(self, array: Array) -> str:
        """Return the sources' name of an array's element type."""
        return SOURCE_TYPES[array.dtype]

    def kernel(self, file: str, name: str, **macros: Any) -> Kernel:
        """Return a kernel of the sources."""
        return kernel(self.platform, file, name, **macros)


@dataclass(frozen=True)
class Site:
    """A node, and the device that it is compiled for; a call has only the device.

    Attributes:
        node: The node.
        target: The device.
    """

    node: ir.Node
    target: Target

    @property
    def version(self) -> int:
        """The opset version that the node is written in."""
        return self.node.version or 1

    @property
    def has_static_inputs(self) -> bool:
        """Whether the model declares all lengths of the node's inputs."""
        values = [value for value in self.node.inputs if value is not None]
        return bool(values) and all(v.shape is not None and v.shape.is_static() for v in values)

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        return attribute(self.node, name, default)

    def weight(self, position: int) -> Weight | None:
        """Return a constant input's handle in the weights' registry, if it has one."""
        inputs = self.node.inputs
        return weight_of(inputs[position]) if position < len(inputs) else None


@dataclass(frozen=True)
class Instead:
    """A call that takes other constants than the node has.

    Attributes:
        call: The call.
        constants: What it takes, by the positions of inputs.
    """

    call: Call
    constants: Mapping[int, Weight]

    def inputs(self, node: ir.Node) -> tuple[ir.Value | None, ...]:
        """Return the inputs of a node, with these constants in them."""
        inputs = list(node.inputs)
        for position, weight in self.constants.items():
            inputs[position] = constant(weight)
        return tuple(inputs)


Choice: TypeAlias = Callable[[Site, Call], Call | Instead | None]

# The modules of choices and fusions, which register themselves.
SELECTION_MODULES: Final = (
    *("attention.attend", "attention.group_query", "attention.rotary", "attention.rotary_fusion"),
    *("data_movement.concat", "data_movement.scatter", "elementwise.chains"),
    *("conv.channel_norms", "conv.convolve", "conv.elementwise_layout", "conv.pooling"),
    *("conv.resizing", "matmul.linear", "matmul.matmul", "norm.residual", "norm.rows"),
    "quantized.nbits",
)

_choices: dict[tuple[str, str], Choice] = {}


def choose(*names: str, domain: str = "") -> Callable[[Choice], Choice]:
    """Decorate a choice: ``@choose("Softmax")``."""

    def decorate(function: Choice) -> Choice:
        for name in names:
            _choices[domain, name] = function
        return function

    return decorate


@functools.cache
def choices() -> Mapping[tuple[str, str], Choice]:
    """Return all choices by domain and operator, and bring fusions with them.

    They are in force at every version, so one that depends on it must look.
    """
    for module in SELECTION_MODULES:
        importlib.import_module(f"tenonnx_cuda.{module}")
    return _choices


def constant(weight: Weight) -> ir.Value:
    """Return a value that is a weight in every run."""
    import onnx_ir as ir

    value = ir.Value(name=weight.key, const_value=WeightTensor(weight))
    # Lowering takes a value for a constant only if it is an initializer of a graph.
    ir.Graph([], [], nodes=[], initializers=[value])
    return value


def same_element(first: Array, *others: Array | None) -> str | None:
    """Return the sources' name of the element type that all arrays have, if they have it."""
    name = SOURCE_TYPES.get(first.dtype)
    same = all(other is None or other.dtype == first.dtype for other in others)
    return name if same else None
