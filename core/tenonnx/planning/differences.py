"""The difference between two runtimes' outputs, and the allowed difference.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference: ``absolute + relative * |reference|``, as in numpy."""

    relative: float
    absolute: float


EXACT: Final = Tolerance(0.0, 0.0)

# By dtype; integers, booleans and strings must be equal.
TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "float64": Tolerance(1e-7, 1e-9),
    "complex128": Tolerance(1e-7, 1e-9),
    "float32": Tolerance(1e-3, 1e-4),
    "complex64": Tolerance(1e-3, 1e-4),
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
}


# A relative and an absolute tolerance; `None` for that of the dtype.
Limits: TypeAlias = tuple[float | None, float | None]


def limits_of(given: Mapping[str, float | tuple[float, float]], name: str, op_type: str) -> Limits:
    """Return the tolerances that are given for a node.

    Args:
        given: The relative one, or both, by a node's name or operator, or a pattern of these as of
            ``fnmatch``. The first that fits counts.
        name: The node's name.
        op_type: Its operator.
    """
    for pattern, allowed in given.items():
        if any(pattern == each or fnmatchcase(each, pattern) for each in (name, op_type)):
            return allowed if isinstance(allowed, tuple) else (allowed, None)
    return None, None


NOTHING_DECLARED: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType({})

# An output's name, dtype, shape and allowed difference.
Kind: TypeAlias = tuple[str, str, tuple[int, ...], Tolerance]


@dataclass(frozen=True)
class Difference:
    """The difference of one output from a reference.

    Attributes:
        name: The output's name.
        dtype: Its type; of a sequence or a map, that of its elements.
        shape: Its shape; of a sequence or a map, the number of its items.
        tolerance: The allowed difference.
        absolute: The greatest difference; ``None`` if it is not a number.
        relative: The greatest difference relative to the reference's element, over elements beyond
            ``absolute``'s tolerance; ``None`` if there are none.
        beyond: How many elements differ by more than the tolerance.
        problem: The reason why the two cannot be compared; empty if they can.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    tolerance: Tolerance
    absolute: float | None = None
    relative: float | None = None
    beyond: int = 0
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the difference is within the tolerance."""
        return not (self.beyond or self.problem)

    def sentence(self, found: Any) -> str:
        """Return for people how an output differs, in itself and by its NaN or infinities."""
        if self.problem:
            return f"{self.name}: {self.problem}"
        parts = [f"{self.name} differs in {self.beyond:,} of {np.size(found):,} elements"]
        if self.absolute is not None:
            parts.append(f"by {self.absolute:.3g} at most")
        if self.relative is not None:
            parts.append(f"({self.relative:.3g} of the expected)")
        bad = np.asarray(found)
        if bad.dtype.kind == "f" and not np.isfinite(bad).all():
            parts.append(f"and has {int((~np.isfinite(bad)).sum()):,} NaN or infinite ones")
        return " ".join(parts)


def differences(
    names: Sequence[str],
    found: Sequence[Any],
    reference: Sequence[Any],
    relative: float | None = None,
    absolute: float | None = None,
    declared: Mapping[str, np.dtype[Any]] = NOTHING_DECLARED,
) -> list[Difference]:
    """Return the difference of each output from a reference's.

    Args:
        names: The outputs' names.
        found: The outputs: arrays, sequences, maps.
        reference: The outputs of another runtime, in the same order.
        relative: The relative tolerance; by default that of the dtype.
        absolute: The absolute tolerance; by default that of the dtype.
        declared: The dtypes of outputs' elements in the model: the numbers in a map are Python's,
            which have no dtype.
    """
    rows = []
    for name, mine, other in zip(names, found, reference, strict=True):
        leaves = list(_leaves("", mine, other, declared.get(name)))
        dtype = str(leaves[0][1].dtype) if leaves else str(declared.get(name, ""))
        allowed = TOLERANCES.get(dtype, EXACT)
        tolerance = Tolerance(
            allowed.relative if relative is None else relative,
            allowed.absolute if absolute is None else absolute,
        )
        nested = isinstance(mine, list | dict)
        shape = (len(mine),) if nested else leaves[0][1].shape
        rows.append(_difference((name, dtype, shape, tolerance), leaves))
    return rows


