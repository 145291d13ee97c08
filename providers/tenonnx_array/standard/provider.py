"""The provider: kernels of the operator table see numpy, steps exchange the library's arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.graph import subgraphs
from tenonnx.graph.dtypes import dtype_of
from tenonnx.operators import Namespace
from tenonnx.provider import HOST, Device
from tenonnx_array.dtypes import dtype_of as element_dtype
from tenonnx_array.provider import ArrayDevice, ArrayProvider

if TYPE_CHECKING:  # listing the providers must not import these
    import onnx_ir as ir

    from tenonnx_array.standard.namespace import StandardNamespace


class StandardDevice(ArrayDevice):
    """The device on which the library creates arrays unless it is told another."""

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return the library's array for a numpy array."""
        from tenonnx_array.standard.namespace import dtype_of

        own = dtype_of(self.xp, array.dtype)
        if own is None:
            raise ValueError(f"{self.namespace} has no elements of type {array.dtype.name}")
        if array.dtype.name != "bfloat16":
            return self.xp.asarray(array, dtype=own)
        return self.xp.astype(self.xp.asarray(array.astype(np.float32)), own)

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a numpy array that its reader may write to, for the library's array."""
        if array.dtype != getattr(self.xp, "bfloat16", None):
            return super().download(array)
        return super().download(self.xp.astype(array, self.xp.float32)).astype(element_dtype(16))


class StandardProvider(ArrayProvider):
    """An ``ArrayProvider`` over a library that has the array API standard's names.

    ``overrides`` are written in the library's own terms: their ``xp`` is the library, and arrays
    are its own.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Give the provider a device, unless it has one."""
        if "namespace" in vars(cls) and cls.device is HOST:
            device: Device = StandardDevice(cls.namespace)
            cls.device = device
        super().__init_subclass__(**arguments)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a cached plan, without the library."""
        return {name: value for name, value in super().__getstate__().items() if name != "xp"}

    @property
    def library(self) -> Namespace:
        """The library."""
        return super().xp

    @functools.cached_property
    def xp(self) -> Namespace:
        """The library with numpy's names and dtypes."""
        from tenonnx_array.standard.namespace import StandardNamespace

        return StandardNamespace(self.library, self.device, self.placed())

    def placed(self) -> Mapping[str, Any]:
        """Return keywords with which the library creates arrays where the provider's are."""
        return {}

    def lacks(self, node: ir.Node) -> str | None:
        """Return why the library cannot run a node, such as elements that it does not have."""
        if (reason := super().lacks(node)) is not None:
            return reason
        if any(subgraphs(node)):
            return "it runs no operators with graphs"
        for value in (*node.inputs, *node.outputs):
            element = dtype_of(value)
            if element and element_dtype(element.value) not in self.xp.own:
                return f"{self.namespace} has no elements of type {element.name}"
        return None

    def bound(self, node: ir.Node, xp: Namespace) -> Callable[..., Any]:
        """Return a function of a node's inputs on the library's arrays."""
        if xp is np:
            return super().bound(node, xp)
        kernel = self.kernel(node)
        if self.overrides.find(node.domain, node.op_type, node.version or 1) is kernel:
            return super().bound(node, self.library)
        seen: StandardNamespace = self.xp
        if (direct := seen.elementwise(kernel.call)) is not None:
            return direct
        return functools.partial(_translated, seen, super().bound(node, seen))


def _translated(seen: StandardNamespace, call: Callable[..., Any], *inputs: Any) -> Any:
    return seen.unwrapped(call(*(seen.wrapped(value) for value in inputs)))
