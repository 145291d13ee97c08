from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_array import TABLE
from tenonnx_array.ml.probit import probit
from tenonnx_array.ml.svm import coupled

FEATURES = 3
NUMBERS = st.sampled_from([-math.inf, -1.0, -0.5, -0.0, 0.0, 1.0, 2.0, math.inf, math.nan])
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
TESTS = (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne)
REDUCE = {"SUM": math.fsum, "MIN": min, "MAX": max}


@dataclass(frozen=True)
class Leaf:
    target: int
    weight: float

    def reach(self, _: Any) -> Leaf:
        return self


@dataclass(frozen=True)
class Node:
    feature: int
    mode: int
    split: float
    members: frozenset[float]
    missing: bool
    true: Node | Leaf
    false: Node | Leaf

    def reach(self, row: Any) -> Leaf:
        x = row[self.feature]
        holds = x in self.members if self.mode == 6 else TESTS[self.mode](x, self.split)
        return (self.true if holds or (self.missing and math.isnan(x)) else self.false).reach(row)


def trees(modes: int, splits: Any = NUMBERS) -> Any:
    members = st.frozensets(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]), min_size=1)
    leaves = st.builds(Leaf, st.integers(0, 1), st.integers(-4, 4).map(float))
    node = st.deferred(lambda: st.one_of(leaves, nodes))
    nodes = st.builds(
        Node,
        st.integers(0, FEATURES - 1),
        st.integers(0, modes - 1),
        splits,
        members,
        st.booleans(),
        node,
        node,
    )
    return st.lists(nodes, min_size=1, max_size=4)


ROWS = hnp.arrays(np.float32, st.tuples(st.integers(0, 5), st.just(FEATURES)), elements=NUMBERS)


def expected(forest: list[Node], X: Any, aggregate: str) -> Any:
    scores = np.zeros((len(X), 2), X.dtype)
    for row, x in enumerate(X.tolist()):
        leaves = [tree.reach(x) for tree in forest]
        for target in range(2):
            if votes := [leaf.weight for leaf in leaves if leaf.target == target]:
                scores[row, target] = REDUCE[aggregate](votes)
    return scores


def listed(forest: list[Node]) -> dict[str, Any]:
    rows: list[tuple[Any, ...]] = []
    votes: list[tuple[Any, ...]] = []

    def add(tree: int, item: Node | Leaf) -> int:
        number = sum(row[0] == tree for row in rows)
        if isinstance(item, Leaf):
            rows.append((tree, number, 0, "LEAF", 0.0, 0, 0, 0))
            votes.append((tree, number, item.target, item.weight))
            return number
        rows.append(())
        place = len(rows) - 1
        rows[place] = (tree, number)
        branches = add(tree, item.true), add(tree, item.false)
        test = (item.feature, MODES[item.mode], item.split, int(item.missing))
        rows[place] = (tree, number, *test, *branches)
        return number

    for tree, root in enumerate(forest):
        add(tree, root)
    names = (
        "treeids nodeids featureids modes values missing_value_tracks_true truenodeids falsenodeids"
    )
    nodes = zip(names.split(), zip(*rows, strict=True), strict=True)
    cast = zip(("treeids", "nodeids", "ids", "weights"), zip(*votes, strict=True), strict=True)
    return {
        **{f"nodes_{name}": column for name, column in nodes},
        **{f"target_{name}": column for name, column in cast},
    }


def split_apart(forest: list[Node], dtype: Any) -> dict[str, Any]:
    rows: list[tuple[Any, ...]] = []
    leaves: list[Leaf] = []
    members: list[float] = []

    def add(item: Node) -> int:
        place = len(rows)
        rows.append(())
        members.extend([*item.members, math.nan] if item.mode == 6 else [])
        branches: list[int] = []
        for child in (item.true, item.false):
            if isinstance(child, Leaf):
                branches += [1, len(leaves)]
                leaves.append(child)
            else:
                branches += [0, add(child)]
        rows[place] = (item.feature, item.mode, item.split, int(item.missing), *branches)
        return place

    roots = tuple(add(root) for root in forest)
    names = (
        *("featureids", "modes", "splits", "missing_value_tracks_true"),
        *("trueleafs", "truenodeids", "falseleafs", "falsenodeids"),
    )
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    columns["modes"] = np.array(columns["modes"], np.uint8)
    columns["splits"] = np.array(columns["splits"], dtype)
    return {
        **{f"nodes_{name}": column for name, column in columns.items()},
        "tree_roots": roots,
        "leaf_targetids": tuple(leaf.target for leaf in leaves),
        "leaf_weights": np.array([leaf.weight for leaf in leaves], dtype),
        "membership_values": np.array(members, dtype),
    }