def range_of(array: NDArray) -> str:
    """Return the least and the greatest number of an array for people; nothing for words."""
    if not array.size or array.dtype.kind in "OSUTc":
        return ""
    wide = array.astype(np.float64)
    return f"{wide.min():.4g} to {wide.max():.4g}"


def largest(rows: Iterable[Difference]) -> float | None:
    """Return the greatest absolute difference; ``None`` if an output has none."""
    found = [row.absolute for row in rows]
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _leaves(
    place: str, a: Any, b: Any, declared: np.dtype[Any] | None
) -> Iterator[tuple[str, NDArray, NDArray]]:
    """Yield an output's arrays with the reference's, and their place: ``.2`` or ``[key]``.

    One without a counterpart is paired with another shape.
    """
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _leaves(f"{place}.{number}", one, other, declared)
    elif isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            yield from _leaves(f"{place}[{key}]", a[key], b[key], declared)
    else:
        yield place, _as_array(a, declared), _as_array(b, declared)


def _as_array(value: Any, declared: np.dtype[Any] | None) -> NDArray:
    """Return a value as an array; a number of Python's has the declared dtype."""
    plain = isinstance(value, bool | int | float | complex)
    return np.asarray(
        value, object if isinstance(value, list | dict) else declared if plain else None
    )


def _difference(kind: Kind, leaves: Sequence[tuple[str, NDArray, NDArray]]) -> Difference:
    """Return the difference of all of an output's arrays."""
    words = any(array.dtype.kind in "OSUT" for _, *pair in leaves for array in pair)
    for place, a, b in leaves:
        said = f"of {kind[0]}{place}, " if place else ""
        if a.shape != b.shape:
            problem = f"{said}the shape is {list(a.shape)}, not {list(b.shape)}"
            return Difference(*kind, problem=problem)
        if a.dtype != b.dtype and not words:
            return Difference(*kind, problem=f"{said}the type is {a.dtype}, not {b.dtype}")
    if words:
        pairs = ((a.astype(object), b.astype(object)) for _, a, b in leaves)
        return Difference(*kind, beyond=sum(int(np.sum(a != b)) for a, b in pairs))
    if not any(a.size for _, a, _ in leaves):
        return Difference(*kind, absolute=0.0)
    a = np.concatenate([mine.ravel() for _, mine, _ in leaves])
    b = np.concatenate([other.ravel() for _, _, other in leaves])
    if a.dtype.kind in "biu":
        # As Python's integers: a difference of two uint64 may fit neither type.
        return _difference_of_numbers(kind, a.astype(object), b.astype(object))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return _difference_of_numbers(kind, a.astype(wide), b.astype(wide))


def _difference_of_numbers(kind: Kind, a: NDArray, b: NDArray) -> Difference:
    """Return the difference of numbers; NaN and a number differ by infinity."""
    *_, tolerance = kind
    with np.errstate(invalid="ignore", over="ignore"):
        same = (a == b) | ((a != a) & (b != b))  # only NaN differs from itself
        apart = np.where(same, 0, np.abs(a - b)).astype(np.float64)
        apart[np.isnan(apart)] = np.inf
        size = np.abs(b).astype(np.float64)
        beyond = ~same & (apart > tolerance.absolute + tolerance.relative * size)
        large = (size > tolerance.absolute) & np.isfinite(size)
        relative = float((apart[large] / size[large]).max()) if large.any() else None
    beyond |= ~np.isfinite(apart)
    return Difference(*kind, float(apart.max()), relative, int(beyond.sum()))
