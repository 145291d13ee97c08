"""Rows for transforms that write classical models and loops over them as other operators."""

from __future__ import annotations

from typing import Any

import numpy as np
from drafts import Draft
from graph_rows import SHAPES

from models import INT64

ML = {"domain": "ai.onnx.ml"}


def distances(d: Draft) -> None:
    """A loop over points that measures how far the rows of a matrix are."""
    from onnx import helper

    from models import node, value

    kind = d.choose([np.float32, np.float64])
    x = d.input("x", *d.choose([(5, 3), (1, 3), (0, 3), (5, 1)]), dtype=kind)
    points = d.input("points", *d.choose([(4, 3), (1, 3), (4, 1), (4,)]), dtype=kind)
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    flip, axis = d.choose([("a", "b"), ("b", "a")]), d.choose([1, -1, 0])
    nodes = [
        node("Sub", " ".join(flip), "c"),
        node("ReduceSumSquare", "c axes", "e", keepdims=d.choose([0, 1])),
        node("Identity", "a", "kept"),
    ]
    axes = helper.make_tensor("axes", INT64, [1], [axis])
    body = helper.make_graph(
        nodes, "body", [value("a", code, None), value("b", code, None)],
        [value("kept", code, None), value("e", code, None)], [axes],
    )  # fmt: skip
    last = d.several("Scan", 2, x, points, body=body, num_scan_inputs=1)[1]
    d.outputs = [last]


def features(d: Draft) -> None:
    """Columns picked of features that are put side by side."""
    shape = d.choose([(3, 2), (2,), (1, 2), (3, 1)])
    a = d.input("a", *shape)
    if d.choose([True, False]):
        b = d.input("b", *shape)
        whole = d.add("FeatureVectorizer", a, b, inputdimensions=[shape[-1]] * 2, **ML)
    else:
        whole = d.add(d.choose(["Scaler", "Normalizer", "Binarizer", "Imputer"]), a, **ML)
    places = d.weight(np.array(d.choose([[1, 0], [0], [[1, 0]], [[1], [0]], 1])))
    if d.choose([False, True]):
        places = d.feed("places", d.weights.pop(places))
    d.add("ArrayFeatureExtractor", whole, places, **ML)


def scaler(d: Draft) -> None:
    """A difference and a product."""
    x = d.input("x", *d.choose([(3, 4), (4,), (1, 4), (3, 1), (2, 3, 4), (0, 4)]),
                dtype=d.choose([np.float32, np.float64, np.int64]))  # fmt: skip
    counts = d.choose([(4, 4), (1, 4), (4, 1), (1, 1), (3, 3)])
    offset, scale = (d.floats(count).tolist() for count in counts)
    d.add("Scaler", x, offset=offset, scale=scale, **ML)


def lp_norm(d: Draft) -> None:
    """Rows over their norm."""
    x = d.input("x", *d.choose(SHAPES[:3] + SHAPES[4:]))
    if d.choose([False, True]) and d.feeds["x"].size:
        d.feeds["x"].reshape(-1)[:4] = d.choose([0.0, np.inf, np.nan, 1e30, 1e-30])
    d.add("LpNormalization", x, axis=d.choose([-1, 0, -2]), p=d.choose([2, 1]))


def linear(d: Draft) -> None:
    """Linear models."""
    x = d.input("x", *d.choose([(3, 4), (4,), (1, 4), (3, 3), (3, 5), (0, 4)]),
                dtype=d.choose([np.float32, np.float64, np.int64]))  # fmt: skip
    rows = d.choose([3, 2, 1])
    weights = {"coefficients": d.floats(rows * 4).tolist()}
    if d.choose([True, False]):
        weights["intercepts"] = d.floats(rows).tolist()
    transform = d.choose(["NONE", "SOFTMAX", "LOGISTIC", "PROBIT", "SOFTMAX_ZERO"])
    if d.choose([True, False]):
        labels = d.choose(
            [{"classlabels_ints": [*range(rows)]}, {"classlabels_ints": [5, 7, 9][:rows]},
             {"classlabels_strings": ["a", "b", "c"][:rows]}, {"classlabels_ints": [0, 1]}]
        )  # fmt: skip
        made = d.several(
            "LinearClassifier", 2, x, post_transform=transform, **labels, **weights, **ML
        )
        d.outputs = made
    else:
        d.add("LinearRegressor", x, targets=rows, post_transform=transform, **weights, **ML)


def trees(d: Draft) -> None:
    """Trees that vote for classes."""
    x = d.input("x", *d.choose([(3, 2), (2,), (1, 2), (0, 2)]),
                dtype=d.choose([np.float32, np.float64]))  # fmt: skip
    labels: dict[str, Any] = d.choose(
        [{"classlabels_int64s": [0, 1, 2]}, {"classlabels_int64s": [4, 6, 8]},
         {"classlabels_strings": ["a", "b", "c"]}, {"classlabels_int64s": [0, 1]}]
    )  # fmt: skip
    count = len(next(iter(labels.values())))
    ids = d.choose([[0, 1, 2][:count], [0, 0, 0][:count], [1, 1, 0][:count]])
    d.outputs = d.several(
        "TreeEnsembleClassifier", 2, x, **labels, **ML,
        post_transform=d.choose(["NONE", "SOFTMAX", "LOGISTIC", "PROBIT"]),
        nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4], nodes_featureids=[0, 1, 0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "BRANCH_LT", *["LEAF"] * 3], nodes_values=[0.1, -0.2, 0, 0, 0],
        nodes_truenodeids=[1, 3, 0, 0, 0], nodes_falsenodeids=[2, 4, 0, 0, 0],
        class_treeids=[0] * count, class_nodeids=[2, 3, 4][:count], class_ids=ids,
        class_weights=d.choose([[0.5, 0.2, 0.9], [0.5, -0.2, 0.9]])[:count],
        **d.choose([{}, {"base_values": [0.5, 0.25, 0.1][:count]}]),
    )  # fmt: skip


ROWS = {
    "pairwise-distances": distances,
    "classical-models, features": features,
    "classical-models, scaler": scaler,
    "classical-models, p-norm": lp_norm,
    "classical-models, linear": linear,
    "classical-models, trees": trees,
}
