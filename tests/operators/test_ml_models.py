"""Ensembles against ONNX's reference, and the ranks that onnxruntime takes in ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tenonnx
from tenonnx.errors import InvalidArgument

FEATURES = 3
LISTED = {
    "nodes_treeids": [0] * 3,
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0] * 3,
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
VECTORS = {"kernel_type": "LINEAR", "support_vectors": [1.0, 2.0], "rho": [1.0]}
OF_ROWS: dict[str, dict[str, Any]] = {
    "LinearClassifier": {"coefficients": [1.0] * 4, "classlabels_ints": [5, 6]},
    "LinearRegressor": {"coefficients": [1.0, 2.0]},
    "Normalizer": {},
    "SVMClassifier": {
        **VECTORS,
        "support_vectors": [1.0, 2.0, 3.0, 4.0],
        "vectors_per_class": [1, 1],
        "coefficients": [1.0, 2.0],
        "classlabels_ints": [5, 6],
    },
    "SVMRegressor": {**VECTORS, "n_supports": 1, "coefficients": [1.0]},
    "TreeEnsembleClassifier": {
        **LISTED,
        "class_ids": [0, 1],
        "class_treeids": [0, 0],
        "class_nodeids": [1, 2],
        "class_weights": [1.0, 2.0],
        "classlabels_int64s": [5, 6],
    },
    "TreeEnsembleRegressor": {
        **LISTED,
        "target_ids": [0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    },
}
OF_FEATURES: dict[str, dict[str, Any]] = {
    "ArrayFeatureExtractor": {},
    "Imputer": {"imputed_value_floats": [7.0]},
    "Scaler": {"offset": [1.0], "scale": [2.0]},
}


@pytest.mark.parametrize("axes", range(5))
@pytest.mark.parametrize("op", [*OF_ROWS, *OF_FEATURES])
def test_only_ranks_that_onnxruntime_takes_run(op: str, axes: int) -> None:
    inputs = [helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, None)]
    feeds = {"X": np.ones((1, 3, 2, 2)[4 - axes :], np.float32)}
    if op == "ArrayFeatureExtractor":
        inputs.append(helper.make_tensor_value_info("Y", onnx.TensorProto.INT64, None))
        feeds["Y"] = np.zeros(1, np.int64)
    outputs = ["label", "scores"] if op.endswith("Classifier") else ["y"]
    attributes = (OF_ROWS | OF_FEATURES)[op]
    node = helper.make_node(op, [*feeds], outputs, domain="ai.onnx.ml", **attributes)
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, results),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)],
    )
    session = tenonnx.InferenceSession(model, providers=["cpu"])
    if 0 < axes < 3 or (axes and op in OF_FEATURES):
        session.run(None, feeds)
        return
    with pytest.raises(InvalidArgument, match=rf"X has the shape \[{'.*, ' if axes else ''}"):
        session.run(None, feeds)


def votes(seed: int) -> tuple[dict[str, Any], Any]:
    """A classifier of two or three trees of four leaves, each with a vote or more; and its rows."""
    draw = np.random.default_rng(seed)
    trees, classes = int(draw.integers(2, 4)), int(draw.integers(2, 5))
    numbers = [*range(7)] * trees
    attributes: dict[str, Any] = {
        "nodes_treeids": np.repeat(range(trees), 7).tolist(),
        "nodes_nodeids": numbers,
        "nodes_featureids": draw.integers(0, FEATURES, 7 * trees).tolist(),
        "nodes_modes": (["BRANCH_LEQ"] * 3 + ["LEAF"] * 4) * trees,
        "nodes_values": draw.choice([0.25, 0.5, 1.0], 7 * trees).tolist(),
        "nodes_truenodeids": [2 * n + 1 if n < 3 else 0 for n in numbers],
        "nodes_falsenodeids": [2 * n + 2 if n < 3 else 0 for n in numbers],
        "classlabels_int64s": [10 + n for n in range(classes)],
        "post_transform": ["NONE", "LOGISTIC"][seed % 2],
    }
    single = seed % 3 > 0
    cast = [
        (tree, leaf, chosen, float(draw.choice([-1.0, -0.5, 0.25, 0.5, 1.0])))
        for tree in range(trees)
        for leaf in range(3, 7)
        for chosen in ([draw.integers(classes)] if single else range(classes))
    ]
    cast += [(0, 3, chosen, 0.125) for chosen in range(classes)]  # all stand for election
    ids = ("class_treeids", "class_nodeids", "class_ids", "class_weights")
    attributes |= dict(zip(ids, map(list, zip(*cast, strict=True)), strict=True))
    if seed % 4 == 3:
        attributes["base_values"] = draw.choice([-0.5, 0.25, 1.0], classes).tolist()
    return attributes, draw.choice([0.0, 0.25, 0.75, 2.0], (20, FEATURES)).astype(np.float32)


@pytest.mark.parametrize("seed", range(24))
def test_the_class_of_the_greatest_sum_wins(seed: int) -> None:
    attributes, X = votes(seed)
    node = helper.make_node(
        "TreeEnsembleClassifier", ["X"], ["label", "scores"], domain="ai.onnx.ml", **attributes
    )
    model = helper.make_model(
        helper.make_graph(
            [node],
            "g",
            [helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, [None, FEATURES])],
            [
                helper.make_tensor_value_info("label", onnx.TensorProto.INT64, [None]),
                helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, None),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)],
    )
    expected = ReferenceEvaluator(model).run(None, {"X": X})
    labels, scores = tenonnx.InferenceSession(model, providers=["cpu"]).run(None, {"X": X})
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-6)
