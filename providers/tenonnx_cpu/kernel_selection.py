"""Kernels of the CPU provider's own, chosen for a node when it is compiled.

A specialization looks at one node (its attributes, its constants, what is known of its types) and
returns a callable that computes it, or ``None`` to leave it to the array kernel. That kernel,
``plain``, is handed to it: whatever the fast path does not take goes there at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.graph import array_of, attribute
from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST
from tenonnx.weights.weight import weight_in
from tenonnx_cpu.buffers import F32

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

NDArray: TypeAlias = np.ndarray[Any, Any]
Call: TypeAlias = Callable[..., Any]


class Site(NamedTuple):
    """A node, and where it is about to be compiled.

    Attributes:
        node: The node.
        threads: How many threads its kernel may use.
        narrows: Whether it may round the factors of products to bfloat16.
    """

    node: ir.Node
    threads: int
    narrows: bool = False

    def given(self, *positions: int) -> bool:
        """Return whether any of some inputs is given."""
        inputs = self.node.inputs
        return any(place < len(inputs) and inputs[place] is not None for place in positions)

    def constant(self, position: int) -> NDArray | None:
        """Return an input's value if no run can change it: read-only, aligned, maybe strided.

        Elements narrower than a byte come one per byte; ``packed`` has them as they lie.
        """
        tensor = self._tensor(position)
        return None if tensor is None else on_host(tensor)

    def scalar(self, position: int) -> NDArray | None:
        """Return a constant input that has one element."""
        tensor = self._tensor(position)
        return None if tensor is None or tensor.size != 1 else on_host(tensor)

    def packed(self, position: int) -> NDArray | None:
        """Return a constant input's bytes, flat and in place; ``None`` if it has no such bytes."""
        weight = self.weight(position)
        return weight.packed().array if weight and weight.strides is None else None

    def weight(self, position: int) -> Weight | None:
        """Return a constant input's handle in the weights' registry, if it has one."""
        return weight_in(self._tensor(position))

    def float32(self, position: int) -> NDArray:
        """Return a constant of 16-bit floats as float32, made once; float32 itself is in place."""
        value = self.constant(position)
        assert value is not None, "what has been seen to be constant"
        if value.dtype == F32:
            return value
        return self.derived("float32", (position,), lambda: value.astype(F32))

    def derived(self, name: str, positions: Sequence[int], build: Callable[[], NDArray]) -> NDArray:
        """Return what ``build`` makes of constant inputs, kept by the weights' registry.

        Args:
            name: Says what is made, with every parameter and a version of the algorithm.
            positions: The positions of its sources among the inputs.
            build: Returns it.
        """
        weights = [weight for position in positions if (weight := self.weight(position))]
        if len(weights) < len(positions):
            return build()
        made = weights[0].derive(name, build, *weights[1:])
        return made.on(HOST)  # type: ignore[no-any-return]  # the host's are numpy's

    def dtype(self, position: int) -> np.dtype[Any] | None:
        """Return an input's dtype, if the model says it."""
        value = self.node.inputs[position]
        told = None if value is None else value.dtype
        return told.numpy() if told else None

    def attribute(self, name: str, default: Any) -> Any:
        """Return an attribute's value."""
        return attribute(self.node, name, default)

    def _tensor(self, position: int) -> Any:
        inputs = self.node.inputs
        value = inputs[position] if position < len(inputs) else None
        return value.const_value if value is not None and is_constant(value) else None


def on_host(tensor: Any) -> NDArray:
    """Return a constant as numpy has it: read-only, aligned, maybe strided."""
    if (weight := weight_in(tensor)) is not None:
        return weight.on(HOST)  # type: ignore[no-any-return]  # the host's are numpy's
    return array_of(tensor)


Specialization: TypeAlias = Callable[[Site, Call], Call | None]

# By domain and operator; in force at every version, so one that depends on it must look.
SPECIALIZATIONS: dict[tuple[str, str], Specialization] = {}


def specialize(*names: str, domain: str = "") -> Callable[[Specialization], Specialization]:
    """Decorate the one specialization of operators: ``@specialize("MatMul")``."""

    def decorate(function: Specialization) -> Specialization:
        for name in names:
            known = SPECIALIZATIONS.setdefault((domain, name), function)
            if known is not function:
                raise ValueError(f"{name} has a specialization already, in {known.__module__}")
        return function

    return decorate
