"""Classical models written out in ONNX's own operators give what ai.onnx.ml's operators give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenonnx
from fusing import normal, notes, session
from models import FLOAT, INT64, model, node, value

X = normal(40, 5)
X[0] = 0
X[1, 2] = np.nan
X[2] *= 1e30
STRING = 8
LABELS: dict[str, Any] = {"places": (0, 1, 2), "numbers": (7, -1, 3), "words": ("a", "é", "")}


def compare(
    nodes: list[Any], outputs: dict[str, int], x: Any = X, kind: int = FLOAT, **weights: Any
) -> Any:
    """Compare runs with and without the transform; return what it says and what is left."""
    inputs = [value("x", kind, [None, *x.shape[1:]])]
    results = [value(name, dtype, None) for name, dtype in outputs.items()]
    proto = model(nodes, inputs, results, weights, domains={"ai.onnx.ml": 3})
    expected = session(proto, disabled=("classical-models",)).run(None, {"x": x})
    done = session(proto)
    for new, old in zip(done.run(None, {"x": x}), expected, strict=True):
        assert (new.dtype, new.shape) == (old.dtype, old.shape)
        if old.dtype == object or old.dtype.kind == "i":
            assert new.tolist() == old.tolist()
        else:
            np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-6)
    return " ".join(notes(done, "classical-models"))


def labeled(labels: Any, ints: str) -> dict[str, Any]:
    return {"classlabels_strings" if isinstance(labels[0], str) else ints: labels}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifiers(labels: Any, transform: str, classes: int) -> None:
    given = labeled(labels[:classes], "classlabels_ints")
    layer = node(
        *("LinearClassifier", "x", "l p"),
        coefficients=normal(classes * 5).tolist(),
        intercepts=normal(classes).tolist(),
        post_transform=transform,
        domain="ai.onnx.ml",
        **given,
    )
    said = compare([layer], {"l": STRING if isinstance(labels[0], str) else INT64, "p": FLOAT})
    assert said.startswith("matched 1 LinearClassifier")


@pytest.mark.parametrize("rows", [1, 2])
def test_classifiers_of_two_classes_without_intercepts_stay(rows: int) -> None:
    layer = node(
        *("LinearClassifier", "x", "l p"),
        coefficients=normal(rows * 5).tolist(),
        classlabels_ints=[3, 4],
        domain="ai.onnx.ml",
    )
    assert "matched" not in compare([layer], {"l": INT64, "p": FLOAT})


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "PROBIT"])
def test_one_row_of_coefficients_for_two_classes(transform: str) -> None:
    layer = node(
        *("LinearClassifier", "x", "l p"),
        coefficients=normal(5).tolist(),
        intercepts=[0.5],
        classlabels_ints=[4, 2],
        post_transform=transform,
        domain="ai.onnx.ml",
    )
    said = compare([layer], {"l": INT64, "p": FLOAT}, X / 3 + 0.2)
    assert said.startswith("matched") == (transform == "LOGISTIC")


@pytest.mark.parametrize("features", [5, None])
def test_features_that_are_not_known_are_not_broadcast(features: int | None) -> None:
    """A column and five offsets: onnxruntime refuses it, numpy makes five columns."""
    layer = node("Scaler", "x", "y", offset=[1.0] * 5, scale=[2.0] * 5, domain="ai.onnx.ml")
    proto = model([layer], [value("x", FLOAT, [None, features])], [value("y")])
    done = session(proto)
    np.testing.assert_array_equal(done.run(None, {"x": X})[0], (X - 1) * 2)
    with pytest.raises(tenonnx.InvalidArgument):
        done.run(None, {"x": X[:, :1]})


@pytest.mark.parametrize(
    ("features", "disabled"), [(2, ()), (2, ("classical-models",)), (None, ("classical-models",))]
)
def test_coefficients_that_are_left_over_are_not_read(
    features: int | None, disabled: tuple[str, ...]
) -> None:
    """onnxruntime's answers: its own example, logreg_iris.onnx, has twelve for two features."""
    nodes = [
        node(
            *("LinearClassifier", "x", "l s"),
            coefficients=np.arange(12, dtype=np.float32).tolist(),
            intercepts=[1.0, 2.0, 3.0],
            classlabels_ints=[5, 6, 7],
        ),
        node(
            *("LinearRegressor", "x", "y"),
            coefficients=np.arange(7, dtype=np.float32).tolist(),
            intercepts=[1.0, 2.0],
            targets=2,
        ),
        # Of other than one intercept a target none counts.
        node("LinearRegressor", "x", "z", coefficients=[1.0] * 6, intercepts=[9.0], targets=2),
    ]
    for each in nodes:
        each.domain = "ai.onnx.ml"
    outputs = [value(name, INT64 if name == "l" else FLOAT, None) for name in "lsyz"]
    proto = model(nodes, [value("x", FLOAT, [None, features])], outputs, domains={"ai.onnx.ml": 3})
    x = np.arange(4, dtype=np.float32).reshape(2, 2)
    labels, scores, y, z = session(proto, disabled=disabled).run(None, {"x": x})
    assert labels.tolist() == [7, 7]
    assert scores.tolist() == [[2, 5, 8], [4, 15, 26]]
    assert y.tolist() == [[2, 5], [4, 15]]
    assert z.tolist() == [[1, 1], [5, 5]]


