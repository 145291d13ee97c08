"""Ensembles of decision trees on a JIT kernel."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tenonnx_array.ml.forest import Forest
from tenonnx_array.ml.trees import Scores
from tenonnx_array.ml.walk import Nodes
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.recording.launch import Launch
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.specialise import Call, NDArray, Site, specialise

F64 = np.dtype(np.float64)

SCORES = {
    F32: JitKernel("classical.trees", "score_f32"),
    F64: JitKernel("classical.trees", "score_f64"),
}

ENOUGH = 2048
"""Walks that are worth a second thread."""


@specialise("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor", domain="ai.onnx.ml")
def specialise_trees(site: Site, plain: Any) -> Call | None:
    """Has trees walked by the kernel, and a regressor's sums written by it, too."""
    forest: Forest = plain.forest
    if not Walks.take(forest):
        return None
    walks = Walks(forest, site.threads)
    forest.faster = walks.sums
    told = site.dtype(0)
    dtype = told if told in SCORES else F32
    SCORES[dtype].request()
    walks.table(dtype)
    if not isinstance(plain, Scores) or plain.transforms:
        return None
    base = np.zeros(forest.targets)
    base += plain.base if plain.base.size else 0

    def call(x: NDArray) -> Any:
        if x.dtype != F32 and plain.keeps_dtype:
            return plain(x)
        made = walks.launch(x, base)
        return plain(x) if made is None else made

    return Recorded(call)


class Table(NamedTuple):
    """A forest as ``jit.classical.trees.score`` reads it; it says what is in the arrays."""

    trees: NDArray
    nodes: NDArray
    splits: NDArray
    missing: NDArray
    values: NDArray


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
        self._zeros = np.zeros(forest.targets)
        self.table = functools.cache(functools.partial(_table, forest))

    @staticmethod
    def take(forest: Forest) -> bool:
        """Says whether the kernel has all that a forest asks for."""
        nodes = forest.nodes
        sums = forest.aggregate in ("SUM", "AVERAGE")
        return sums and len(nodes) > 0 and forest.targets > 0

    def sums(self, x: NDArray) -> NDArray | None:
        """Returns the targets' scores, [N, E] float64; ``None`` where there is no kernel."""
        sums = np.empty((len(x), self._forest.targets))
        made = self.launch(x, self._zeros, sums)
        if made is None:
            return None
        made.run(*made.arguments)  # type: ignore[misc]  # there is a kernel
        return sums

    def launch(self, x: NDArray, base: NDArray, sums: NDArray | None = None) -> Launch | None:
        """Returns what scores rows, beginning with a base; ``None`` where there is no kernel.

        Args:
            x: [N, F].
            base: [E] float64.
            sums: Where the sums are left as float64; anywhere if not given.
        """
        score = SCORES.get(x.dtype)
        if score is None or x.ndim != 2 or not x.size:
            return None
        score.request()
        if score.run is None:
            return None
        self._forest.check(x)
        rows, team, grain = len(x), 1, 16
        if rows * self._walks >= ENOUGH:
            team = self._threads
            grain = max(grain, -(-rows // (4 * team)))
        shape = rows, self._forest.targets
        y = empty(shape)
        if sums is None:
            (sums,) = pieces((shape, np.float64))
        arguments = contiguous(x), *self.table(x.dtype), base, sums, y, grain, team
        return Launch(score.run, arguments, y)


def _table(forest: Forest, dtype: np.dtype[Any]) -> Table:
    nodes = forest.nodes
    feature, split, missing, branches, steps = _comparisons(nodes)
    count, leaves = len(feature), len(forest.values)
    # A feature, where failure and success lead to, and the split: 16 bytes, or 24.
    table = np.zeros((count + leaves, 4 if dtype == F32 else 6), np.uint32)
    splits: NDArray = table.view(dtype)[:, -1]
    table[:count, 0] = feature
    table[:count, 1:3] = _number(branches, count)
    table[count:, 1:3] = np.arange(count, count + leaves)[:, None]
    splits[:count] = _rounded_down(split) if dtype == F32 else split
    tracks = np.zeros(0, np.int32)
    if missing.any():
        tracks = np.concatenate([missing, np.zeros(leaves)]).astype(np.int32)
    only = np.full(len(nodes.roots), -1) if forest.only is None else forest.only
    trees = np.stack([_number(nodes.roots, count), forest.depths * steps, only])
    votes = forest.values / len(only) if forest.aggregate == "AVERAGE" else forest.values
    values = np.concatenate([np.zeros((count, votes.shape[1])), votes])
    return Table(trees.astype(np.int32), table, splits, tracks, values)


def _comparisons(nodes: Nodes) -> tuple[NDArray, NDArray, NDArray, NDArray, int]:
    """Returns nodes all of which ask whether x ≤ split.

    x is v if x ≤ v but not x ≤ the number before v, which takes two nodes for each v of a set.

    Returns:
        feature; split; missing; branches [nodes, 2], those of failure and success; how many steps
        a node has become at most.
    """
    split, missing, branches, in_set = nodes.tests()
    if not in_set.any():
        return nodes.feature, split, missing, branches, 1
    feature, splits, ways = nodes.feature.tolist(), split.astype(float).tolist(), branches.tolist()
    most = 1
    for node, values in zip(np.flatnonzero(in_set).tolist(), nodes.sets(in_set), strict=True):
        count, end, (failure, success) = len(values), len(ways), ways[node]
        most = max(most, count)
        if not count:
            splits[node] = np.nan
            continue
        # The first value's test is in the place of the node, the others' are behind all nodes.
        below = np.where(np.isneginf(values), np.nan, np.nextafter(values.astype(float), -np.inf))
        tests = [*range(end, end + count - 1), failure]
        exact = range(end + count - 1, end + 2 * count - 1)
        led = [[other, equal] for other, equal in zip(tests, exact, strict=True)]
        splits[node], ways[node] = float(values[0]), led[0]
        feature += [feature[node]] * (2 * count - 1)
        splits += [*values[1:].tolist(), *below.tolist()]
        ways += [*led[1:], *[[success, failure]] * count]
    added = np.zeros(len(ways) - len(missing), bool)
    missing = np.concatenate([missing, added])
    return np.array(feature), np.array(splits), missing, np.array(ways), 2 * most


def _number(targets: NDArray, interior: int) -> NDArray:
    """Numbers leaves after the interior nodes."""
    return np.where(targets < 0, interior + ~targets, targets)


def _rounded_down(split: NDArray) -> NDArray:
    """Returns float32 splits that float32 values pass as they would pass the given ones."""
    with np.errstate(over="ignore"):
        near = split.astype(np.float32)
    return np.where(near > split, np.nextafter(near, np.float32(-np.inf)), near)
