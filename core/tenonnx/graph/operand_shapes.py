"""The shapes that an operator's operands must have, in one line beside its signature.

For example::

    X: N C ...; scale B: C; W: M C/group ...; lengths: | N if layout; axis < len(X)

Declarations are parts between semicolons, each one of

- ``operands: shape | shape``, the alternatives of operands by the names of their parameters, and
  where they hold: ``if expression``;
- ``name = expression``, a size that later parts use;
- any other expression, a condition.

A shape is a list of sizes. A *name* stands for one size wherever it occurs; an attribute's name,
for the attribute. ``...`` is any number of axes, ``*expression`` are the sizes of a tuple. Anything
else is Python without spaces over names, attributes and operands, of which each is its shape, or
``None`` if it is absent: ``C/group`` divides without a rest, ``ceil(K/block_size)`` counts blocks,
``1|C`` is a choice.

The checks take sizes that are not known yet as undecided. What they decide when a model is loaded
is not asked again; the rest is decided when a step sees shapes for the first time.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

from tenonnx.by_name import cacheable

# Sizes; `None` for one that is not known.
Shape: TypeAlias = "tuple[int | None, ...]"


def broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether a shape is another one once it is broadcast to it."""
    sides = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(own in (1, size) for own, size in sides)


# The names that expressions may call; no other of Python's: an operand may be called input.
EXPRESSION_NAMES = {
    "__builtins__": {each.__name__: each for each in (all, len, sorted, tuple, zip)},
    "broadcasts": broadcasts,
    "ceil": math.ceil,
    "prod": math.prod,
}

OPERAND_DECLARATION = re.compile(r"([A-Za-z_][\w ]*):(.*)", re.DOTALL)
VALUE = re.compile(r"(\w+) = (.*)", re.DOTALL)
ALTERNATIVE = re.compile(r"(?<!\S)\|(?!\S)")

# A size that is compared with nothing.
ANY = object()