@pytest.mark.parametrize("operator", ["LinearClassifier", "LinearRegressor"])
@pytest.mark.parametrize("disabled", [(), ("classical-models",)])
def test_too_few_coefficients_are_refused(operator: str, disabled: tuple[str, ...]) -> None:
    of = {"classlabels_ints": [1, 2]} if operator == "LinearClassifier" else {"targets": 2}
    layer = node(
        *(operator, "x", "l s" if len(operator) > 15 else "l"),
        coefficients=[1.0] * 6,
        intercepts=[1.0, 2.0],
        domain="ai.onnx.ml",
        **of,
    )
    kind = INT64 if operator == "LinearClassifier" else FLOAT
    proto = model([layer], [value("x", FLOAT, [None, 4])], [value("l", kind, None)])
    proto.opset_import.add(domain="ai.onnx.ml", version=3)
    with pytest.raises(tenonnx.Fail, match="2 x 4 coefficients"):
        session(proto, disabled=disabled).run(None, {"x": np.ones((3, 4), np.float32)})


@pytest.mark.parametrize("scaling", [{}, {"offset": [0.5], "scale": [2.0]}, {"scale": [1.0] * 5}])
@pytest.mark.parametrize("norm", ["L1", "L2", "MAX"])
def test_features(scaling: Any, norm: str) -> None:
    nodes = [
        node("Imputer", "x", "i", imputed_value_floats=[1.0], replaced_value_float=np.nan),
        node("Scaler", "i", "s", **scaling),
        node("Normalizer", "s", "n", norm=norm),
        node("ArrayFeatureExtractor", "n c", "y"),
        node("LinearRegressor", "y", "z", coefficients=[1.0, 2.0, 3.0, 4.0], targets=2),
    ]
    for each in nodes:
        each.domain = "ai.onnx.ml"
    said = compare(nodes, {"n": FLOAT, "z": FLOAT}, c=np.array([[3, 0]]))
    assert "1 ArrayFeatureExtractor, 1 LinearRegressor" in said
    assert "1 Scaler" in said


@pytest.mark.parametrize("keepdims", [0, 1])
def test_logarithms_of_sums(keepdims: int) -> None:
    x = X.copy()
    x[3], x[4] = -np.inf, np.inf
    x[5, 1], x[6, 2], x[7] = np.inf, -np.inf, 3e38
    layer = node("ReduceLogSumExp", "x a", "y", keepdims=keepdims)
    assert compare([layer], {"y": FLOAT}, x, a=np.array([1])) == "matched 1 ReduceLogSumExp"


def test_doubles_are_left_to_the_operator() -> None:
    layer = node("Scaler", "x", "y", offset=[0.5], scale=[3.0], domain="ai.onnx.ml")
    said = compare([layer], {"y": FLOAT}, X.astype(np.float64), 11)
    assert "not known to be of float32" in said


@pytest.mark.parametrize("labels", [np.arange(5), np.array([5, 4, 3, 2, 1]), list("abcde")])
def test_labels_of_the_greatest(labels: Any) -> None:
    labels = np.array(labels)
    words = labels.dtype.kind == "U"
    nodes = [
        node("ArgMax", "x", "i", axis=1),
        node("ArrayFeatureExtractor", "c i", "y", domain="ai.onnx.ml"),
    ]
    weights = labels.astype(object) if words else labels
    said = compare(nodes, {"y": STRING if words else INT64}, c=weights)
    assert said == "matched 1 ArrayFeatureExtractor"