def bound(op: str, version: int, outputs: int = 1, **attributes: Any) -> Any:
    found = TABLE.find("ai.onnx.ml", op, version)
    assert found is not None
    return found.bind(np, attributes, outputs)


@given(trees(6), ROWS, st.sampled_from([*REDUCE]))
def test_listed_trees_walk_like_a_recursion(forest: list[Node], X: Any, aggregate: str) -> None:
    run = bound(
        "TreeEnsembleRegressor", 3, n_targets=2, aggregate_function=aggregate, **listed(forest)
    )
    np.testing.assert_array_equal(run(X), expected(forest, X, aggregate))


@given(trees(7), ROWS, st.sampled_from([*REDUCE]), st.sampled_from([np.float32, np.float64]))
def test_split_trees_walk_like_a_recursion(
    forest: list[Node], X: Any, aggregate: str, dtype: Any
) -> None:
    number = ("AVERAGE", "SUM", "MIN", "MAX").index(aggregate)
    run = bound(
        "TreeEnsemble", 5, n_targets=2, aggregate_function=number, **split_apart(forest, dtype)
    )
    X = X.astype(dtype)
    np.testing.assert_array_equal(run(X), expected(forest, X, aggregate))


@given(
    hnp.arrays(np.float64, st.integers(2, 6), elements=st.floats(0.05, 1)),
    st.integers(1, 4),
)
def test_coupling_recovers_consistent_probabilities(weights: Any, rows: int) -> None:
    p = weights / weights.sum()
    first, second = np.triu_indices(len(p), 1)
    pairwise = np.tile(p[first] / (p[first] + p[second]), (rows, 1))
    np.testing.assert_allclose(coupled(pairwise, len(p)), np.tile(p, (rows, 1)), atol=0.01)


@given(st.floats(1e-300, 1 - 1e-15))
def test_probit_is_the_normal_quantile(p: float) -> None:
    np.testing.assert_allclose(
        probit(np, np.array([p])), [NormalDist().inv_cdf(p)], rtol=1e-14, atol=1e-15
    )


@given(st.lists(st.text(max_size=3), min_size=1, unique=True), st.data())
def test_label_encoder_undoes_itself(words: list[str], data: st.DataObject) -> None:
    numbers = tuple(data.draw(st.permutations(range(len(words)))))
    there = bound("LabelEncoder", 4, keys_strings=tuple(words), values_int64s=numbers)
    back = bound("LabelEncoder", 4, keys_int64s=numbers, values_strings=tuple(words))
    X = np.array([words, words[::-1]], object)
    np.testing.assert_array_equal(back(there(X)), X)


def test_zero_splits_of_either_sign_are_equal() -> None:
    forest = [Node(0, 4, -0.0, frozenset(), False, Leaf(0, 1.0), Leaf(0, 2.0))]
    run = bound("TreeEnsembleRegressor", 1, n_targets=1, **listed(forest))
    np.testing.assert_array_equal(run(np.zeros((1, 1), np.float32)), [[1]])


STUMP = split_apart([Node(2, 0, 0.0, frozenset(), False, Leaf(0, 1.0), Leaf(0, 2.0))], np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nodes_truenodeids": (0,), "nodes_trueleafs": (0,)}, "form a cycle"),
        ({"nodes_truenodeids": (2,)}, r"a branch must be in \[-2, 1\)"),
        ({"tree_roots": ()}, "at least one tree"),
        ({"nodes_modes": np.uint8([7])}, r"a node's mode must be in \[0, 7\), found 7"),
        ({"leaf_targetids": (0, 1), "n_targets": 1}, r"a vote's target must be in \[0, 1\)"),
    ],
)
def test_malformed_trees_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound("TreeEnsemble", 5, **{**STUMP, **change})


SVM = {"support_vectors": tuple(range(6)), "kernel_type": "LINEAR", "classlabels_ints": (5, 6)}


