"""Two trees, drawn below, in every encoding: their votes counted leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
from ml_case import MlCase, f32, softmax, text

NAN = np.nan
# Two trees:  x₀ ≤ 0 ? A : (x₁ < 1 ? B : C)  and  x₂ > ½ ? D : E; NaN succeeds in the first node.
NODES = {
    "nodes_treeids": (0, 0, 0, 0, 0, 7, 7, 7),
    "nodes_nodeids": (0, 1, 2, 3, 4, 0, 1, 2),
    "nodes_featureids": (0, 0, 1, 0, 0, 2, 0, 0),
    "nodes_modes": (
        *("BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF"),
        *("BRANCH_GT", "LEAF", "LEAF"),
    ),
    "nodes_truenodeids": (1, 0, 3, 0, 0, 1, 0, 0),
    "nodes_falsenodeids": (2, 0, 4, 0, 0, 2, 0, 0),
    "nodes_missing_value_tracks_true": (1, 0, 0, 0, 0, 0, 0, 0),
}
SPLITS = (0.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0)
ROWS = f32([0, 0, 1], [1, 0, 0.5], [1, 1, 2], [NAN, 5, NAN])
LEAVES = [("A", "D"), ("B", "E"), ("C", "D"), ("A", "E")]
PLACES = {"A": (0, 1), "B": (0, 3), "C": (0, 4), "D": (7, 1), "E": (7, 2)}
# Per leaf, the weights of three targets; 0 stands for no vote.
BALLOT = {"A": (1, 0, 4), "B": (-2, 1, 0), "C": (3, 0, -5), "D": (0.5, 0, 1), "E": (-1, 2, 0)}
REDUCE = {"SUM": sum, "AVERAGE": lambda v: sum(v) / 2, "MIN": min, "MAX": max}


def cast(prefix: str, targets: int = 3) -> dict[str, Any]:
    rows = [
        (*PLACES[leaf], target, float(weight))
        for leaf, weights in BALLOT.items()
        for target, weight in enumerate(weights[:targets])
        if weight
    ]
    names = ("treeids", "nodeids", "ids", "weights")
    return {
        f"{prefix}_{n}": column for n, column in zip(names, zip(*rows, strict=True), strict=True)
    }


def tally(aggregate: str = "SUM") -> Any:
    def one(leaves: tuple[str, str], target: int) -> float:
        given = [BALLOT[leaf][target] for leaf in leaves if BALLOT[leaf][target]]
        return REDUCE[aggregate](given) if given else 0

    return f32(*[[one(leaves, target) for target in range(3)] for leaves in LEAVES])


def doubled(attributes: dict[str, Any], *names: str) -> dict[str, Any]:
    return {
        f"{key}_as_tensor" if key in names else key: np.array(value) if key in names else value
        for key, value in attributes.items()
    }


FOREST = {**NODES, "nodes_values": SPLITS}
REGRESSOR = {**FOREST, **cast("target"), "n_targets": 3}
CLASSIFIER = {**FOREST, **cast("class"), "classlabels_strings": ("u", "v", "w")}
BASE = (0.25, 0.5, -0.75)
LONE = {**FOREST, **cast("class", 1), "classlabels_int64s": (4, 7)}
LONE_SCORE = tally()[:, 0]
NODES_5 = {
    "nodes_featureids": (0, 1, 2),
    "nodes_modes": np.array([0, 1, 3], np.uint8),
    "nodes_missing_value_tracks_true": (1, 0, 0),
    "nodes_truenodeids": (0, 1, 3),
    "nodes_trueleafs": (1, 1, 1),
    "nodes_falsenodeids": (1, 2, 4),
    "nodes_falseleafs": (0, 1, 1),
    "tree_roots": (0, 2),
    "n_targets": 1,
    "leaf_targetids": (0,) * 5,
}
FIRST = [float(BALLOT[leaf][0]) for leaf in "ABCDE"]
CASES = [
    *(
        MlCase(
            "TreeEnsembleRegressor",
            version,
            [ROWS],
            tally(aggregate) + f32(*BASE),
            {**REGRESSOR, "aggregate_function": aggregate, "base_values": BASE},
            name=aggregate,
        )
        for version in (1, 3, 5)
        for aggregate in REDUCE
    ),
    MlCase(
        "TreeEnsembleRegressor",
        3,
        [ROWS.astype(np.float64)],
        tally(),
        doubled(REGRESSOR, "nodes_values", "target_weights"),
        name="double",
    ),
    *(
        MlCase(
            "TreeEnsembleClassifier",
            version,
            [ROWS],
            (text("w", "v", "u", "w"), softmax(tally() + f32(*BASE))),
            {**CLASSIFIER, "base_values": BASE, "post_transform": "SOFTMAX"},
        )
        for version in (1, 3, 5)
    ),
    MlCase(
        "TreeEnsembleClassifier",
        3,
        [ROWS.astype(np.float64)],
        (text("w", "v", "u", "w"), tally()),
        doubled(CLASSIFIER, "nodes_values", "class_weights"),
        name="double",
    ),
    MlCase(
        "TreeEnsembleClassifier",
        1,
        [ROWS],
        (np.array([7, 4, 7, 7]), np.stack([-LONE_SCORE - 0.25, LONE_SCORE + 0.25], 1)),
        {**LONE, "base_values": (0.25,)},
        name="signed-pair",
    ),
    MlCase(
        "TreeEnsembleClassifier",
        1,
        [ROWS],
        (
            np.array([7, 4, 7, 4]),
            np.stack([1 - f32(0.75, 0.25, 0.75, 0.5), f32(0.75, 0.25, 0.75, 0.5)], 1),
        ),
        {**LONE, "class_weights": (0.25, 0.0, 0.25, 0.5, 0.25)},
        name="probability-pair",
    ),
    MlCase(
        "TreeEnsembleClassifier",
        1,
        [ROWS],
        (np.array([1, 1, 1, 1]), LONE_SCORE[:, None] * f32(1, 0, 0)),
        {**LONE, "classlabels_int64s": (1, 2, 3)},
        name="classes-without-votes",
    ),
    MlCase(
        "TreeEnsembleClassifier",
        1,
        [ROWS],
        (np.array([7, 7, 7, 7]), LONE_SCORE[:, None]),
        {**LONE, "classlabels_int64s": (7,)},
        name="one-class",
    ),
    MlCase(
        "TreeEnsembleClassifier",
        1,
        [ROWS],
        (text("u", "u", "u", "u"), 1 / (1 + np.exp(-LONE_SCORE[:, None]))),
        {**FOREST, **cast("class", 1), "classlabels_strings": ("u",), "post_transform": "LOGISTIC"},
        name="one-class-of-text",
    ),
    *(
        MlCase(
            "TreeEnsemble",
            5,
            [ROWS.astype(dtype)],
            tally(aggregate)[:, :1].astype(dtype),
            {
                **NODES_5,
                "nodes_splits": np.array([0, 1, 0.5], dtype),
                "leaf_weights": np.array(FIRST, dtype),
                "aggregate_function": number,
            },
            name=f"{aggregate}-{np.dtype(dtype)}",
        )
        for dtype in (np.float16, np.float32, np.float64)
        for number, aggregate in enumerate(("AVERAGE", "SUM", "MIN", "MAX"))
    ),
    MlCase(
        "TreeEnsemble",
        5,
        [f32([2], [3], [8], [NAN])],
        f32([1], [0], [1], [0]),
        {
            "nodes_featureids": (0,),
            "nodes_modes": np.array([6], np.uint8),
            "nodes_splits": f32(0),
            "membership_values": f32(8, 2, 5, NAN),
            "nodes_truenodeids": (1,),
            "nodes_trueleafs": (1,),
            "nodes_falsenodeids": (0,),
            "nodes_falseleafs": (1,),
            "tree_roots": (0,),
            "leaf_targetids": (0, 0),
            "leaf_weights": f32(0, 1),
        },
        name="membership",
    ),
]