def trees(votes: list[tuple[int, int, float]], **attributes: Any) -> Any:
    """A stump per vote: a feature, the class that both leaves vote for, and a weight."""
    columns: dict[str, list[Any]] = {}
    for tree, (feature, target, weight) in enumerate(votes):
        for number in range(3):
            leaf = number > 0
            row = {
                "nodes_treeids": tree,
                "nodes_nodeids": number,
                "nodes_featureids": 0 if leaf else feature,
                "nodes_modes": "LEAF" if leaf else "BRANCH_LEQ",
                "nodes_values": 0.0,
                "nodes_truenodeids": 0 if leaf else 1,
                "nodes_falsenodeids": 0 if leaf else 2,
            }
            if leaf:
                row |= {"class_treeids": tree, "class_nodeids": number, "class_ids": target}
                row["class_weights"] = weight / number
            for name, item in row.items():
                columns.setdefault(name, []).append(item)
    return node("TreeEnsembleClassifier", "x", "l p", domain="ai.onnx.ml", **columns, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("base", [[], [0.25, -0.5, 1.0]])
def test_trees_of_three_classes(transform: str, base: Any) -> None:
    layer = trees(
        [(0, 0, 1.0), (1, 1, 0.7), (2, 2, 0.8), (3, 0, -0.5)],
        classlabels_strings=["x", "y", "z"],
        post_transform=transform,
        **({"base_values": base} if base else {}),
    )
    said = compare([layer], {"l": STRING, "p": FLOAT})
    assert said == "matched 1 TreeEnsembleClassifier"


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("base", [[], [0.25]])
@pytest.mark.parametrize("signed", [True, False])
def test_trees_of_two_classes_with_one_score(transform: str, base: Any, signed: bool) -> None:
    layer = trees(
        [(0, 0, 0.3), (1, 0, 0.45), (2, 0, -0.35 if signed else 0.15)],
        classlabels_int64s=[0, 1],
        post_transform=transform,
        **({"base_values": base} if base else {}),
    )
    said = compare([layer], {"l": INT64, "p": FLOAT})
    assert said.startswith("matched") == (signed or transform != "LOGISTIC")


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize(
    ("voted", "base"),
    [((0,), [0.75, 0.5]), ((0,), [2.0]), ((1,), [2.0]), ((0, 1), [2.0])],
)
def test_base_values_of_two_classes(voted: Any, base: Any, transform: str) -> None:
    votes = [(0, voted[0], 0.3), (1, voted[-1], 0.45), (2, voted[0], -0.35)]
    layer = trees(votes, classlabels_int64s=[0, 1], post_transform=transform, base_values=base)
    results = [value("l", INT64, None), value("p", FLOAT, None)]
    made = model([layer], [value("x", FLOAT, [None, 5])], results, domains={"ai.onnx.ml": 3})
    onnxruntime = pytest.importorskip("onnxruntime")
    ours, theirs = (
        runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": X}
        )
        for runtime in (tenonnx, onnxruntime)
    )
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-6)
    if len(voted) == 1:
        assert ours[0].tolist() == theirs[0].tolist()


@pytest.mark.parametrize(
    ("votes", "classes"),
    [([(0, 0, 0.1)] * 5, 2), ([(0, 0, 0.5), *[(0, 1, 0.1)] * 5, (0, 2, 0.2)], 3)],
)
def test_scores_that_are_equal_as_returned_are_a_tie(votes: Any, classes: int) -> None:
    layer = trees(votes, classlabels_int64s=range(classes))
    assert compare([layer], {"l": INT64, "p": FLOAT}) == "matched 1 TreeEnsembleClassifier"


def test_a_class_without_votes_never_wins() -> None:
    layer = trees([(0, 0, -1.0), (1, 2, -2.0)], classlabels_int64s=[0, 1, 2])
    said = compare([layer], {"l": INT64, "p": FLOAT})
    assert "classes that no leaf votes for" in said


def test_a_model_of_no_other_operators_gets_their_opset() -> None:
    layer = node("LinearRegressor", "x", "y", coefficients=[1.0] * 5, domain="ai.onnx.ml")
    proto = model(
        [layer],
        [value("x", FLOAT, [None, 5])],
        [value("y", FLOAT, None)],
        domains={"ai.onnx.ml": 3},
    )
    del proto.opset_import[0]
    done = tenonnx.InferenceSession(proto, providers=["cpu"])
    np.testing.assert_allclose(done.run(None, {"x": X[3:]})[0], X[3:].sum(1, keepdims=True), 1e-5)


@pytest.mark.parametrize("axis", [1, -1, 0])
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_products_of_rows_and_their_squares(axis: int, beta: float) -> None:
    layers = [
        node("ReduceSumSquare", "x axes", "own"),
        node("Mul", "own half", "c"),
        node("Gemm", "x centers c", "y", alpha=-2.0, beta=beta, transB=1),
    ]
    weights = {"axes": np.array([axis]), "half": np.float32([0.5]), "centers": normal(5, 5)}
    said = compare(layers, {"y": FLOAT}, X[1:6], **weights)
    assert said.startswith("matched 1 Gemm") == (axis != 0 and beta == 1)


@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("p", [1, 2])
def test_normalization(axis: int, p: int) -> None:
    said = compare([node("LpNormalization", "x", "y", axis=axis, p=p)], {"y": FLOAT})
    assert said.startswith("matched 1 LpNormalization")


@pytest.mark.parametrize("opset", [13, 21])
def test_models_that_are_saved_can_be_opened(opset: int, tmp_path: Path) -> None:
    layer = node("Normalizer", "x", "y", domain="ai.onnx.ml", norm="L2")
    domains = {"": opset, "ai.onnx.ml": 1}
    proto = model([layer], [value("x", FLOAT, [None, 5])], [value("y")], domains=domains)
    path = str(tmp_path / "saved.onnx")
    made = session(proto, optimized_model_filepath=path).run(None, {"x": X})
    again = tenonnx.InferenceSession(path).run(None, {"x": X})
    np.testing.assert_allclose(again[0], made[0], rtol=1e-6)
