"""The difference between two runtimes' outputs, and the allowed difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Tolerance:
    """The allowed difference: ``absolute + relative * |reference|``, as in numpy."""

    relative: float
    absolute: float


EXACT: Final = Tolerance(0.0, 0.0)

TOLERANCES: Final[Mapping[str, Tolerance]] = {
    "float64": Tolerance(1e-7, 1e-9),
    "complex128": Tolerance(1e-7, 1e-9),
    "float32": Tolerance(1e-3, 1e-4),
    "complex64": Tolerance(1e-3, 1e-4),
    "float16": Tolerance(1e-2, 1e-2),
    "bfloat16": Tolerance(5e-2, 5e-2),
}
"""By dtype; integers, booleans and strings must be equal."""


@dataclass(frozen=True)
class Difference:
    """The difference of one output from a reference.

    Attributes:
        name: The output's name; an element of a sequence is ``NAME.0``, of a map ``NAME[key]``.
        dtype: Its type.
        shape: Its shape.
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


def differences(
    names: Sequence[str],
    found: Sequence[Any],
    reference: Sequence[Any],
    relative: float | None = None,
    absolute: float | None = None,
) -> list[Difference]:
    """Returns the differences of outputs from a reference's.

    Args:
        names: The outputs' names.
        found: The outputs: arrays, sequences, maps.
        reference: The outputs of another runtime, in the same order.
        relative: The relative tolerance; by default that of the dtype.
        absolute: The absolute tolerance; by default that of the dtype.
    """
    rows = []
    for name, mine, other in zip(names, found, reference, strict=True):
        for leaf, a, b in _leaves(name, mine, other):
            allowed = TOLERANCES.get(str(a.dtype), EXACT)
            tolerance = Tolerance(
                allowed.relative if relative is None else relative,
                allowed.absolute if absolute is None else absolute,
            )
            rows.append(_difference(leaf, a, b, tolerance))
    return rows


def largest(rows: Iterable[Difference]) -> float | None:
    """Returns the greatest absolute difference; ``None`` if an output has none."""
    found = [row.absolute for row in rows]
    known = [value for value in found if value is not None]
    return max(known) if known and len(known) == len(found) else None


def _leaves(name: str, a: Any, b: Any) -> Iterator[tuple[str, NDArray, NDArray]]:
    """Yields pairs of arrays; one without a counterpart is paired with another shape."""
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (one, other) in enumerate(zip(a, b, strict=True)):
            yield from _leaves(f"{name}.{number}", one, other)
    elif isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        for key in a:
            yield from _leaves(f"{name}[{key}]", a[key], b[key])
    else:
        yield name, _as_array(a), _as_array(b)


def _as_array(value: Any) -> NDArray:
    return np.asarray(value, object if isinstance(value, list | dict) else None)


def _difference(name: str, a: NDArray, b: NDArray, tolerance: Tolerance) -> Difference:
    kind = name, str(a.dtype), a.shape, tolerance
    if a.shape != b.shape:
        return Difference(*kind, problem=f"the shape is {list(a.shape)}, not {list(b.shape)}")
    if a.dtype.kind in "OSUT" or b.dtype.kind in "OSUT":
        return Difference(*kind, beyond=int(np.sum(a.astype(object) != b.astype(object))))
    if a.dtype != b.dtype:
        return Difference(*kind, problem=f"the type is {a.dtype}, not {b.dtype}")
    if not a.size:
        return Difference(*kind, absolute=0.0)
    if a.dtype.kind in "biu":
        return _apart(kind, a.astype(object), b.astype(object))  # exact for integers of any size
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    return _apart(kind, a.astype(wide), b.astype(wide))


def _apart(kind: tuple[str, str, tuple[int, ...], Tolerance], a: NDArray, b: NDArray) -> Difference:
    """Returns the difference of numbers; NaN and a number differ by infinity."""
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
