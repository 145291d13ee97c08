"""Norms, reductions, copies, chains of elementwise operators, and classical models."""

from __future__ import annotations

import numpy as np
from arrays import ML, MS, f32, i64, ids, step
from trial import chain, one

TREES = {
    "nodes_treeids": [0] * 5,
    "nodes_nodeids": [0, 1, 2, 3, 4],
    "nodes_featureids": [1, 3, 0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF", "LEAF", "LEAF"],
    "nodes_values": [0.5, -0.5, 0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 3, 0, 0, 0],
    "nodes_falsenodeids": [2, 4, 0, 0, 0],
    "target_treeids": [0, 0, 0],
    "target_nodeids": [2, 3, 4],
    "target_ids": [0, 1, 1],
    "target_weights": [1.0, 2.0, 3.0],
    "n_targets": 2,
}

FOREST = {
    name: values if name == "n_targets" else values * 300 for name, values in TREES.items()
} | {
    f"{prefix}_treeids": [tree for tree in range(300) for _ in range(count)]
    for prefix, count in (("nodes", 5), ("target", 3))
}
"""Trees whose parts are several threads'."""

GRAMS = {
    "max_gram_length": 3,
    "max_skip_count": 1,
    "min_gram_length": 1,
    "mode": "TFIDF",
    "ngram_counts": [0, 3, 7],
    "ngram_indexes": [0, 2, 1, 7, 3, 4],
    "pool_int64s": [0, 1, 5, 1, 2, 2, 4, 4, 5, 6],
    "weights": [0.5, 2.0, 1.0, 1.0, 3.0, 1.0],
}

PIXELS = ids(0, 99, 1, 3, 30, 20).astype(np.uint8)
SCALES, LESS = np.float32([1, 1, 1.5, 2]), np.float32([1, 1, 0.4, 0.7])
BYTES = ids(-9, 9, 70, 99).astype(np.int8)
WORDS = ids(1, 9, 7, 3, 9).astype(np.int32)
DOUBLES = f32(300, 300).astype(np.float64)
HALVES = f32(30, 33).astype(np.float16)

MACHINE = {
    "classlabels_ints": [0, 1, 2],
    "coefficients": [0.1, -0.2, 0.3, 0.4, -0.5, 0.6],
    "kernel_params": [0.5, 0.0, 0.0],
    "kernel_type": "RBF",
    "prob_a": [-1.0, -1.1, -1.2],
    "prob_b": [0.1, 0.2, 0.3],
    "rho": [0.1, 0.2, 0.3],
    "support_vectors": [0.1 * n for n in range(12)],
    "vectors_per_class": [1, 1, 1],
}

ROWS = [
    one(
        "LayerNormalization",
        "LayerNormalization",
        [f32(300, 300), f32(300), f32(300)],
        constants=(1, 2),
    ),
    one("LayerNormalization fed", "LayerNormalization", [f32(300, 300), f32(300), f32(300)]),
    one("LayerNormalization doubles", "LayerNormalization", [DOUBLES, DOUBLES[0], DOUBLES[1]]),
    one("RMSNormalization", "RMSNormalization", [f32(7, 33), f32(33)], constants=(1,), opset=23),
    one(
        "SkipLayerNormalization",
        "SkipLayerNormalization",
        [f32(2, 9, 33), f32(2, 9, 33), f32(33), f32(33), f32(33)],
        domain=MS,
        constants=(2, 3, 4),
    ),
    one("LayerNormalization halves", "LayerNormalization", [HALVES, HALVES[0], HALVES[1]]),
    one("ReduceLogSum", "ReduceLogSum", [DOUBLES, i64(1)], constants=(1,)),
    one("Div bytes", "Div", [BYTES, np.abs(BYTES[:1]) + np.int8(1)]),
    one("Softmax", "Softmax", [f32(300, 300)]),
    one("Softmax of columns", "Softmax", [f32(3, 30, 300)], axis=1),
    one("Softmax doubles", "Softmax", [DOUBLES]),
    one("LogSoftmax doubles", "LogSoftmax", [DOUBLES], axis=0),
    one(
        "BatchNormalization doubles",
        "BatchNormalization",
        [DOUBLES, *[np.abs(DOUBLES[0])] * 4],
        constants=(1, 2, 3, 4),
    ),
    *(
        one(
            f"Transpose runs {x.dtype}",
            "Transpose",
            [x.reshape(-1, 3, x.shape[-1])],
            perm=[1, 0, 2],
        )
        for x in (BYTES[:66], DOUBLES, f32(300, 300))
    ),
    *(
        one(f"Transpose few {x.dtype} {order}", "Transpose", [x], perm=order)
        for x in (BYTES[:66].reshape(2, 33, 99), DOUBLES.reshape(300, 100, 3), f32(4, 50, 30))
        for order in ([1, 2, 0], [2, 0, 1])
    ),
    one("DepthToSpace blocks", "DepthToSpace", [f32(1, 12, 30, 33)], blocksize=2),
    one("SpaceToDepth blocks", "SpaceToDepth", [f32(1, 3, 30, 36)], blocksize=3),
    one("Transpose long runs", "Transpose", [f32(3, 2, 20000)], perm=[1, 0, 2]),
    one(
        "Slice steps",
        "Slice",
        [BYTES, i64(0, -1), i64(70, -98), i64(0, 1), i64(2, -3)],
        constants=(1, 2, 3, 4),
    ),
    one("Expand middle", "Expand", [f32(70, 1, 33), i64(70, 9, 33)], constants=(1,)),
    one("Trilu", "Trilu", [f32(3, 40, 53), np.array(-3)], constants=(1,)),
    one("CumSum", "CumSum", [f32(300, 300), i64(-1)], constants=(1,)),
    one("CumSum back", "CumSum", [ids(-9, 9, 3, 7, 33), i64(1)], constants=(1,), reverse=1),
    one("CumSum others", "CumSum", [DOUBLES, i64(0)], constants=(1,), exclusive=1),
    one("TopK", "TopK", [f32(300, 300), i64(7)], outputs=2),
    one("TopK many", "TopK", [f32(30, 300), i64(70)], outputs=2, constants=(1,)),
    one("TopK columns", "TopK", [f32(100, 33), i64(70)], outputs=2, constants=(1,), axis=0),
    one("TopK const", "TopK", [f32(300, 300), i64(7)], outputs=2, constants=(1,)),
    one("Where", "Where", [ids(0, 2, 3, 1, 33).astype(bool), f32(40, 33), f32(3, 40, 1)]),
    one("Where number", "Where", [ids(0, 2, 50, 70).astype(bool), f32(), f32(50, 70)]),
    one("GatherElements", "GatherElements", [f32(3, 40, 33), ids(-33, 33, 3, 40, 800)], axis=-1),
    one(
        "GatherElements const",
        "GatherElements",
        [f32(3, 40, 33), ids(-33, 33, 3, 40, 80)],
        constants=(1,),
        axis=-1,
    ),
    *(
        one(
            f"Gather {kind}",
            "Gather",
            [f32(50, 33), ids(-50, 50, 300, 3)],
            constants=where,
            axis=axis,
        )
        for kind, where, axis in (
            ("fed", (), 0),
            ("table", (0,), 0),
            ("ids", (1,), 0),
            ("columns", (), 1),
        )
        if axis == 0
    ),
    one("Gather columns", "Gather", [f32(50, 33), ids(-33, 33, 7)], axis=1),
    one("GatherND", "GatherND", [f32(9, 8, 7), ids(-7, 7, 30, 2)]),
    one("ScatterElements", "ScatterElements", [f32(40, 33), ids(-40, 40, 9, 33), f32(9, 33)]),
    one("ScatterND", "ScatterND", [f32(9, 8, 7), ids(-7, 7, 30, 2), f32(30, 7)]),
    one(
        "GatherElements first",
        "GatherElements",
        [BYTES, ids(-70, 70, 300, 99)],
    ),
    one("GatherElements narrow", "GatherElements", [f32(90, 5), ids(-90, 90, 5000, 3)]),
    one(
        "ScatterElements add",
        "ScatterElements",
        [f32(40, 33), ids(-33, 33, 40, 9), f32(40, 9)],
        axis=1,
        reduction="add",
    ),
    one(
        "ScatterElements max",
        "ScatterElements",
        [DOUBLES, ids(-9, 9, 30, 300), DOUBLES[:30]],
        reduction="max",
    ),
    one("GatherND numbers", "GatherND", [f32(9, 8), ids(-8, 8, 300, 2)]),
    one(
        "ScatterND add",
        "ScatterND",
        [f32(9, 8, 7), ids(-7, 7, 30, 2), f32(30, 7)],
        reduction="add",
    ),
    *(
        one(
            f"ScatterElements {dtype}",
            "ScatterElements",
            [ids(0, 9, 40, 33, dtype=dtype), ids(-40, 40, 9, 33), ids(0, 9, 9, 33, dtype=dtype)],
            reduction="max",
        )
        for dtype in ("uint16", "float16", "uint64")
    ),
    one("OneHot", "OneHot", [ids(-9, 9, 30), i64(9), np.float32([0, 1])]),
    one("ReverseSequence", "ReverseSequence", [f32(9, 5, 7), ids(1, 9, 5)]),
    one("Pad", "Pad", [f32(9, 30, 70), i64(1, 2, 3, 4, 5, 6)]),
    one("Pad edge", "Pad", [f32(9, 30, 70), i64(1, 2, 3, 4, 5, 6)], mode="reflect"),
    one("Tile", "Tile", [f32(9, 30, 7), i64(2, 1, 3)]),
    one("Expand", "Expand", [f32(9, 1, 70), i64(2, 9, 30, 70)]),
    one("Slice", "Slice", [f32(40, 50, 33), i64(1, -40), i64(30, 50), i64(0, 1), i64(2, 3)]),
    one("Resize bytes", "Resize", [PIXELS, None, SCALES], constants=(1,), mode="linear"),
    one("Resize less", "Resize", [PIXELS, None, LESS], constants=(1,), mode="cubic", antialias=1),
    one("Resize cubic", "Resize", [f32(1, 3, 30, 20), None, SCALES], constants=(1,), mode="cubic"),
    one("DepthToSpace", "DepthToSpace", [f32(2, 16, 20, 20)], blocksize=2),
    one("Split", "Split", [f32(40, 300), i64(100, 150, 50)], outputs=3, axis=1),
    one("Concat", "Concat", [f32(4, 40000), f32(4, 40001)], axis=1),
    one("Concat of many", "Concat", [f32(4, 4000 + i) for i in range(17)], axis=1),
    chain(
        "Transpose Relu",
        [("Transpose", [f32(64, 48, 33)], {"perm": [2, 0, 1]}), ("Relu", [...], {})],
    ),
    one("Transpose", "Transpose", [f32(40, 50, 60)], perm=[1, 2, 0]),
    one("Transpose bytes", "Transpose", [ids(0, 99, 40, 50, 33).astype(np.int8)], perm=[2, 0, 1]),
    one("Transpose halves", "Transpose", [f32(33, 50, 3).astype(np.float16)], perm=[2, 1, 0]),
    one("Transpose int64", "Transpose", [ids(0, 99, 7, 300)], perm=[1, 0]),
    one(
        "Transpose bytes' rows", "Transpose", [ids(0, 9, 7, 9, 33).astype(np.int8)], perm=[1, 0, 2]
    ),
    one("Transpose of few", "Transpose", [f32(4, 50, 33)], perm=[2, 1, 0]),
    one("Transpose to few", "Transpose", [f32(33, 50, 3)], perm=[2, 1, 0]),
    one("Transpose runs", "Transpose", [f32(50, 2, 33, 2)], perm=[0, 2, 1, 3]),
    chain(
        "Mul Add Tanh",
        [
            ("Mul", [f32(300, 300), f32(300)], {}),
            ("Add", [..., f32(300, 1)], {}),
            ("Tanh", [...], {}),
        ],
    ),
    chain(
        "Mul Add fed",
        [
            ("Mul", [f32(3, 1, 50), f32(40, 1)], {}),
            ("Add", [..., f32(3, 40, 50)], {}),
            ("Erf", [...], {}),
        ],
        fed=(0, 1, 2),
    ),
    chain(
        "Mul Tanh halves",
        [
            ("Cast", [f32(3, 41, 50).astype(np.float16)], {"to": 1}),
            ("Mul", [..., f32(41, 1)], {}),
            ("Tanh", [...], {}),
            ("Cast", [...], {"to": 10}),
        ],
        fed=(0, 1),
    ),
    one("Tanh halves", "Tanh", [f32(3, 1025).astype(np.float16)]),
    one("PRelu", "PRelu", [f32(3, 40, 50), f32(40, 1)], constants=(1,)),
    one(
        "BatchNormalization",
        "BatchNormalization",
        [f32(2, 30, 20), f32(30), f32(30), f32(30), np.abs(f32(30))],
        constants=(1, 2, 3, 4),
    ),
    one("Where", "Where", [f32(30, 40) > 0, f32(30, 40), f32(40)]),
    one("CDist", "CDist", [f32(30, 9), f32(40, 9)], domain=MS, constants=(1,), metric="euclidean"),
    one(
        "CDist double",
        "CDist",
        [f32(30, 9).astype(np.float64), f32(40, 9).astype(np.float64)],
        domain=MS,
        constants=(1,),
    ),
    one(
        "TreeEnsembleRegressor",
        "TreeEnsembleRegressor",
        [f32(300, 4)],
        domain=ML,
        opset=20,
        **TREES,
    ),
    one(
        "TreeEnsembleRegressor double",
        "TreeEnsembleRegressor",
        [f32(9, 4).astype(np.float64)],
        domain=ML,
        opset=20,
        **TREES,
    ),
    one(
        "TreeEnsembleRegressor row",
        "TreeEnsembleRegressor",
        [f32(1, 4)],
        domain=ML,
        opset=20,
        **TREES,
    ),
    one(
        "TreeEnsembleRegressor parts",
        "TreeEnsembleRegressor",
        [f32(19, 4)],
        domain=ML,
        opset=20,
        **FOREST,
    ),
    *(
        one(f"Normalizer {norm}", "Normalizer", [f32(300, 33)], domain=ML, opset=20, norm=norm)
        for norm in ("MAX", "L1", "L2")
    ),
    one("Normalizer doubles", "Normalizer", [DOUBLES], domain=ML, opset=20, norm="L2"),
    one("TfIdfVectorizer", "TfIdfVectorizer", [i64(*range(9), *range(9)).reshape(3, 6)], **GRAMS),
    one("MurmurHash3", "MurmurHash3", [i64(*range(30))], domain=MS, seed=7),
    one("SVMClassifier", "SVMClassifier", [f32(30, 4)], outputs=2, domain=ML, opset=20, **MACHINE),
    one("QMoE-like Gather MatMul", "MatMul", [f32(1, 33), f32(33, 5)], constants=(1,)),
    chain(
        "doubles",
        [("Relu", [DOUBLES], {}), ("Neg", [...], {}), ("Add", [..., DOUBLES], {})],
        fed=(0, 1),
    ),
    one("Clip", "Clip", [f32(300, 300), step(-1.0), step(1.0)], constants=(1, 2)),
    one("Cast to halves", "Cast", [f32(300, 301)], to=10),
    one("Cast of halves", "Cast", [f32(7, 33).astype(np.float16)], to=7),
    one("Add int8", "Add", [BYTES, BYTES[:1]]),
    one("Div int32", "Div", [WORDS, WORDS[:1, :, :1]]),
    one("Mod int64", "Mod", [ids(-9, 9, 99), ids(1, 9, 99)], constants=(1,)),
    one("Less", "Less", [f32(30, 33), f32(30, 1)]),
    one("Expand columns", "Expand", [f32(9, 1), i64(9, 33)], constants=(1,)),
    one(
        "Slice backward",
        "Slice",
        [f32(9, 33), i64(-1), i64(-40), i64(1), i64(-2)],
        constants=(1, 2, 3, 4),
    ),
]