class _Open:
    """A size that is not known: nothing can be computed of it."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("the size is not known")

    __hash__ = None  # type: ignore[assignment]  # as of anything that compares otherwise


UNKNOWN_SIZE = _Open()

# Any number of axes.
MORE = "..."

# Errors of an expression in which something is not known, or in which a kernel refuses more.
UNDECIDED = (NameError, TypeError, IndexError, ZeroDivisionError)


class Expression(NamedTuple):
    """One expression of a declaration.

    Attributes:
        text: As it is declared.
        code: It, compiled.
        symbol: Whether it is a name alone.
    """

    text: str
    code: CodeType
    symbol: bool

    def value(self, known: dict[str, Any]) -> Any:
        """Return the value; ``None`` while something is not known that it depends on."""
        if self.symbol:
            found = known.get(self.text)
        else:
            try:
                found = eval(self.code, known)
            except UNDECIDED:
                return None
        return None if found is UNKNOWN_SIZE else found


class Operand(NamedTuple):
    """The alternatives of an operand's shape, of which each is a list of sizes.

    Attributes:
        name: The parameter's.
        text: As it is declared.
        shapes: The alternatives.
        where: The condition of which it depends whether they hold, if there is one.
    """

    name: str
    text: str
    shapes: tuple[tuple[Expression, ...], ...]
    where: Expression | None

    @property
    def names(self) -> set[str]:
        """All names in it."""
        return {name for sizes in self.shapes for size in sizes for name in size.code.co_names}


Axes: TypeAlias = "tuple[int, tuple[tuple[int, str], ...]]"


class Declaration(NamedTuple):
    """A declaration, parsed.

    Attributes:
        operands: In order.
        values: Sizes that are computed, by name.
        conditions: What must be true besides.
        shared: Names that occur more than once: the sizes of others may be any.
        names: All names in it.
        axes: The least number of axes of an operand, by its name, and the axes whose sizes decide
            beside their number, each with the attribute of which that depends, or ``""``; it lacks
            operands of which all decide.
    """

    operands: tuple[Operand, ...]
    values: Mapping[str, Expression]
    conditions: tuple[Expression, ...]
    shared: frozenset[str]
    names: frozenset[str]
    axes: Mapping[str, Axes]


@functools.cache
def parsed(text: str) -> Declaration:
    """Return a declaration.

    Raises:
        SyntaxError: An expression is none of Python's.
    """
    operands: list[Operand] = []
    values: dict[str, Expression] = {}
    conditions: list[Expression] = []
    for part in filter(None, map(str.strip, text.split(";"))):
        if match := OPERAND_DECLARATION.fullmatch(part):
            shape, _, where = " ".join(match[2].split()).partition(" if ")
            alternatives = ALTERNATIVE.split(shape)
            shapes = tuple(tuple(map(_expression, one.split())) for one in alternatives)
            about = shape, shapes, _expression(where) if where else None
            operands += (Operand(name, *about) for name in match[1].split())
        elif match := VALUE.fullmatch(part):
            values[match[1]] = _expression(match[2])
        else:
            conditions.append(_expression(part))
    sizes = [size for operand in operands for each in operand.shapes for size in each]
    wheres = [operand.where for operand in operands if operand.where]
    every = (*sizes, *values.values(), *conditions, *wheres)
    names = Counter(name for expression in every for name in expression.code.co_names)
    shared = frozenset(name for name, count in names.items() if count > 1)
    texts = " ; ".join(expression.text for expression in every)
    declared = Counter(operand.name for operand in operands)
    axes = {
        operand.name: axes
        for operand in operands
        if (axes := _axes_of(operand, shared)) is not None
        and declared[operand.name] == 1
        and not re.search(rf"(?<!len\()\b{operand.name}\b", texts)
    }
    return Declaration(tuple(operands), values, tuple(conditions), shared, frozenset(names), axes)


def _axes_of(operand: Operand, shared: frozenset[str]) -> Axes | None:
    """Return the least number of axes, and those whose sizes are compared.

    ``None`` if these are not the same for all shapes.
    """
    if len(operand.shapes) != 1:
        return None
    found, behind = [], 0
    for axis, size in enumerate(sizes := operand.shapes[0]):
        if size.text.startswith((MORE, "*")):
            if behind or size.text != MORE:
                return None
            behind = len(sizes)
        else:
            is_any = size.symbol and size.text not in shared
            found.append((axis - behind, size.text if is_any else ""))
    return len(sizes) - (behind > 0), tuple(found)


def _expression(text: str) -> Expression:
    if re.search(r"\.\s*[^\W\d]|[\\#]", text):  # attributes reach more than may be called
        raise SyntaxError(f"a declaration has no attributes: {text}")
    code = f"({text.replace('|', ',')},)" if "|" in text else text.removeprefix("*")
    return Expression(text, compile(code, f"<shape {text}>", "eval"), text.isidentifier())


# For each operand, a number of axes and those that decide of shapes with as many at least.
Decisive: TypeAlias = "Sequence[tuple[float, Sequence[int]]]"


@cacheable
class Requirement(NamedTuple):
    """A declaration for one node.

    Attributes:
        text: The declaration.
        operands: The names of the node's inputs in the declaration; ``None`` for absent ones.
        values: Their names in the model, for messages.
        attributes: What else the declaration names: the node's attributes, and ``None`` for
            operands that are absent.
    """

    text: str
    operands: tuple[str | None, ...]
    values: tuple[str | None, ...]
    attributes: Mapping[str, Any]

    def decisive(self) -> Decisive:
        """Return the axes whose sizes decide whether shapes fit."""
        axes, known = parsed(self.text).axes, self.attributes
        found = [axes.get(name or "", (math.inf, ())) for name in self.operands]
        return [(least, [n for n, x in each if not x or x in known]) for least, each in found]

    def decide(self, shapes: Sequence[Shape | None]) -> bool:
        """Return whether it is known that shapes fit: ``False`` if some size leaves it open.

        Args:
            shapes: Of the node's inputs; ``None`` for one of an unknown number of axes.

        Raises:
            ValueError: They do not. The message has the operand, its shape and the declared one.
        """
        declared = parsed(self.text)
        check = _Check(declared, dict(zip(self.operands, shapes, strict=False)), self)
        check.bind()
        misfit, is_open = check.misfit()
        if misfit is not None:
            raise ValueError(misfit)
        return not is_open


class _Check:
    """A comparison of shapes with a declaration.

    Args:
        declared: The declaration.
        shapes: By operand; ``None`` for one that is not known.
        of: What is checked.
    """

    def __init__(
        self, declared: Declaration, shapes: Mapping[str | None, Shape | None], of: Requirement
    ) -> None:
        self._declared, self._shapes, self._of = declared, shapes, of
        self._operands = [each for each in declared.operands if each.name in shapes]
        known = {name: _opened(shape) for name, shape in shapes.items() if shape is not None}
        self._known: dict[Any, Any] = {**EXPRESSION_NAMES, **known, **of.attributes}

    def bind(self) -> None:
        """Give names the sizes that stand where they are first declared."""
        held = {o: o.where.value(self._known) if o.where else True for o in self._operands}
        self._open = None in held.values()
        self._operands = [operand for operand, holds in held.items() if holds]
        for operand in self._operands:
            shape = self._shapes[operand.name]
            if len(operand.shapes) > 1 or shape is None:
                continue
            for expression, size in _aligned(operand.shapes[0], shape) or ():
                is_new = expression.symbol and self._known.get(expression.text) is None
                if is_new and size is not None:
                    self._known[expression.text] = size
        for name, expression in self._declared.values.items():
            if (value := expression.value(self._known)) is not None:
                self._known[name] = value

    def misfit(self) -> tuple[str | None, bool]:
        """Return what does not fit, if anything, and whether some of it is left open."""
        is_open = self._open
        for operand in self._operands:
            fits = [self._fits(shape, self._shapes[operand.name]) for shape in operand.shapes]
            if not any(fit is not False for fit in fits):
                return self._said_of(operand), False
            is_open |= True not in fits
        for condition in self._declared.conditions:
            holds = condition.value(self._known)
            if holds is not None and not holds:
                return f"expected {condition.text}{self._among({*condition.code.co_names})}", False
            is_open |= holds is None
        return None, is_open

    def _fits(self, sizes: Sequence[Expression], shape: Shape | None) -> bool | None:
        """Return whether a shape is as declared; ``None`` if a size is not known."""
        row = [self._expected_sizes(each) for each in sizes]
        if shape is None or None in row:
            return None
        pairs = _aligned([size for some in row for size in some or ()], shape)
        if pairs is None:
            return False
        decided: bool | None = True
        for wanted, size in pairs:
            if wanted is ANY:
                continue
            if wanted is None or size is None:
                decided = None
            elif not isinstance(wanted, tuple):
                if size != wanted:
                    return False
            elif all(size != choice for choice in wanted if choice is not UNKNOWN_SIZE):
                if all(choice is not UNKNOWN_SIZE for choice in wanted):
                    return False
                decided = None
        return decided

    def _expected_sizes(self, size: Expression) -> Sequence[Any] | None:
        """Return the sizes that an expression stands for; ``None`` if their number is unknown."""
        if size.text.startswith("*"):
            several = size.value(self._known)
            return None if several is None else [None if x is UNKNOWN_SIZE else x for x in several]
        is_any = size.symbol and size.text not in self._declared.shared
        value = size.value(self._known)
        return [ANY if is_any and value is None else value]

    def _said_of(self, operand: Operand) -> str:
        shape = _shape_text(self._shapes[operand.name] or ())
        alternatives = " or ".join(f"[{' '.join(e.text for e in s)}]" for s in operand.shapes)
        label = self._label(operand.name)
        among = self._among(operand.names, operand.name)
        return f"{label} has the shape {shape}, expected {alternatives}{among}"

    def _label(self, name: str) -> str:
        value = self._of.values[self._of.operands.index(name)]
        return f"{name} {value!r}" if value and value != name else name

    def _among(self, names: Set[str], but: str = "") -> str:
        """Return the values of names, and a shape that they come from."""
        others = (o.name for o in self._operands if names & o.names and o.name not in (*names, but))
        source = next((name for name in others if self._shapes[name] is not None), "")
        found = [
            f"{name} = {_shape_text(value) if isinstance(value, tuple) else value}"
            for name in (*sorted(names - {but} - EXPRESSION_NAMES.keys()), source)
            if (value := self._known.get(name)) is not None and value is not UNKNOWN_SIZE
        ]
        return f", where {', '.join(found)}" if found else ""


def _opened(shape: Shape) -> tuple[Any, ...]:
    """Return a shape as expressions see it."""
    return (
        tuple(UNKNOWN_SIZE if size is None else size for size in shape) if None in shape else shape
    )


def _shape_text(shape: Sequence[Any]) -> str:
    sizes = ("?" if size is UNKNOWN_SIZE or size is None else str(size) for size in shape)
    return f"[{', '.join(sizes)}]"


def _aligned(sizes: Sequence[Any], shape: Shape) -> list[tuple[Any, int | None]] | None:
    """Return which size stands where, but for ``...``; ``None`` if there are too many axes."""
    places = [place for place, size in enumerate(sizes) if _is_any_number(size)]
    if not places:
        return list(zip(sizes, shape, strict=True)) if len(sizes) == len(shape) else None
    ahead, behind = places[0], len(sizes) - places[0] - 1
    if len(shape) < ahead + behind:
        return None
    rest = zip(sizes[ahead + 1 :], shape[len(shape) - behind :], strict=True)
    return [*zip(sizes[:ahead], shape[:ahead], strict=True), *rest]


def _is_any_number(size: Any) -> bool:
    return size is ... or (isinstance(size, Expression) and size.text.startswith((MORE, "*")))
