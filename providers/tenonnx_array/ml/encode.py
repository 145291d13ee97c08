"""Mapping categories to other categories, and to vectors."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.operators import Array, Namespace
from tenonnx_array.ml.staged import StagedTable

table = StagedTable("ai.onnx.ml")
op = table.op

Unary = Callable[[Array], Array]

# Numbers that are found one by one in less time than by bisection.
LOOKED_UP = 64

# Distances of whole keys, for each key, up to which a table has a place for each number between.
MAX_NUMBERS_PER_KEY = 64

# Bytes of a table that has a row for each number between whole keys.
MAX_SPREAD_BYTES = 1 << 20

# Categories up to which a table has all their encodings: a MiB at most.
MAX_TABLE_CATEGORIES = 512


@cacheable
class Rows(dict[Any, Any]):
    """Rows by key, and the one of whatever is no key.

    Attributes:
        otherwise: That one.
    """

    def __init__(self, rows: Mapping[Any, Any], otherwise: Any) -> None:
        super().__init__(rows)
        self.otherwise = otherwise

    def __missing__(self, key: Any) -> Any:
        return self.otherwise


@cacheable
class Keys:
    """The places of values among a node's keys.

    Args:
        keys: [K], strings or numbers. The last of equal keys counts; NaN equals NaN.

    Attributes:
        count: How many there are.
        dtype: Their type.
        are_words: Whether they are strings.
        place: The place of each key.
        least: The least, if they are whole.
        places: The place of each number from that on, and of all others behind; ``None`` if they
            are too many.
    """

    def __init__(self, keys: Array) -> None:
        self.count = len(keys)
        self.dtype = keys.dtype
        self.are_words = keys.dtype == object
        # In a dictionary one NaN is not another; here they are None.
        numbered = enumerate(keys.tolist())
        self.place = {key if key == key else None: place for place, key in numbered}
        self._sorted: Array | None = None
        if self.count and not self.are_words:
            self._order = np.argsort(keys, kind="stable")
            self._sorted = keys[self._order]
        self.least = 0
        self.places = self._dense(keys)

    def away(self, values: Array, most: int) -> Array:
        """Return how far whole values are from the least key; ``most`` beyond, and before it."""
        # What is less than the least key is more than any, without a sign.
        return np.minimum((values - self.least).view(np.uint64), most).view(np.int64)

    def _dense(self, keys: Array) -> Array | None:
        """Return the place of each number from the least key on; ``None`` if they are too many."""
        if self._sorted is None or keys.dtype.kind != "i":
            return None
        self.least, high = int(self._sorted[0]), int(self._sorted[-1])
        if high - self.least >= MAX_NUMBERS_PER_KEY * self.count:
            return None
        places = np.full(high - self.least + 2, self.count)
        places[keys - self.least] = np.arange(self.count)
        return places

    def find(self, values: Array) -> Array:
        """Return each value's position, or the number of keys if it is none of them."""
        if self._sorted is None or values.size <= LOOKED_UP:
            given = self.given(values)
            places = map(self.place.get, given, itertools.repeat(self.count))
            return np.fromiter(places, np.intp, len(given)).reshape(values.shape)
        if self.places is not None and values.dtype == np.int64:
            return self.places.take(self.away(values, len(self.places) - 1))
        at = np.searchsorted(self._sorted, values, side="right") - 1
        key = self._sorted[at]
        hit = key == values
        if None in self.place:
            hit |= (key != key) & (values != values)
        return np.where(hit, self._order[at], self.count)

    def given(self, values: Array) -> list[Any]:
        """Return values one by one, as they are looked up in a dictionary."""
        given: list[Any] = values.reshape(-1).tolist()
        return given if self.are_words else [v if v == v else None for v in given]

    def rows(self, table: Array) -> Lookup:
        """Return what makes values → rows of a table: a key's, or the last if it is none.

        Args:
            table: [K + 1, ...].
        """
        return Lookup(self, table)


@cacheable
class Lookup:
    """A table's rows at the keys that values are, or its last row for others.

    Args:
        keys: The keys.
        table: [K + 1, ...].

    Attributes:
        keys, table: The same.
        cells: The rows by key, as bytes.
        joins: Whether all values are looked up in these.
    """

    def __init__(self, keys: Keys, table: Array) -> None:
        self.keys = keys
        self._are_objects = table.dtype == object
        # Bytes that are joined are an array in half the time of places that are taken.
        cells = table.tolist() if self._are_objects else [row.tobytes() for row in table]
        self.table = table
        self.cells = Rows({key: cells[p] for key, p in keys.place.items()}, cells[-1])
        self.joins = keys.are_words and not self._are_objects
        self._spread: Array | None = None
        row_bytes = table.nbytes // max(len(table), 1)
        if keys.places is not None and len(keys.places) * row_bytes <= MAX_SPREAD_BYTES:
            self._spread = table.take(keys.places, axis=0)

    def __call__(self, values: Array) -> Array:
        """Return [..., the shape of a row]."""
        keys, table = self.keys, self.table
        if not (keys.are_words or values.size <= LOOKED_UP):
            if self._spread is not None and values.dtype == np.int64:
                return self._spread.take(keys.away(values, len(self._spread) - 1), axis=0)
            return table.take(keys.find(values), axis=0)
        # A look-up that finds nothing is as fast so; ``Rows.__missing__`` is Python's.
        rest = itertools.repeat(self.cells.otherwise)
        found: Iterator[Any] = map(self.cells.get, keys.given(values), rest)
        if self._are_objects:
            return np.fromiter(found, object, values.size).reshape(values.shape)
        shape = values.shape + table.shape[1:]
        return np.ndarray(shape, table.dtype, bytearray().join(found))


