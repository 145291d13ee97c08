"""Columns of words that are encoded one by one, and joined, as one step."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.ml.encode import Lookup
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.fuse import LOOKED_UP, Fused, Scope, fusion
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.ml.string_arrays import WordTable

if TYPE_CHECKING:
    import onnx_ir as ir

ML = "ai.onnx.ml"

# Words up to which dictionaries find them before a kernel has been called.
MAX_DICTIONARY_WORDS = 64

# Words that are worth a second thread.
MIN_WORDS_PER_THREAD = 1 << 11


class WordColumn(NamedTuple):
    """The encoding of a column.

    Attributes:
        nodes: What does it.
        source: The words, [N, C].
        place: Which column it is.
        lookup: What each word becomes.
        rank: The rank of what is joined.
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    place: int
    lookup: Lookup
    rank: int


@fusion("Concat", priority=LOOKED_UP)
def fuse_columns(node: ir.Node, scope: Scope) -> Fused | None:
    """Take Gathers of columns, encoders, Reshapes, and the Concat that joins them."""
    found = [_column(value, scope) for value in node.inputs]
    columns = [column for column in found if column is not None]
    if len(columns) < len(found) or len({(c.source, c.rank) for c in columns}) > 1:
        return None
    source, rank = columns[0].source, columns[0].rank
    axis = scope.site(node).attribute("axis", 1)
    if axis not in (rank - 1, -1) or len({c.lookup.table.dtype for c in columns}) > 1:
        return None
    nodes = [each for column in columns for each in column.nodes]
    nodes = [*sorted(dict.fromkeys(nodes), key=scope.position), node]
    return scope.fused(
        nodes, [source], lambda plain: ColumnsCall(columns, rank, scope.threads, plain)
    )


def _column(value: ir.Value | None, scope: Scope) -> WordColumn | None:
    """Return how a column that is joined is encoded; ``None`` if that is not known."""
    nodes: list[ir.Node] = []

    def maker(value: ir.Value | None, *operators: str) -> ir.Node | None:
        node = None if value is None else value.producer()
        if value is None or node is None or scope.reader(value) is None or not scope.has(node):
            return None
        if f"{node.domain}::{node.op_type}".removeprefix("::") not in operators:
            return None
        nodes.append(node)
        return node

    shaper = maker(value, "Reshape")
    encoder = maker(
        value if shaper is None else shaper.inputs[0], f"{ML}::LabelEncoder", f"{ML}::OneHotEncoder"
    )
    if encoder is None:
        return None
    call: Any = scope.plain(encoder).call
    lookup = getattr(call, "func", call)
    chooser = maker(encoder.inputs[0], "Gather", f"{ML}::ArrayFeatureExtractor")
    if chooser is None or not isinstance(lookup, Lookup) or not lookup.joins:
        return None
    site, source = scope.site(chooser), chooser.inputs[0]
    place = site.scalar(1)
    if source is None or place is None or place.ndim > 1:
        return None
    is_gather = chooser.op_type == "Gather"
    if is_gather and site.attribute("axis", 0) not in (1, -1):
        return None
    rank = lookup.table.ndim + (place.ndim if is_gather else 1)
    if shaper is not None:
        shape = scope.site(shaper).constant(1)
        if shape is None or shape.tolist() != [-1, lookup.table[0].size]:
            return None
        rank = 2
    number = int(place.reshape(-1)[0])
    return WordColumn(tuple(nodes), source, number, lookup, rank) if rank > 1 else None


@cacheable
class ColumnsCall:
    """Encodes columns of words, and joins them.

    Args:
        columns: The columns.
        rank: The rank of the result.
        threads: How many to use at most.
        plain: Computes the same from the same words.
    """

    def __init__(self, columns: Sequence[WordColumn], rank: int, threads: int, plain: Call) -> None:
        lookups = [column.lookup for column in columns]
        self._places = places = [column.place for column in columns]
        self._tables = [lookup.cells for lookup in lookups]
        self._dtype = lookups[0].table.dtype
        width = sum(lookup.table[0].size for lookup in lookups)
        self._row = (*(1,) * (rank - 2), width)
        self._in_order = places == [*range(len(places))]
        keys = [[*table] for table in self._tables]
        self._known = WordTable(places, keys, [*map(_bytes_of, lookups)])
        self._threads, self._plain = threads, plain

    def __call__(self, x: NDArray) -> Any:
        """Return the result for words [N, C]."""
        places = self._places
        if x.ndim != 2 or not 0 <= min(places) <= max(places) < x.shape[1]:
            return self._plain(x)
        if len(x) * len(places) <= MAX_DICTIONARY_WORDS:
            return self._encoded(x)
        y = empty((len(x), *self._row), self._dtype)
        grain, used = shared_out(len(x), len(x) * len(places), MIN_WORDS_PER_THREAD, self._threads)
        if self._known.look_up(x, y.view(np.uint8).reshape(len(x), -1), grain, used):
            return y
        return self._encoded(x)

    def _encoded(self, x: NDArray) -> NDArray:
        places = self._places
        words = x if x.shape[1] == len(places) and self._in_order else x.take(places, axis=1)
        tables = itertools.cycle(self._tables)
        cells = map(operator.getitem, tables, words.reshape(-1).tolist())
        return np.ndarray((len(x), *self._row), self._dtype, bytearray().join(cells))


@cacheable
class WordsCall:
    """Encodes words.

    Args:
        lookup: What each word becomes.
        threads: How many to use at most.
        plain: Computes the same from the same words.
    """

    def __init__(self, lookup: Lookup, threads: int, plain: Call) -> None:
        self._dtype, self._row = lookup.table.dtype, lookup.table.shape[1:]
        self._known = WordTable([0], [[*lookup.cells]], [_bytes_of(lookup)])
        self._threads, self._plain = threads, plain

    def __call__(self, x: NDArray) -> Any:
        """Return [..., the shape of a row]."""
        if x.dtype != object or x.size <= MAX_DICTIONARY_WORDS:
            return self._plain(x)
        y = empty((*x.shape, *self._row), self._dtype)
        grain, used = shared_out(x.size, x.size, MIN_WORDS_PER_THREAD, self._threads)
        rows = y.reshape(-1).view(np.uint8).reshape(x.size, -1)
        is_made = self._known.look_up(x.reshape(-1, 1), rows, grain, used)
        return y if is_made else self._plain(x)


def _bytes_of(lookup: Lookup) -> NDArray:
    """Return the cells of a lookup's keys, and the last one's, as rows of bytes."""
    cells = [*lookup.cells.values(), lookup.table[-1].tobytes()]
    return np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), -1)
