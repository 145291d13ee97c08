"""An execution provider over any array namespace: subclass it and name the namespace.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tenonnx.graph.shape_checks import checked
from tenonnx.operators import Kernel, Namespace, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.process import interruption
from tenonnx.provider import HOST, Device, Provider, Segment, Step

if TYPE_CHECKING:
    import onnx_ir as ir


class ArrayDevice:
    """The memory of a namespace's arrays, unless it is the process's own as numpy has it.

    Args:
        namespace: The module's name; it is imported when the first array is moved.
        id: Two devices of one ``id`` are the same memory.
    """

    def __init__(self, namespace: str, id: str | None = None) -> None:  # noqa: A002 - Device's name
        self.namespace = namespace
        self.id = id or namespace

    @functools.cached_property
    def xp(self) -> Namespace:
        """The namespace."""
        return importlib.import_module(self.namespace)

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the namespace's array for a numpy array."""
        return self.xp.asarray(array)

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a numpy array that its reader may write to, for a namespace's array."""
        found = np.asarray(array)
        return found if found.flags.writeable else found.copy()

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Join arrays of one shape along a new axis."""
        return self.xp.stack(arrays, axis=axis)


class ArrayProvider(Provider):
    """A provider that runs nodes one by one by the operator table, over numpy's names.

    A subclass sets ``name`` and ``namespace``, and what its library does not have.
    """

    needs_types: ClassVar[bool] = False

    namespace: ClassVar[str] = "numpy"
    """The module that has numpy's names; it is imported when the first node is compiled."""

    install: ClassVar[str] = ""
    """The argument of ``pip install`` for a missing module; its name if empty."""

    libraries: ClassVar[tuple[str, ...]] = ()
    """Modules that have to be installed; the namespace's if empty."""

    overrides: ClassVar[OperatorTable] = OperatorTable()
    """Kernels of this provider's own, in place of the table's at the same version."""

    complete: ClassVar[bool] = False
    """Whether ``overrides`` are all the kernels: the table's and those that plug-ins add, which
    are written in numpy's names, are not to be used."""

    without: ClassVar[Mapping[str, str]] = {}
    """Operators of the table that do not run on this namespace, each with the reason."""

    elements: ClassVar[frozenset[str] | None] = None
    """Names of the ONNX element types that the library has, as ``"FLOAT"``; ``None`` for all."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Give a provider over another namespace than numpy a device, unless it has one."""
        super().__init_subclass__(**arguments)
        if "namespace" in vars(cls) and cls.namespace != "numpy" and cls.device is HOST:
            device: Device = ArrayDevice(cls.namespace)
            cls.device = device

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        super().__init__(options, operators, session_options)

    @functools.cached_property
    def table(self) -> OperatorTable:
        """Kernels of the table, of the provider's own and of plug-ins."""
        table, more = _table(type(self)), self.operators
        return OperatorTable().update(table, more) if more and not self.complete else table

    @classmethod
    def check(cls) -> str | None:
        """Return which library is not installed, without importing any."""
        for library in cls.libraries or (cls.namespace.partition(".")[0],):
            if find_spec(library) is None:
                return f"{library} is not installed: pip install {cls.install or library}"
        return None

    @property
    def xp(self) -> Namespace:
        """The array namespace."""
        return importlib.import_module(self.namespace)

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node whose operator, attributes and element types there are."""
        if self.domains is not None and node.domain not in self.domains:
            return f"it has no operators of {node.domain}"
        if (kernel := self.kernel_of(node)) is None:
            return f"no kernel for {node.domain or 'ai.onnx'}::{node.op_type}-{node.version}"
        if not node.domain and node.op_type in self.without:
            return self.without[node.op_type]
        if unknown := [name for name in node.attributes.data if name not in kernel.attributes]:
            return f"{kernel} has no attribute {', '.join(sorted(unknown))}"
        if len(node.outputs) > 1 and not kernel.multiple:
            return f"{kernel} has one output, the node names {len(node.outputs)}"
        return kernel.misfit(node.inputs) or self.lacks(node) or True

    def kernel_of(self, node: ir.Node) -> Kernel | None:
        """Return the table's kernel of a node's operator."""
        return self.table.find(node.domain, node.op_type, node.version or 1)

    def lacks(self, node: ir.Node) -> str | None:
        """Return why the library cannot run a node whose kernel there is; ``None`` if it can."""
        if self.elements is not None:
            from tenonnx.graph.dtypes import dtype_of

            for value in (*node.inputs, *node.outputs):
                element = dtype_of(value)
                if element is not None and element.name not in self.elements:
                    return f"no elements of type {element.name}"
        return None

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return a step per node."""
        return [self._step(node) for node in segment.nodes]

    def kernel(self, node: ir.Node) -> Kernel:
        """Return the kernel of a node that the provider supports."""
        kernel = self.kernel_of(node)
        assert kernel is not None, "the node was placed here because the table has its operator"
        return kernel

    def bound(self, node: ir.Node, xp: Namespace) -> Callable[..., Any]:
        """Return a function of a node's inputs on the arrays of ``xp``.

        Raises:
            InvalidArgument: The node has an attribute that its operator does not, or lacks one.
        """
        from tenonnx import graph

        return self.kernel(node).bind(xp, graph.python_attributes(node), len(node.outputs))

    def _step(self, node: ir.Node) -> Step:
        step = self._unchecked(node)
        return step.called(checked(step.call, (node,), node.inputs, self.kernel_of))

    def _unchecked(self, node: ir.Node) -> Step:
        from tenonnx import graph

        interruption.check()
        kernel = self.kernel(node)
        inputs = list(node.inputs)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return Step(
            call=self.bound(node, self._namespace(kernel)),
            inputs=tuple(inputs),
            outputs=tuple(node.outputs),
            nodes=(node,),
            multiple=kernel.multiple,
            device=self.device,
            host=kernel.host,
            host_output=kernel.host_output,
            bodies=tuple(name for name, _ in graph.subgraphs(node)),
        )

    def _namespace(self, kernel: Kernel) -> Namespace:
        return np if kernel.host == "all" else self.xp


@functools.cache
def _table(provider: type[ArrayProvider]) -> OperatorTable:
    if provider.complete:
        return provider.overrides
    from tenonnx_array import TABLE

    return OperatorTable().update(TABLE, provider.overrides)
