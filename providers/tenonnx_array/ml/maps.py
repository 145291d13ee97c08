"""Maps, which are Python dictionaries, to tensors and back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.post import labels_of
from tenonnx_array.ml.staged import StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op


@op("DictVectorizer", host="all")
def dict_vectorizer(
    xp: Namespace,  # noqa: ARG001 - maps live on the host
    *,
    int64_vocabulary: Sequence[int] | None = None,
    string_vocabulary: Sequence[str] | None = None,
) -> Callable[[Mapping[Any, Any]], Array]:
    """Make a map → its values in the vocabulary's order, zero or "" where it has none.

    The result is [1, V], as in onnxruntime, where the specification says [V]: later
    nodes expect rows. Keys outside the vocabulary are ignored, as scikit-learn does.
    """
    vocabulary = labels_of(int64_vocabulary, string_vocabulary).tolist()
    return functools.partial(_vectorized, vocabulary)


@cacheable
def _vectorized(vocabulary: list[Any], X: Mapping[Any, Any]) -> Array:
    first = next(iter(X.values()), 0.0)
    dtype, absent = _dtype_of(first), "" if isinstance(first, str) else 0
    return np.array([[X.get(key, absent) for key in vocabulary]], dtype)


def _dtype_of(value: Any) -> np.dtype[Any]:
    if isinstance(value, str):
        return np.dtype(object)
    if isinstance(value, np.generic):
        return value.dtype
    return np.dtype(np.int64 if isinstance(value, int) else np.float32)


@op("CastMap", host="all")
def cast_map(
    xp: Namespace,  # noqa: ARG001 - maps live on the host
    *,
    cast_to: str = "TO_FLOAT",
    map_form: str = "DENSE",
    max_map: int = 1,
) -> Callable[[Mapping[int, Any]], Array]:
    """Make a map from int64 → its values [1, n] by ascending key.

    DENSE takes the values alone. SPARSE puts each at its key in a row of ``max_map`` and drops
    those beyond; the gaps hold onnxruntime's 0, or "0.f" among strings. Floats become strings
    with six decimals and integers by truncation.
    """
    if cast_to not in CASTS:
        raise ValueError(f"cast_to must be one of {', '.join(CASTS)}, not {cast_to!r}")
    if map_form not in ("DENSE", "SPARSE"):
        raise ValueError(f"map_form must be DENSE or SPARSE, not {map_form!r}")
    return functools.partial(_cast, cast_to, None if map_form == "DENSE" else max_map)


@cacheable
def _cast(cast_to: str, width: int | None, X: Mapping[int, Any]) -> Array:
    """Return a map's values, of all keys or of those below a width."""
    cast, gap, dtype = CASTS[cast_to]
    if width is None:
        return np.array([[cast(X[key]) for key in sorted(X)]], dtype)
    return np.array([[cast(X[k]) if k in X else gap for k in range(width)]], dtype)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:f}"


# The cast of a value, the filling of a gap, and the dtype of the result.
CASTS: dict[str, tuple[Callable[[Any], Any], Any, type]] = {
    "TO_FLOAT": (float, 0.0, np.float32),
    "TO_INT64": (int, 0, np.int64),
    "TO_STRING": (_as_text, "0.f", object),
}


@op("ZipMap", host="all")
def zip_map(
    xp: Namespace,  # noqa: ARG001 - maps live on the host
    *,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
) -> Callable[[Array], list[dict[Any, float]]]:
    """Make X [N, E] → a list of N maps from class label to float; a vector is one row."""
    keys = labels_of(classlabels_int64s, classlabels_strings).tolist()
    return ZipMap(keys)


@cacheable
class ZipMap:
    """Maps from labels to the numbers of rows.

    Args:
        keys: The labels.
    """

    def __init__(self, keys: list[Any]) -> None:
        if not all(type(key) in (int, str) for key in keys):  # their display becomes code
            raise TypeError("labels are integers or strings")
        self._keys = keys

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the labels, without the function of their display."""
        return ZipMap, (self._keys,)

    @functools.cached_property
    def _maps(self) -> Callable[[list[Any]], list[dict[Any, float]]]:
        # A display of the labels makes a map in a quarter of the time that dict(zip(...)) takes.
        values = [f"v{place}" for place in range(len(self._keys))]
        items = ", ".join(
            f"{key!r}: {value}" for key, value in zip(self._keys, values, strict=True)
        )
        code = f"lambda rows: [{{{items}}} for {', '.join(values)}, in rows]"
        maps: Callable[[list[Any]], list[dict[Any, float]]] = eval(code)
        return maps

    def __call__(self, X: Array) -> list[dict[Any, float]]:
        """Return a map for each row; a vector is one row.

        Raises:
            ValueError: X has more axes than two, or another number of columns than labels.
        """
        if X.ndim > 2:
            raise ValueError(f"expected X of 1 or 2 axes, found the shape {X.shape}")
        X = X if X.ndim > 1 else X.reshape(1, -1)
        if X.shape[1] != len(self._keys):
            raise ValueError(f"X has {X.shape[1]} columns for the {len(self._keys)} class labels")
        return self._maps(X.tolist())
