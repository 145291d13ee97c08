"""Parts of an anchor: one walk along values without other readers.

An anchor is a node whose kernel can do more to its result before that leaves the cache: a product,
a convolution, a normalization. Its provider declares the epilogue as parts, in order: a bias, what
is added element by element, an activation, a quantizer. Nodes that an operator is written as are
parts, too, all of them needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tenonnx.graph import array_of, attribute
from tenonnx.planning.fusion import Scope, beside
from tenonnx.planning.lower import is_constant

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.graph.near_misses import NearMisses

# The opset version from which on arithmetic broadcasts as numpy does.
BROADCASTING_OPSET = 7

# The opset version from which on bounds of a Clip are inputs.
CLIP_BY_INPUTS = 11

S = TypeVar("S", bound=Scope)


@dataclass(frozen=True)
class Part:
    """A node that an anchor's kernel takes with it.

    Attributes:
        name: Its role in the kernel.
        operators: Its operators in a model; one of another domain than ONNX's as ``domain::name``.
        read: Returns the kernel's data for the node, or a string with the reason why it does not
            fit.
        since: The opset version from which on ONNX's operators are meant.
        many: There may be several in a row.
        again: It may read the value more than once.
        needed: Without it nothing is worth taking.
    """

    name: str
    operators: tuple[str, ...]
    read: Callable[[ir.Node, Walk[Any]], Any]
    since: int = 1
    many: bool = False
    again: bool = False
    needed: bool = False

    def is_meant(self, node: ir.Node) -> bool:
        """Return whether a node may be this part, by its operator."""
        if node.domain:
            return f"{node.domain}::{node.op_type}" in self.operators
        return node.op_type in self.operators and (node.version or 1) >= self.since


class Walk(Generic[S]):
    """The way from an anchor along the nodes of its epilogue.

    Args:
        anchor: Where it begins.
        scope: Where nodes may be taken from.
        about: The anchor's data for its parts.

    Attributes:
        nodes: Those taken, the anchor first.
        found: The data of their parts, by name; a list for a part that may occur many times.
        is_whole: Whether all parts that are needed were found.
    """

    def __init__(self, anchor: ir.Node, scope: S, about: Any = None) -> None:
        self.scope = scope
        self.about = about
        self.nodes: tuple[ir.Node, ...] = (anchor,)
        self.found: dict[str, Any] = {}
        self.is_whole = True

    @property
    def value(self) -> ir.Value:
        """The value that the last of the nodes makes."""
        return self.nodes[-1].outputs[0]

    def beside(self, node: ir.Node) -> int:
        """Return the position of the operand that a node of two has beside the value."""
        return beside(node, self.value)

    def next(self, part: Part) -> ir.Node | None:
        """Return the node that alone reads the value, as a part may."""
        return (self.scope.consumer if part.again else self.scope.reader)(self.value)

    def takes(self, part: Part) -> bool:
        """Go on by a node, if it is a part that the kernel takes."""
        node = self.next(part)
        if node is None or not part.is_meant(node):
            return False
        read = part.read(node, self)
        if isinstance(read, str):
            return False
        if part.many:
            self.found.setdefault(part.name, []).append(read)
        else:
            self.found[part.name] = read
        self.nodes += (node,)
        return True


def other(node: ir.Node, walk: Walk[Any]) -> ir.Value | str:
    """Read the operand that a node of two has beside the value."""
    return node.inputs[walk.beside(node)] or "it has one operand"


def clip_bounds(node: ir.Node) -> tuple[float, float] | None:
    """Return a Clip's bounds, infinite where it has none; ``None`` if they are not known.

    If its least number is above the greatest, both are the greatest, which is then every result.
    """
    if (node.version or 1) < CLIP_BY_INPUTS:
        high = attribute(node, "max", math.inf)
        return min(attribute(node, "min", -math.inf), high), high
    bounds = [-math.inf, math.inf]
    for place, value in enumerate(node.inputs[1:3]):
        if value is None:
            continue
        tensor = value.const_value if is_constant(value) else None
        if tensor is None or tensor.size != 1 or math.isnan(bound := array_of(tensor).item()):
            return None
        bounds[place] = float(bound)
    return min(bounds), bounds[1]


def follow(anchor: ir.Node, scope: S, *parts: Part, about: Any = None) -> Walk[S]:
    """Return the longest epilogue of an anchor.

    Args:
        anchor: Where it begins.
        scope: Where nodes may be taken from.
        parts: The parts of the anchor's kernel, in order.
        about: The anchor's data for its parts.
    """
    walk, first = Walk(anchor, scope, about), 0
    for place, part in enumerate(parts):
        while walk.takes(part):
            first = place if part.many else place + 1
            if not part.many:
                break
        if part.needed and part.name not in walk.found:
            parts, walk.is_whole = parts[: place + 1], False
            break
    if scope.misses is not None:
        _note_near_miss(walk, parts[first:], scope.misses)
    return walk


def _note_near_miss(walk: Walk[Any], missed: Sequence[Part], misses: NearMisses) -> None:
    """Note why a walk ends where it does, if a node behind its end is nearly a part."""
    if not walk.is_whole and len(walk.nodes) == 1:
        missed = missed[-1:]
    anchor = walk.nodes[0]
    for node in dict.fromkeys(use.node for use in walk.value.uses()):
        if nearly := [part for part in missed if part.is_meant(node)]:
            why = [
                part.read(node, walk) if walk.next(part) else walk.scope.hindrance(walk.value)
                for part in nearly
            ]
            name = f"{anchor.op_type} with its {nearly[-1].name}"
            there = f"{node.op_type} '{node.outputs[0].name}'"
            misses.add(name, anchor, f"{there}: {' and '.join(dict.fromkeys(why))}")
            break
