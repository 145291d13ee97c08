from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import Watch, floats, session
from test_ml_laws import ROWS, bound, split_apart
from test_ml_laws import trees as any_trees

from models import FLOAT, node
from tenonnx.process.cores import available_cores
from tenonnx_cpu.ml import trees


def forest(trees_count: int, depth: int, features: int, modes: list[str]) -> dict[str, Any]:
    """Return a regressor's attributes: full trees over random features, some of them shallow."""
    random = np.random.default_rng(0)
    names = ["treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids"]
    nodes: dict[str, list[Any]] = {name: [] for name in names}
    missing, leaves = [], []
    for tree in range(trees_count):
        inner = 2 ** (depth if tree % 3 else 1) - 1
        for number in range(2 * inner + 1):
            leaf = number >= inner
            mode = "LEAF" if leaf else modes[random.integers(len(modes))]
            feature = 0 if leaf else int(random.integers(features))
            split = 0.0 if leaf else float(np.float32(random.standard_normal()))
            after = (0, 0) if leaf else (2 * number + 1, 2 * number + 2)
            row = (tree, number, mode, feature, split, *after)
            for name, item in zip(names, row, strict=True):
                nodes[name].append(item)
            missing.append(int(random.integers(2)))
            if leaf:
                leaves.append((tree, number, int(random.integers(2)), float(random.normal())))
    columns = zip(*leaves, strict=True)
    targets = dict(zip(("treeids", "nodeids", "ids", "weights"), map(list, columns), strict=True))
    return {
        **{f"nodes_{name}": values for name, values in nodes.items()},
        "nodes_missing_value_tracks_true": missing,
        **{f"target_{name}": values for name, values in targets.items()},
        "n_targets": 2,
    }


@pytest.mark.parametrize("rows", [1, 5, 200])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "modes",
    [
        ["BRANCH_LEQ"],
        ["BRANCH_LT", "BRANCH_GT", "BRANCH_GTE", "BRANCH_LEQ"],
        ["BRANCH_EQ", "BRANCH_NEQ", "BRANCH_LEQ"],
    ],
    ids=["one kind", "unequal", "equal"],
)
@pytest.mark.parametrize("dtype", trees.SCORES, ids=str)
def test_trees_are_numpys(
    rows: int, threads: int, modes: list[str], dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    attributes = forest(30, 5, 4, modes)
    x = floats(rows, 4).astype(dtype)
    x[:, 1] = np.array(attributes["nodes_values"], np.float32)[:rows]
    x[0, 0] = np.nan
    x[-1, 2] = np.inf
    layer = node("TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **attributes)
    one = session(
        [layer],
        {"x": x},
        "y",
        threads=threads,
        domains={"ai.onnx.ml": 3},
        kinds={"x": onnx.TensorProto.DOUBLE if dtype == np.float64 else FLOAT},
    )
    watched = Watch(trees.SCORES[dtype], monkeypatch)
    fast = one.run(None, {"x": x})[0]
    assert watched.calls == 1
    monkeypatch.setattr(trees.SCORES[dtype], "run", None)
    np.testing.assert_allclose(fast, one.run(None, {"x": x})[0], rtol=2e-5, atol=2e-6)


def test_a_row_scores_alone_as_among_others() -> None:
    x = floats(40, 4)
    layer = node(
        "TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **forest(30, 5, 4, ["BRANCH_LEQ"])
    )
    one = session([layer], {"x": x}, "y", domains={"ai.onnx.ml": 3})
    together = one.run(None, {"x": x})[0]
    alone = np.concatenate([one.run(None, {"x": row[None]})[0] for row in x])
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_parts_of_the_trees_add_up(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = floats(rows, 4)
    layer = node(
        "TreeEnsembleRegressor", "x", "y", domain="ai.onnx.ml", **forest(2500, 3, 4, ["BRANCH_LEQ"])
    )
    found, spans = [], []
    shared_out = trees.Walks._shared_out

    def watched(self: Any, rows: int) -> tuple[int, int, int]:
        spans.append(shared_out(self, rows)[1])
        return shared_out(self, rows)

    monkeypatch.setattr(trees.Walks, "_shared_out", watched)
    for threads in (1, 4):
        one = session([layer], {"x": x}, "y", domains={"ai.onnx.ml": 3}, threads=threads)
        found += [one.run(None, {"x": x})[0] for _ in range(3)]
        assert (spans.pop() < 2500) == (min(threads, available_cores()) > 1)
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-6, atol=1e-6)


@given(any_trees(7), ROWS, st.sampled_from(["SUM", "AVERAGE"]), st.sampled_from(list(trees.SCORES)))
def test_the_kernel_walks_like_a_recursion(forest: Any, X: Any, aggregate: str, dtype: Any) -> None:
    number = ("AVERAGE", "SUM").index(aggregate)
    made = bound(
        "TreeEnsemble", 5, n_targets=2, aggregate_function=number, **split_apart(forest, dtype)
    ).forest
    sums = trees.Walks(made, 1).sums(X.astype(dtype))
    assert (sums is None) == (not X.size)
    if sums is not None:
        divisor = len(forest) if aggregate == "AVERAGE" else 1
        wanted = [added(forest, x, divisor) for x in X.tolist()]
        np.testing.assert_allclose(sums, wanted, rtol=1e-6)


def added(forest: Any, x: list[float], divisor: int) -> list[float]:
    """Votes for two targets, added in the kernel's order: where they cancel, rounding is left."""
    totals = [0.0, 0.0]
    for leaf in [tree.reach(x) for tree in forest]:
        totals[leaf.target] += leaf.weight / divisor
    return totals