@op("LabelEncoder", host="all")
def label_encoder_1(
    xp: Namespace,  # noqa: ARG001 - strings live on the host
    *,
    classes_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Unary:
    """Make strings → their indices in ``classes_strings``, and integers → the strings there."""
    return _either_way(classes_strings, range(len(classes_strings)), default_int64, default_string)


@op("CategoryMapper", host="all")
def category_mapper(
    xp: Namespace,  # noqa: ARG001 - strings live on the host
    *,
    cats_int64s: Sequence[int] = (),
    cats_strings: Sequence[str] = (),
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> Unary:
    """Make strings → integers and integers → strings by two parallel lists."""
    return _either_way(cats_strings, cats_int64s, default_int64, default_string)


def _either_way(
    strings: Sequence[str], ints: Sequence[int], default_int: int, default_string: str
) -> Unary:
    texts, numbers = _strings(strings), np.array(ints, np.int64)
    to_int = _lookup(texts, numbers, np.array([default_int], np.int64))
    to_string = _lookup(numbers, texts, _strings([default_string]))
    return functools.partial(_mapped, to_int, to_string)


@cacheable
def _mapped(to_int: Unary, to_string: Unary, X: Array) -> Array:
    return to_int(X) if X.dtype == object else to_string(X)


@op("LabelEncoder", since=4, host="all")
@op(
    "LabelEncoder",
    since=2,
    host="all",
    without=["default_tensor", "keys_tensor", "values_tensor"],
)
def label_encoder_2(
    xp: Namespace,  # noqa: ARG001 - strings live on the host
    *,
    default_float: float = -0.0,
    default_int64: int = -1,
    default_string: str = "_Unused",
    default_tensor: Array | None = None,
    keys_floats: Sequence[float] | None = None,
    keys_int64s: Sequence[int] | None = None,
    keys_strings: Sequence[str] | None = None,
    keys_tensor: Array | None = None,
    values_floats: Sequence[float] | None = None,
    values_int64s: Sequence[int] | None = None,
    values_strings: Sequence[str] | None = None,
    values_tensor: Array | None = None,
) -> Unary:
    """Make X → the value at each element's key, or the default; the shape is X's.

    The attributes of version 4, of which version 2 has those that are no tensors.
    """
    keys = _only("keys_*", keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _only("values_*", values_floats, values_int64s, values_strings, values_tensor)
    if default_tensor is not None:
        default = np.asarray(default_tensor).reshape(-1)[:1]
    elif values.dtype == object:
        default = _strings([default_string])
    else:
        default = np.array([default_float if values.dtype.kind == "f" else default_int64])
    return _lookup(keys, values, default)


@op("OneHotEncoder", host="all")
def one_hot_encoder(
    xp: Namespace,  # noqa: ARG001 - strings live on the host
    *,
    cats_int64s: Sequence[int] | None = None,
    cats_strings: Sequence[str] | None = None,
    zeros: int = 1,
) -> Unary:
    """Make X → float32 with one more axis, as long as the categories.

    Floats are truncated to integers first. A value that is no category gives zeros.

    Raises:
        ValueError: A value is no category, and ``zeros`` is 0.
    """
    keys = Keys(_only("cats_*", None, cats_int64s, cats_strings, None))
    few = keys.count <= MAX_TABLE_CATEGORIES
    rows = keys.rows(np.eye(keys.count + 1, keys.count, dtype=np.float32)) if few else None
    if rows is not None and zeros and cats_strings:
        return rows

    return OneHot(keys, rows, bool(zeros))


@cacheable
@dataclass(frozen=True, eq=False)
class OneHot:
    """The encodings of categories.

    Attributes:
        keys: The categories.
        rows: Looks them up, if there is a table of them.
        zeros: Whether a value that is no category gives zeros.
    """

    keys: Keys
    rows: Lookup | None
    zeros: bool

    def __call__(self, X: Array) -> Array:
        """Return float32 with one more axis."""
        X, keys = np.asarray(X), self.keys
        values = X if keys.are_words else X.astype(np.int64)
        if not self.zeros and (unknown := X[keys.find(values) == keys.count]).size:
            raise ValueError(f"{unknown.tolist()[0]!r} is none of the {keys.count} categories")
        if self.rows is not None:
            return self.rows(values)
        return (keys.find(values)[..., None] == np.arange(keys.count)).astype(np.float32)


def _lookup(keys: Array, values: Array, default: Array) -> Unary:
    if len(keys) != len(values):
        raise ValueError(f"there are {len(keys)} keys and {len(values)} values, expected as many")
    return Keys(keys).rows(np.concatenate([values, default.astype(values.dtype)]))


def _only(
    name: str,
    floats: Sequence[float] | None,
    ints: Sequence[int] | None,
    strings: Sequence[str] | None,
    tensor: Array | None,
) -> Array:
    """Return the one attribute that is there as a vector.

    Raises:
        ValueError: None of them is, or more than one.
    """
    given: list[Array] = []
    if floats is not None:
        given.append(np.array(floats, np.float32))
    if ints is not None:
        given.append(np.array(ints, np.int64))
    if strings is not None:
        given.append(_strings(strings))
    if tensor is not None:
        given.append(np.asarray(tensor).reshape(-1))
    if len(given) != 1:
        raise ValueError(f"exactly one of the attributes {name} must be set, found {len(given)}")
    return given[0]


def _strings(values: Sequence[str]) -> Array:
    return np.array(values, object)
