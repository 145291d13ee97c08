"""Ensembles of decision trees on a JIT kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.ml.forest import Forest
from tenonnx_array.ml.trees import Scores
from tenonnx_array.ml.walk import numbered
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.jit.threads.sharing import TASKS
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

F64 = np.dtype(np.float64)

SCORES = {
    F32: JitKernel("ml.trees", "score_f32"),
    F64: JitKernel("ml.trees", "score_f64"),
}

# Steps from node to node that are worth a second thread: some microseconds.
MIN_WALK_STEPS_PER_THREAD = 1 << 12

# Steps of a task of some of the trees.
MIN_TASK_STEPS = 1 << 10

# Walks of a task: some milliseconds.
MAX_TASK_WALKS = 1 << 20

# Rows of a task, if there are so many.
MIN_TASK_ROWS = 16

Shape = tuple[int, ...]


def _scratch(shape: Shape) -> NDArray:
    (made,) = pieces((shape, np.float64))
    return made


@specialize("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain="ai.onnx.ml")
def specialize_trees(site: Site, plain: Any) -> Call | None:
    """Have trees walked by the kernel, and a regressor's sums written by it, too."""
    forest: Forest = plain.forest
    if not Walks.take(forest):
        return None
    walks = Walks(forest, site.threads)
    forest.faster = walks.sums
    dtype = site.dtype(0)
    dtype = F32 if dtype is None or dtype != F64 else F64  # None would equal F64
    SCORES[dtype].request()
    walks.table(dtype)
    if not isinstance(plain, Scores) or plain.transforms:
        return None
    base = np.zeros(forest.targets)
    base += plain.base if plain.base.size else 0
    return Capturable(functools.partial(_scored, walks, frozen(base), plain))


@cacheable
def _scored(walks: Walks, base: NDArray, plain: Scores, x: NDArray) -> Any:
    if x.dtype != F32 and plain.keeps_dtype:
        return plain(x)
    made = walks.launch(x, base)
    return plain(x) if made is None else made


@cacheable
class Table(NamedTuple):
    """A forest as ``ml.kernels.trees.score`` reads it; it says what is in the arrays."""

    trees: NDArray
    nodes: NDArray
    missing: NDArray
    values: NDArray
    interior: int


@cacheable
class Walks:
    """Walks down the trees of a forest that adds up votes.

    Args:
        forest: One that ``take`` takes.
        threads: How many threads to use at most.
    """

    def __init__(self, forest: Forest, threads: int) -> None:
        self._forest = forest
        self._threads = threads
        self._walks = len(forest.nodes.roots)
        self._steps = int(forest.depths.sum())
        self._zeros = np.zeros(forest.targets)
        self._tables: dict[np.dtype[Any], Table] = {}

    @staticmethod
    def take(forest: Forest) -> bool:
        """Return whether the kernel has all that a forest asks for."""
        nodes = forest.nodes
        sums = forest.aggregate in ("SUM", "AVERAGE")
        return sums and len(nodes) > 0 and forest.targets > 0

    def table(self, dtype: np.dtype[Any]) -> Table:
        """Return the forest as a kernel reads it that is given numbers of a dtype."""
        if (found := self._tables.get(dtype)) is None:
            found = self._tables[dtype] = _table(self._forest, dtype)
        return found

    def sums(self, x: NDArray) -> NDArray | None:
        """Return the targets' scores, [N, E] float64; ``None`` where there is no kernel."""
        made = self.launch(x, self._zeros, np.empty)
        if made is None:
            return None
        made.run(*made.arguments)  # type: ignore[misc]  # there is a kernel
        *_, sums, _y, _grain, _span, _threads = made.arguments
        whole: NDArray = sums[0]  # the parts are added up there
        return whole

    def launch(
        self, x: NDArray, base: NDArray, room: Callable[[Shape], NDArray] = _scratch
    ) -> Launch | None:
        """Return what scores rows, beginning with a base; ``None`` where there is no kernel.

        Args:
            x: [N, F].
            base: [E] float64.
            room: Returns where the sums are left as float64.
        """
        score = SCORES.get(x.dtype)
        if score is None or x.ndim != 2 or not x.size:
            return None
        score.request()
        if score.run is None:
            return None
        self._forest.check(x)
        rows, targets = len(x), self._forest.targets
        grain, span, threads = self._shared_out(rows)
        y = empty((rows, targets))
        sums = room((-(-self._walks // span), rows, targets))
        arguments = contiguous(x), *self.table(x.dtype), base, sums, y, grain, span, threads
        return Launch(score.run, arguments, y)

    def _shared_out(self, rows: int) -> tuple[int, int, int]:
        """Return how many rows and trees a task has, and how many threads share the tasks."""
        trees, steps = self._walks, rows * self._steps
        longest = max(MIN_TASK_ROWS, MAX_TASK_WALKS // trees)
        if self._threads == 1 or steps < MIN_WALK_STEPS_PER_THREAD:
            return longest, trees, 1
        wanted = TASKS * self._threads
        grain = max(MIN_TASK_ROWS, min(longest, -(-rows // wanted)))
        parts = min(wanted, steps // MIN_TASK_STEPS) // -(-rows // grain)
        return grain, -(-trees // max(1, min(trees, parts))), self._threads


def _table(forest: Forest, dtype: np.dtype[Any]) -> Table:
    nodes = forest.nodes
    feature, split, missing, branches, steps = nodes.comparisons()
    count, leaves = len(feature), len(forest.values)
    # A feature, where failure and success lead to, and the split.
    table = np.zeros((count + leaves, 4), np.uint32 if dtype == F32 else np.int64)
    table[:count, 0] = feature
    table[:count, 1:3] = numbered(branches, count)
    table[count:, 1:3] = np.arange(count, count + leaves)[:, None]
    table.view(dtype)[:count, 3] = _rounded_down(split) if dtype == F32 else split
    tracks = np.zeros(0, np.int32)
    if missing.any():
        tracks = np.concatenate([missing, np.zeros(leaves)]).astype(np.int32)
    only = np.full(len(nodes.roots), -1) if forest.only is None else forest.only
    trees = np.stack([numbered(nodes.roots, count), forest.depths * steps, only])
    values = forest.values / len(only) if forest.aggregate == "AVERAGE" else forest.values
    numbers = frozen(trees.astype(np.int32)), frozen(table.reshape(-1)), frozen(tracks)
    return Table(*numbers, frozen(values), count)


def _rounded_down(split: NDArray) -> NDArray:
    """Return float32 splits that float32 values pass as they would pass the given ones."""
    with np.errstate(over="ignore"):
        near = split.astype(np.float32)
    return np.where(near > split, np.nextafter(near, np.float32(-np.inf)), near)
