"""Patterns of nodes, matched from the last one backwards, and why they nearly matched.

``op("Mul", "x", op("Sigmoid", "x"))`` is a product of any value and its own sigmoid: strings are
variables, numbers are constants of one element, and both orders of a commutative node are tried.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import onnx_ir as ir

from tenonnx.graph import label
from tenonnx.graph.traits import COMMUTATIVE
from tenonnx_fuse.known import number_of, weight_of

# The relative error of a constant that stands for a number: as far as its type rounds it.
TOLERANCE = {ir.DataType.FLOAT16: 1e-3, ir.DataType.BFLOAT16: 8e-3}


@dataclass
class Match:
    """A match of a pattern, or the part of it that is found so far.

    Attributes:
        nodes: All it matched and by which part, the last one of the graph first.
        values: Values by the names of variables.
        numbers: Constants of one element by the names of variables.
    """

    nodes: dict[ir.Node, Pattern] = field(default_factory=dict)
    values: dict[str, ir.Value] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    _reached: tuple[ir.Node, ...] = ()
    _why: Callable[[], str] = str
    _lacking: dict[str, None] = field(default_factory=dict)
    _place: ir.Value | None = None

    @property
    def last(self) -> ir.Node:
        """The last node of the pattern, whose result all others compute."""
        return next(iter(self.nodes))

    def fail(self, why: Callable[[], str]) -> bool:
        """Remember why the match ended, if none came as far; return ``False``."""
        if len(self.nodes) > len(self._reached):
            self._reached, self._why, self._place = tuple(self.nodes), why, None
        return False

    def lack(self, types: tuple[str, ...], value: ir.Value) -> bool:
        """Remember that a value is of none of some operators, as ``fail`` does."""
        if len(self.nodes) > len(self._reached):
            self._reached, self._place = tuple(self.nodes), value
            self._lacking = dict.fromkeys(types)
        elif value is self._place:
            self._lacking |= dict.fromkeys(types)
        return False

    @property
    def reached(self) -> int:
        """The most nodes that matched."""
        return len(self._reached)

    @property
    def end(self) -> tuple[tuple[ir.Node, ...], str]:
        """The nodes that matched before nothing did, and why that was the end."""
        if self._place is None:
            return self._reached, self._why()
        return self._reached, f"{' or '.join(self._lacking)} is missing at {_maker(self._place)}"

    def any_of(self, attempts: Iterable[Callable[[], bool]]) -> bool:
        """Try one way after another, each from where this stood."""
        # Copied for each attempt: a failed one leaves what it matched before it failed.
        kept = dict(self.nodes), dict(self.values), dict(self.numbers)
        for attempt in attempts:
            if attempt():
                return True
            self.nodes, self.values, self.numbers = (
                dict(kept[0]),
                dict(kept[1]),
                dict(kept[2]),
            )
        return False


class Pattern(ABC):
    """A pattern that values may match."""

    @abstractmethod
    def match(self, value: ir.Value, found: Match) -> bool:
        """Return whether a value matches, and add its nodes to those found."""


Like: TypeAlias = Pattern | str | float


def _pattern(like: Like) -> Pattern:
    if isinstance(like, Pattern):
        return like
    return Named(like, None) if isinstance(like, str) else Number(like)


@dataclass(frozen=True)
class Named(Pattern):
    """The same value wherever the name occurs, of a pattern or any."""

    name: str
    pattern: Pattern | None

    def match(self, value: ir.Value, found: Match) -> bool:
        """Bind the name, or compare with what it is bound to."""
        known = found.values.get(self.name)
        if known is not None:
            there = known.name or "?"
            return known is value or found.fail(lambda: f"'{value.name}' is not '{there}'")
        if self.pattern is not None and not self.pattern.match(value, found):
            return False
        found.values[self.name] = value
        return True


@dataclass(frozen=True)
class Number(Pattern):
    """A constant of one element."""

    expected: float

    def match(self, value: ir.Value, found: Match) -> bool:
        """Compare as exactly as the constant's type allows."""
        actual = number_of(value)
        if actual is None:
            return found.fail(lambda: f"'{value.name}' is not the constant {self.expected:g}")
        assert value.const_value is not None
        allowed = TOLERANCE.get(value.const_value.dtype, 1e-5) * max(abs(self.expected), 1e-30)
        if abs(actual - self.expected) <= allowed:
            return True
        return found.fail(lambda: f"'{value.name}' is {actual:.7g}, not {self.expected:.7g}")


