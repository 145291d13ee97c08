"""Trained scikit-learn estimators, their parameters handed to the operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import Normalizer
from sklearn.svm import SVC, SVR, OneClassSVM

from tenonnx_array import TABLE

X, LABELS = make_classification(
    400, 8, n_informative=6, n_classes=3, n_clusters_per_class=1, random_state=0
)
X = X.astype(np.float32)
HOLES = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X).astype(np.float32)
VALUES = X[:, 0] - 2 * X[:, 1] * X[:, 2]


def bound(op: str, version: int, outputs: int = 1, **attributes: Any) -> Any:
    found = TABLE.find("ai.onnx.ml", op, version)
    assert found is not None
    return found.bind(np, attributes, outputs)


def floats(array: Any) -> tuple[float, ...]:
    return tuple(np.ravel(array).tolist())


def listed(estimators: Any, prefix: str, scale: float = 1.0) -> dict[str, Any]:
    """Thresholds and votes stay doubles, so that the trees are the same trees."""
    columns: dict[str, list[Any]] = {name: [] for name in NODE_COLUMNS + VOTE_COLUMNS}
    for number, estimator in enumerate(estimators):
        tree = estimator.tree_
        leaf = tree.children_left < 0
        nodes = np.arange(tree.node_count)
        votes = tree.value[:, :, 0] if tree.n_outputs > 1 else tree.value[:, 0]
        node, target = np.nonzero(np.repeat(leaf[:, None], votes.shape[1], 1))
        values: tuple[Any, ...] = (
            *(np.full(len(nodes), number), nodes, np.where(leaf, 0, tree.feature)),
            *(np.where(leaf, "LEAF", "BRANCH_LEQ"), np.maximum(tree.children_left, 0)),
            *(np.maximum(tree.children_right, 0), tree.missing_go_to_left, tree.threshold),
            *(np.full(len(node), number), node, target, votes[node, target] * scale),
        )
        for column, added in zip(columns.values(), values, strict=True):
            column.extend(added.tolist())
    renamed: dict[str, Any] = {
        name.replace("votes", prefix): tuple(column) for name, column in columns.items()
    }
    for name in ("nodes_values", f"{prefix}_weights"):
        renamed[f"{name}_as_tensor"] = np.array(renamed.pop(name))
    return renamed


NODE_COLUMNS = [
    f"nodes_{name}"
    for name in (
        *("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids"),
        *("missing_value_tracks_true", "values"),
    )
]
VOTE_COLUMNS = [f"votes_{name}" for name in ("treeids", "nodeids", "ids", "weights")]


@pytest.mark.parametrize("data", [X, HOLES], ids=["complete", "missing values"])
def test_random_forest_classifier(data: Any) -> None:
    forest = RandomForestClassifier(30, random_state=0).fit(data, LABELS)
    run = bound(
        "TreeEnsembleClassifier",
        3,
        2,
        classlabels_strings=("a", "b", "c"),
        **listed(forest.estimators_, "class", 1 / 30),
    )
    labels, scores = run(data)
    np.testing.assert_allclose(scores, forest.predict_proba(data), rtol=1e-6, atol=1e-7)
    assert labels.tolist() == [("a", "b", "c")[c] for c in forest.predict(data)]


def test_random_forest_of_two_classes() -> None:
    forest = RandomForestClassifier(30, random_state=0).fit(X, LABELS > 0)
    attributes = listed(forest.estimators_, "class", 1 / 30)
    positive = [i for i, c in enumerate(attributes["class_ids"]) if c == 1]
    for name in ("treeids", "nodeids"):
        attributes[f"class_{name}"] = tuple(attributes[f"class_{name}"][i] for i in positive)
    attributes["class_ids"] = (0,) * len(positive)
    attributes["class_weights_as_tensor"] = attributes["class_weights_as_tensor"][positive]
    labels, scores = bound("TreeEnsembleClassifier", 3, 2, classlabels_int64s=(0, 1), **attributes)(
        X
    )
    np.testing.assert_allclose(scores, forest.predict_proba(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(labels, forest.predict(X))


def test_random_forest_regressor() -> None:
    targets = np.stack([VALUES, X[:, 3]], axis=1)
    forest = RandomForestRegressor(20, random_state=0).fit(X, targets)
    run = bound(
        "TreeEnsembleRegressor",
        3,
        aggregate_function="AVERAGE",
        n_targets=2,
        **listed(forest.estimators_, "target"),
    )
    np.testing.assert_allclose(run(X), forest.predict(X), rtol=1e-5, atol=1e-6)


def test_gradient_boosting_regressor() -> None:
    model = GradientBoostingRegressor(n_estimators=40, random_state=0).fit(X, VALUES)
    run = bound(
        "TreeEnsembleRegressor",
        3,
        n_targets=1,
        base_values=floats(model.init_.constant_),
        **listed(model.estimators_[:, 0], "target", model.learning_rate),
    )
    np.testing.assert_allclose(run(X)[:, 0], model.predict(X), rtol=1e-5, atol=1e-5)


def test_many_rows_are_walked_in_blocks() -> None:
    forest = RandomForestRegressor(50, random_state=0, max_depth=6).fit(X, VALUES)
    attributes = listed(forest.estimators_, "target")
    run = bound("TreeEnsembleRegressor", 3, aggregate_function="AVERAGE", n_targets=1, **attributes)
    many = np.tile(X, (5, 1))
    np.testing.assert_array_equal(run(many), np.tile(run(X), (5, 1)))


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 3])
def test_support_vector_classifier(kernel: str, classes: int) -> None:
    y = np.minimum(LABELS, classes - 1)
    model = SVC(kernel=kernel, gamma=0.1, coef0=0.5, decision_function_shape="ovo").fit(X, y)
    # scikit-learn turns the sign of libsvm's decision when there are two classes.
    sign = -1 if classes == 2 else 1
    labels, scores = bound(
        "SVMClassifier",
        1,
        2,
        classlabels_ints=tuple(range(classes)),
        coefficients=floats(sign * model.dual_coef_),
        kernel_params=(0.1, 0.5, 3.0),
        kernel_type=kernel.upper(),
        rho=floats(sign * model.intercept_),
        support_vectors=floats(model.support_vectors_),
        vectors_per_class=tuple(model.n_support_.tolist()),
    )(X)
    decisions = model.decision_function(X)
    if classes == 2:
        decisions = np.stack([decisions, -decisions], axis=1)
    np.testing.assert_allclose(scores, decisions, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(labels, model.predict(X))


@pytest.mark.parametrize("model", [SVR(gamma=0.1), OneClassSVM(gamma=0.1)], ids=["SVR", "one"])
def test_support_vector_regressor(model: Any) -> None:
    one_class = isinstance(model, OneClassSVM)
    model.fit(X) if one_class else model.fit(X, VALUES)
    attributes = {
        "coefficients": floats(model.dual_coef_),
        "kernel_params": (0.1, 0.0, 0.0),
        "kernel_type": "RBF",
        "n_supports": len(model.support_vectors_),
        "rho": floats(model.intercept_),
        "support_vectors": floats(model.support_vectors_),
    }
    scores = bound("SVMRegressor", 1, **attributes)(X)[:, 0]
    expected = model.decision_function(X) if one_class else model.predict(X)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-4)
    if one_class:
        np.testing.assert_array_equal(
            bound("SVMRegressor", 1, one_class=1, **attributes)(X)[:, 0], model.predict(X)
        )


@pytest.mark.parametrize("classes", [2, 3])
def test_logistic_regression(classes: int) -> None:
    y = np.minimum(LABELS, classes - 1)
    model = LogisticRegression().fit(X, y)
    labels, scores = bound(
        "LinearClassifier",
        1,
        2,
        classlabels_ints=tuple(range(classes)),
        coefficients=floats(model.coef_),
        intercepts=floats(model.intercept_),
        post_transform="LOGISTIC" if classes == 2 else "SOFTMAX",
    )(X)
    np.testing.assert_allclose(scores, model.predict_proba(X), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(labels, model.predict(X))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_normalizer(norm: str) -> None:
    expected = Normalizer(norm).transform(X)
    np.testing.assert_allclose(bound("Normalizer", 1, norm=norm.upper())(X), expected, rtol=1e-6)