def test_what_a_machine_has_too_much_is_not_read() -> None:
    """As in onnxruntime 1.32; of too little it makes nothing."""
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    two = {**SVM, "vectors_per_class": (1, 1)}
    exact = bound("SVMClassifier", 1, **two, coefficients=(1.0, -1.0), rho=(0.5,))(X)
    more = bound("SVMClassifier", 1, **two, coefficients=(1.0, -1.0, 9.0), rho=(0.5, 9.0))(X)
    for old, new in zip(exact, more, strict=True):
        assert old.tolist() == new.tolist()
    for change in ({"coefficients": (1.0,), "rho": (0.5,)}, {"coefficients": (1.0, 2.0)}):
        with pytest.raises(ValueError, match="or more, found"):
            bound("SVMClassifier", 1, **two, **change)
    regressor = {"support_vectors": tuple(range(6)), "n_supports": 2, "rho": (0.5,)}
    assert bound("SVMRegressor", 1, **regressor, coefficients=(1.0, 2.0, 9.0))(X).tolist() == (
        bound("SVMRegressor", 1, **regressor, coefficients=(1.0, 2.0))(X).tolist()
    )
    with pytest.raises(ValueError, match="or more, found 1"):
        bound("SVMRegressor", 1, **regressor, coefficients=(1.0,))


@pytest.mark.parametrize("features", [1, 2, 4])
def test_new_values_are_one_for_each_feature_or_the_first(features: int) -> None:
    X = np.zeros((2, features), np.float32)
    new = bound("Imputer", 1, imputed_value_floats=(5.0, 6.0), replaced_value_float=0.0)(X)
    assert new.tolist() == [[5, 6] if features == 2 else [5] * features] * 2


def test_features_are_cut_and_filled() -> None:
    X = np.arange(6, dtype=np.float32).reshape(2, 3)
    joined = bound("FeatureVectorizer", 1, inputdimensions=(2, 4))(X, X)
    assert joined.tolist() == [[0, 1, 0, 1, 2, 0], [3, 4, 3, 4, 5, 0]]


def test_too_few_features_are_refused() -> None:
    with pytest.raises(ValueError, match="the trees test feature 2, X has 2 features"):
        bound("TreeEnsemble", 5, **STUMP)(np.zeros((1, 2), np.float32))


@pytest.mark.parametrize(
    ("op", "version", "attributes", "X", "message"),
    [
        ("OneHotEncoder", 1, {"cats_int64s": (1,), "zeros": 0}, np.array([7]), "7 is none of"),
        ("LinearRegressor", 1, {"coefficients": (1.0,) * 3}, np.ones((1, 4), "f"), "1 x 4"),
        ("ZipMap", 1, {"classlabels_int64s": (1,)}, np.ones((1, 2), "f"), "2 columns for the 1"),
        ("FeatureVectorizer", 1, {"inputdimensions": (3, 1)}, np.ones((1, 2)), "for 1 inputs"),
        ("Scaler", 1, {"offset": (1.0,) * 3}, np.ones((2, 1), "f"), "one for each of the 1"),
        ("SVMRegressor", 1, {"coefficients": (1.0,) * 3}, np.ones((2, 2), "f"), "expected 3"),
        ("Imputer", 1, {"imputed_value_int64s": (1,)}, np.ones(2, "f"), "imputed_value_floats"),
    ],
)
def test_unfit_inputs_are_refused(
    op: str, version: int, attributes: dict[str, Any], X: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bound(op, version, **attributes)(X)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("LabelEncoder", {"keys_int64s": (1,)}, r"values_\* must be set, found 0"),
        ("LabelEncoder", {"keys_int64s": (1,), "values_int64s": (1, 2)}, "1 keys and 2 values"),
        ("Normalizer", {"norm": "L3"}, "MAX, L1, L2, not 'L3'"),
        ("ZipMap", {}, "found neither"),
        ("LinearRegressor", {"post_transform": "TANH"}, "not 'TANH'"),
        ("SVMRegressor", {"kernel_type": "CUBIC"}, "not 'CUBIC'"),
        ("CastMap", {"cast_to": "TO_BOOL"}, "not 'TO_BOOL'"),
    ],
)
def test_unfit_attributes_are_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound(op, 4, **attributes)


def test_maps_of_more_axes_than_two_are_refused() -> None:
    kernel = TABLE.find("ai.onnx.ml", "ZipMap", 1)
    assert kernel is not None
    maps = kernel.bind(np, {"classlabels_int64s": [1, 2]}, 1)
    assert maps(np.ones((1, 2))) == [{1: 1.0, 2: 1.0}]
    with pytest.raises(ValueError, match=r"1 or 2 axes.*\(2, 2, 2\)"):
        maps(np.ones((2, 2, 2)))
