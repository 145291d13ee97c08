"""Columns of categories that choose rows of tables, and their sum, as CategoricalNB is exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.fuse import LOOKED_UP, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.threads.sharing import shared_out
from tenonnx_cpu.kernel_selection import Call, NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx_ir as ir

CATEGORIES = JitKernel("ml.categories", "sum_chosen")

# Numbers that are worth a second thread.
MIN_ENCODED_NUMBERS_PER_THREAD = 1 << 14

# ``onnx.TensorProto.INT64``.
INT64_TYPE = 7


class CategoryColumn(NamedTuple):
    """The choices of a column.

    Attributes:
        nodes: What does it, in order.
        source: The numbers, [N, C].
        place: Which column it is.
        table: What they choose, [categories, classes].
    """

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    place: int
    table: NDArray


@fusion("Sum", priority=LOOKED_UP)
def fuse_categories(node: ir.Node, scope: Scope) -> Fused | None:
    """Take Gathers of columns, Casts, Gathers of tables' columns, and the Sum of these as rows."""
    columns = [column for value in node.inputs if (column := _column(value, scope))]
    if len(columns) < max(len(node.inputs), 1) or len({column.source for column in columns}) > 1:
        return None
    if len({column.table.shape[1] for column in columns}) > 1:
        return None
    nodes = sorted((each for column in columns for each in column.nodes), key=scope.position)
    if len({*nodes}) < len(nodes):
        return None
    CATEGORIES.request()
    sources = [columns[0].source]
    return scope.fused([*nodes, node], sources, lambda plain: _call(columns, scope.threads, plain))


def _column(value: ir.Value | None, scope: Scope) -> CategoryColumn | None:
    """Return what a column chooses whose rows are summed; ``None`` if that is not known."""
    nodes: list[ir.Node] = []
    for operator, position in (
        ("Transpose", 0),
        ("Gather", 1),
        ("Reshape", 0),
        ("Cast", 0),
        ("Gather", 0),
    ):
        found = scope.maker(value, operator)
        if found is None or value is None or scope.reader(value) is None:
            return None
        nodes.insert(0, found)
        value = found.inputs[position]
    chooser, cast, reshape, gather, transpose = (scope.site(each) for each in nodes)
    place, shape, table = chooser.scalar(1), reshape.constant(1), gather.constant(0)
    if value is None or place is None or place.ndim != 1 or shape is None or shape.tolist() != [-1]:
        return None
    if table is None or table.ndim != 2 or table.dtype != F32 or not table.size:
        return None
    are_last = all(each.attribute("axis", 0) in (1, -1) for each in (chooser, gather))
    if not are_last or cast.attribute("to", 0) != INT64_TYPE:
        return None
    if [*transpose.attribute("perm", (1, 0))] != [1, 0]:
        return None
    return CategoryColumn(tuple(nodes), value, int(place.item()), table.T)


def _call(columns: Sequence[CategoryColumn], threads: int, plain: Call) -> CategoriesCall:
    tables = np.ascontiguousarray(np.concatenate([column.table for column in columns]))
    places = [column.place for column in columns]
    counts = np.array([len(column.table) for column in columns])
    table = np.stack([np.array(places), np.cumsum(counts) - counts, counts], 1)
    return CategoriesCall(table, tables, threads, plain)


@cacheable
@dataclass(frozen=True, eq=False)
class CategoriesCall:
    """Sums the rows of tables that columns of categories choose.

    Attributes:
        columns: [columns, 3]: a column, the first row of its table, and how many that has.
        tables: The tables, one below the other.
        threads: How many to use at most.
        plain: Computes the same from the same numbers.
    """

    columns: NDArray
    tables: NDArray
    threads: int
    plain: Call

    def __call__(self, x: NDArray) -> Any:
        """Return the sums, [N, classes]."""
        run, tables = CATEGORIES.run, self.tables
        if run is None or x.ndim != 2 or x.dtype != F32 or not x.size:
            return self.plain(x)
        places = self.columns[:, 0].tolist()
        if not 0 <= min(places) <= max(places) < x.shape[1]:
            return self.plain(x)
        y, refused = empty((len(x), tables.shape[1])), np.zeros(1, np.uint8)
        work = len(x) * len(places) * tables.shape[1]
        grain, used = shared_out(len(x), work, MIN_ENCODED_NUMBERS_PER_THREAD, self.threads)
        run(contiguous(x), self.columns, tables, y, refused, grain, used)
        return self.plain(x) if refused[0] else y