@dataclass(frozen=True)
class AnyNumber(Pattern):
    """Some constant of one element, which is remembered by a name."""

    name: str

    def match(self, value: ir.Value, found: Match) -> bool:
        """Bind the name."""
        actual = number_of(value)
        if actual is None:
            return found.fail(lambda: f"'{value.name}' is not one constant number")
        found.numbers[self.name] = actual
        return True


@dataclass(frozen=True)
class Vector(Pattern):
    """A constant of one axis, which is remembered by a name."""

    name: str

    def match(self, value: ir.Value, found: Match) -> bool:
        """Bind the name."""
        weight = weight_of(value)
        if weight is None or len(weight.shape) != 1:
            return found.fail(lambda: f"'{value.name}' is not a constant vector")
        found.values[self.name] = value
        return True


@dataclass(frozen=True)
class Op(Pattern):
    """A node of one of some operators of ONNX's own domain."""

    types: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    where: Callable[[ir.Node], str | None] | None = None
    more: bool = False

    def match(self, value: ir.Value, found: Match) -> bool:
        """Match the node that makes a value."""
        node = value.producer()
        if node is None or node.op_type not in self.types or node.domain:
            return found.lack(self.types, value)
        return self.match_node(node, found)

    def match_node(self, node: ir.Node, found: Match) -> bool:
        """Match a node, its operands in both orders if it is commutative."""
        if node in found.nodes:
            return found.nodes[node] is self or found.fail(
                lambda: f"{label(node)} is another part of it"
            )
        # A rewrite replaces nodes of one graph: one around it runs at another time, or more often.
        first = next(iter(found.nodes), node)
        if node.graph is not first.graph:
            return found.fail(lambda: f"{label(node)} is in another graph")
        given = [value for value in node.inputs if value is not None]
        if len(given) < len(self.inputs) or (len(given) > len(self.inputs) and not self.more):
            return found.fail(lambda: f"{label(node)} has {len(given)} inputs")
        if self.where is not None and (why := self.where(node)):
            return found.fail(lambda: f"{label(node)} {why}")
        found.nodes[node] = self
        orders = [given]
        if node.op_type in COMMUTATIVE:
            orders.append(given[::-1])
        return found.any_of(partial(self._match, order, found) for order in orders)

    def _match(self, order: list[ir.Value], found: Match) -> bool:
        pairs = zip(self.inputs, order, strict=not self.more)
        return all(pattern.match(value, found) for pattern, value in pairs)


@dataclass(frozen=True)
class Either(Pattern):
    """The first of several patterns that fits."""

    patterns: tuple[Pattern, ...]

    def match(self, value: ir.Value, found: Match) -> bool:
        """Try one after the other."""
        return found.any_of(partial(p.match, value, found) for p in self.patterns)


def op(
    types: str | tuple[str, ...],
    *inputs: Like,
    where: Callable[[ir.Node], str | None] | None = None,
    more: bool = False,
) -> Op:
    """Return the pattern of a node.

    Args:
        types: Its operator, or several that will do.
        inputs: Its inputs, absent optional ones left out.
        where: Says what is wrong with a node of that operator, if anything is.
        more: There may be further inputs, which ``where`` looks at.
    """
    several = (types,) if isinstance(types, str) else types
    return Op(several, tuple(map(_pattern, inputs)), where, more)


def either(*patterns: Like) -> Either:
    """Return the pattern of a value that may be one of several things."""
    return Either(tuple(map(_pattern, patterns)))


def let(name: str, pattern: Pattern) -> Named:
    """Return a pattern whose value must be the same one wherever the name occurs."""
    return Named(name, pattern)


def optional(types: str | tuple[str, ...], pattern: Like) -> Either:
    """Return a pattern behind a node of one input, or not."""
    return either(pattern, op(types, pattern))


def _maker(value: ir.Value) -> str:
    node = value.producer()
    if node is not None:
        return label(node)
    return f"the constant '{value.name}'" if value.is_initializer() else f"the input '{value.name}'"
