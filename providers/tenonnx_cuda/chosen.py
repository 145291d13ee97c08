"""Kernels of the CUDA provider's own, chosen for a node when it is compiled.

A choice looks at a node and returns a call, or ``None`` to leave it to the array kernel. That one,
``plain``, is handed to it: what the call does not take at run time goes there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tenonnx.operators import Array
from tenonnx_cuda.platform import Launch, Platform
from tenonnx_cuda.sources import ELEMENTS, kernel

if TYPE_CHECKING:
    import onnx_ir as ir

Call: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Site:
    """A node, and the device that it is compiled for."""

    node: ir.Node
    platform: Platform

    @property
    def xp(self) -> Any:
        """The namespace of the device's arrays."""
        return self.platform.xp

    @property
    def version(self) -> int:
        """The opset version that the node is written in."""
        return self.node.version or 1

    def attribute(self, name: str, default: Any) -> Any:
        """Returns an attribute's value."""
        attribute = self.node.attributes.get(name)
        return default if attribute is None else attribute.value

    def kernel(self, file: str, name: str, **macros: Any) -> Launch:
        """Returns a kernel of the sources."""
        return kernel(self.platform, file, name, **macros)


Choice: TypeAlias = Callable[[Site, Call], Call | None]

CHOICES: dict[tuple[str, str], Choice] = {}
"""By domain and operator; in force at every version, so one that depends on it must look."""


def choose(*names: str, domain: str = "") -> Callable[[Choice], Choice]:
    """Decorates a choice: ``@choose("Softmax")``."""

    def decorate(function: Choice) -> Choice:
        for name in names:
            CHOICES[domain, name] = function
        return function

    return decorate


def same_element(first: Array, *others: Array | None) -> str | None:
    """Returns the sources' name of the element type that all arrays have, if they have it."""
    name = ELEMENTS.get(first.dtype)
    same = all(other is None or other.dtype == first.dtype for other in others)
    return name if same else None
