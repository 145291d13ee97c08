"""Elementwise operators on any type of elements, one node at a time.

Chains of float32 are programs (``elementwise.elementwise``); this is for all else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.dtypes import dtype_of
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import is_fixed
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.typed import APPLY, DIVIDE, OF_SIZE, code_of, divided, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

BOOL = np.dtype(np.bool_)

# Says which operation a node is; `None` if none.
Choice: TypeAlias = "Callable[[Site], int | None]"


def _if(operation: int, **kept: Any) -> Choice:
    """Return what says which operation a node is that has no other attributes than these."""

    def choose(site: Site) -> int | None:
        fits = all(site.attribute(name, value) == value for name, value in kept.items())
        return operation if fits else None

    return choose


def _shift(site: Site) -> int | None:
    return {"LEFT": o.LEFT, "RIGHT": o.RIGHT}.get(site.attribute("direction", ""))


def _modulus(site: Site) -> int | None:
    return o.FMOD if site.attribute("fmod", 0) else o.MOD


# The operation of each operator.
CHOICES: Mapping[str, int | Choice] = {
    "Abs": o.ABS,
    "Add": o.ADD,
    "And": o.AND,
    "BitShift": _shift,
    "BitwiseAnd": o.AND,
    "BitwiseNot": o.NOT,
    "BitwiseOr": o.OR,
    "BitwiseXor": o.XOR,
    "Ceil": o.CEIL,
    "Clip": o.CLIP,
    "Div": o.DIV,
    "Equal": o.EQUAL,
    "Floor": o.FLOOR,
    "Greater": o.GREATER,
    "GreaterOrEqual": o.GREATER_OR_EQUAL,
    "IsInf": _if(o.IS_INF, detect_negative=1, detect_positive=1),
    "IsNaN": o.IS_NAN,
    "Less": o.LESS,
    "LessOrEqual": o.LESS_OR_EQUAL,
    "Max": o.MAX,
    "Min": o.MIN,
    "Mod": _modulus,
    "Mul": o.MUL,
    "Neg": o.NEG,
    "Not": o.NOT,
    "Or": o.OR,
    "Reciprocal": o.RECIPROCAL,
    "Relu": o.RELU,
    "Round": o.ROUND,
    "Sign": o.SIGN,
    "Sqrt": o.SQRT,
    "Sub": o.SUB,
    "Xor": o.XOR,
}

# The version from which on operators broadcast as numpy does, and have no ``consumed_inputs``.
OLD = 7


def typed(site: Site, plain: Call) -> Call | None:
    """Return what computes a node on the kernel; ``None`` if that does not know the operator."""
    choice = CHOICES.get(site.node.op_type)
    operation = choice(site) if callable(choice) else choice
    if operation is None or (site.node.version or 1) < OLD:
        return None
    APPLY.request()
    if operation in (o.DIV, o.MOD, o.FMOD):
        DIVIDE.request()
    constant = site.constant(1) if len(site.node.inputs) > 1 else None
    return Capturable(TypedCall(operation, constant is not None, site.threads, plain))


@specialize(
    *("And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal"),
    *("Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Mod", "Not"),
    *("Or", "Round", "Sign", "Xor"),
)
def specialize_typed(site: Site, plain: Call) -> Call | None:
    """Take what is no part of chains."""
    return typed(site, plain)


@cacheable
@dataclass(frozen=True, eq=False)
class TypedCall:
    """Applies an operation to operands of one type.

    Attributes:
        operation: One of ``operations``.
        constant: Whether the second operand is.
        threads: How many to use at most.
        plain: Computes the same from arrays of any type.
    """

    operation: int
    constant: bool
    threads: int
    plain: Call

    def __call__(self, *arrays: Any) -> Any:
        """Return a launch, or the result."""
        operation, dtype = self.operation, arrays[0].dtype
        count = 1 if operation < o.ADD else 2 if operation < o.WHERE else 3
        element = code_of(dtype)
        same = all(x is not None and x.dtype == dtype for x in arrays)
        if element is None or not same:
            return self.plain(*arrays)
        if len(arrays) == 1 < count and operation in (o.MAX, o.MIN):
            operation = element = OF_SIZE[dtype.itemsize]
        elif len(arrays) != count:
            return self.plain(*arrays)
        if not o.is_known(operation, element):
            return self.plain(*arrays)
        divides = operation in (o.DIV, o.MOD, o.FMOD) and element in o.INTEGERS
        known = divides and (self.constant or is_fixed(arrays[1]))
        if (known and not np.all(arrays[1])) or (divides and not known and DIVIDE.run is None):
            return self.plain(*arrays)  # which refuses zeros
        result = BOOL if operation in o.TO_BOOL else dtype
        made = launch(operation, element, arrays, result, self.threads)
        if made is None:
            return self.plain(*arrays)
        return divided(made, self.plain) if divides and not known else made


@specialize("Where")
def specialize_where(site: Site, plain: Call) -> Call | None:
    """Take elements of 1 to 8 bytes, whatever they are."""
    APPLY.request()
    return Capturable(WhereCall(site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class WhereCall:
    """The elements of one array or of another, by a condition.

    Attributes:
        threads: How many to use at most.
        plain: Does the same for elements that are objects.
    """

    threads: int
    plain: Call

    def __call__(self, kept: NDArray, x: NDArray, y: NDArray) -> Any:
        """Return a launch, or the result."""
        element = None if x.dtype.hasobject else OF_SIZE.get(x.dtype.itemsize)
        if element is None or kept.dtype != BOOL or x.dtype != y.dtype:
            return self.plain(kept, x, y)
        made = launch(o.WHERE, element, (kept, x, y), x.dtype, self.threads)
        return self.plain(kept, x, y) if made is None else made


@specialize("Cast")
def specialize_cast(site: Site, plain: Call) -> Call | None:
    """Take numbers, but for floats of 8 bits."""
    to = site.attribute("to", None)
    if not isinstance(to, int) or code_of(dtype_of(to)) is None:
        return None
    APPLY.request()
    return Capturable(CastCall(dtype_of(to), site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class CastCall:
    """Converts numbers.

    Attributes:
        dtype: To what.
        threads: How many to use at most.
        plain: Converts whatever there is.
    """

    dtype: np.dtype[Any]
    threads: int
    plain: Call

    def __call__(self, x: NDArray) -> Any:
        """Return a launch, or the result."""
        source, target = code_of(x.dtype), code_of(self.dtype)
        if source is None or target is None:
            return self.plain(x)
        if source == target:
            source = target = OF_SIZE[x.itemsize]
        if not o.is_known(target, source):
            return self.plain(x)
        made = launch(target, source, (x,), self.dtype, self.threads)
        return self.plain(x) if made is None else made
