"""Constants, ranges, random tensors, sequences and strings that the backend suite leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
from case import Case
from onnx import helper
from onnx.numpy_helper import from_array

X = np.arange(6, dtype=np.float32).reshape(2, 3)
V = np.array([1, 2, 3], np.float32)
ONES = np.ones((2, 3), np.float32)
BF16 = ml_dtypes.bfloat16
FLOATS = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
WORDS = np.array(["the cat", " the  Dog ", ""], object)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def f32(*values: float) -> list[np.ndarray]:
    return [np.array(v, np.float32) for v in values]


def draws(seed: int) -> np.random.RandomState:
    return np.random.RandomState(seed)


def dropped(seed: int, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    kept = draws(seed).uniform(size=X.shape) >= ratio
    return (X * kept / (1 - ratio)).astype(np.float32), kept


def sparse(indices: np.ndarray) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(from_array(V), from_array(indices), [2, 3])


SPARSE_ROWS = sparse(np.array([[0, 1], [1, 0], [1, 2]]))
SPARSE_FLAT = sparse(ints(1, 3, 5))
DENSE = np.array([[0, 1, 0], [2, 0, 3]], np.float32)
FORMS = {
    "value_float": (0.5, np.array(0.5, np.float32)),
    "value_floats": ((0.5, 1.0), np.array([0.5, 1], np.float32)),
    "value_int": (2**40, np.array(2**40)),
    "value_ints": ((), np.zeros(0, np.int64)),
    "value_string": ("é", np.array("é", object)),
    "value_strings": (("a", "bc"), np.array(["a", "bc"], object)),
    "value": (X, X),
    "sparse_value": (SPARSE_ROWS, DENSE),
}
TRAIN = np.array(True)
HALF = np.array(0.5, np.float32)

CONSTANTS = [
    *[
        Case("Constant", 25, [], expected, {form: value}, name=form)
        for form, (value, expected) in FORMS.items()
    ],
    Case("Constant", 12, [], X, {"value": X}),
    Case("Constant", 11, [], DENSE, {"sparse_value": SPARSE_FLAT}, name="sparse-flat"),
    *[
        Case("ConstantOfShape", v, [ints(2, 2)], np.full((2, 2), 5, d), {"value": np.array([5], d)})
        for v, d in [(9, np.int32), (20, BF16), (21, ml_dtypes.int4), (25, np.uint8)]
    ],
    Case("ConstantOfShape", 21, [ints()], np.array(0, np.float32), name="scalar"),
    Case("ConstantOfShape", 21, [ints(2, 0)], np.zeros((2, 0), np.float32), name="empty"),
    Case("Range", 11, f32(0, 0.3, 0.1), np.array([0, 0.1, 0.2, 0.3], np.float32), name="rounds-up"),
    Case("Range", 11, [np.array(v, np.int16) for v in (5, -6, -5)], np.array([5, 0, -5], np.int16)),
    Case("Range", 11, [np.array(v) for v in (2**53, 2**53 + 3, 1)], 2**53 + np.arange(3)),
    Case("Range", 11, f32(3, 1, 1), np.zeros(0, np.float32), name="empty"),
    Case(
        "Range",
        27,
        [np.array(v, np.float16) for v in (2046, 2052, 1)],
        np.arange(2046, 2052).astype(np.float16),
        name="beyond-float16-steps",
    ),
    Case(
        "Range",
        27,
        [np.array(v, BF16) for v in (0, 1, 0.25)],
        np.array([0, 0.25, 0.5, 0.75], BF16),
        {"stash_type": 11},
    ),
    Case("EyeLike", 9, [X], np.eye(2, 3, 1, np.int64), {"k": 1, "dtype": 7}),
    Case("EyeLike", 22, [X.astype(BF16)], np.eye(2, 3, -1).astype(BF16), {"k": -1}),
]

RANDOM = [
    *[
        Case(
            "RandomNormal",
            v,
            [],
            draws(7).normal(2, 3, (4, 5)),
            {"shape": (4, 5), "seed": 7.0, "mean": 2.0, "scale": 3.0, "dtype": 11},
        )
        for v in (1, 22)
    ],
    *[
        Case(
            "RandomUniform",
            v,
            [],
            draws(7).uniform(-2, 3, (4, 5)).astype(np.float32),
            {"shape": (4, 5), "seed": 7.0, "low": -2.0, "high": 3.0},
        )
        for v in (1, 22)
    ],
    *[
        Case("RandomNormalLike", v, [X], draws(1).normal(size=(2, 3)).astype("f"), {"seed": 1.0})
        for v in (1, 22)
    ],
    *[
        Case(
            "RandomUniformLike",
            v,
            [X],
            draws(1).uniform(size=(2, 3)).astype(np.float16),
            {"seed": 1.0, "dtype": 10},
        )
        for v in (1, 22)
    ],
    *[
        Case("Bernoulli", v, [np.array([0, 1, 0, 1], "f")], np.array([0, 1, 0, 1]), {"dtype": 7})
        for v in (15, 22)
    ],
    *[
        Case(
            "Multinomial",
            v,
            [np.array([[-np.inf, 0, -np.inf], [5, -np.inf, -np.inf]], np.float32)],
            np.array([[1] * 4, [0] * 4]),
            {"dtype": 7, "sample_size": 4},
            name="certain",
        )
        for v in (7, 22)
    ],
    *[Case("Dropout", v, [X], (X, None), {"is_test": 1}, name="test") for v in (1, 6)],
    *[Case("Dropout", v, [X], (X, ONES), {"ratio": 0.0}, name="nothing") for v in (1, 6)],
    Case("Dropout", 7, [X], (X, ONES), {"ratio": 0.9}),
    Case("Dropout", 10, [X], (X, ONES == 1), {"ratio": 0.9}, name="mask"),
    *[Case("Dropout", v, [X], (X, ONES == 1), name="test") for v in (12, 13)],
    *[
        Case("Dropout", v, [X, HALF, TRAIN], dropped(3, 0.5), {"seed": 3}, name="training")
        for v in (12, 13)
    ],
]

SEQUENCES = [
    Case("SequenceConstruct", 11, [X, V], [X, V]),
    Case("SequenceEmpty", 11, [], [], {"dtype": 7}),
    Case("SequenceInsert", 11, [[X], V, np.array(-1)], [V, X], name="before-the-last"),
    Case("SequenceErase", 11, [[X, V, X], np.array(-3)], [V, X]),
    Case("SequenceAt", 11, [[X, V], np.array(-1, np.int32)], V),
    Case("SequenceLength", 11, [[X, V]], np.array(2)),
    Case("ConcatFromSequence", 11, [[V, V]], np.stack([V, V], 1), {"axis": -1, "new_axis": 1}),
    Case("SplitToSequence", 11, [X, np.array(2)], [X[:, :2], X[:, 2:]], {"axis": -1}),
    Case("SplitToSequence", 24, [X, ints(0, 2)], [X[:0], X], {"keepdims": 0}, name="lengths"),
    Case("SplitToSequence", 24, [X], [X[0], X[1]], {"keepdims": 0}),
    *[Case("Optional", v, [X], X) for v in (15, 28)],
    Case("Optional", 28, [], None, {"type": FLOATS}, name="empty"),
    *[Case("OptionalGetElement", v, [[X]], [X]) for v in (15, 18)],
    *[
        Case("OptionalHasElement", v, [x], np.array(x is not None))
        for v in (15, 18)
        for x in (X, None)
    ],
]

STRINGS = [
    Case(
        "StringConcat",
        20,
        [WORDS[0:1].reshape(()), WORDS[1:2].reshape(())],
        np.array("the cat the  Dog ", object),
    ),
    Case(
        "StringSplit",
        20,
        [WORDS],
        (np.array([["the", "cat"], ["the", "Dog"], ["", ""]], object), ints(2, 2, 0)),
        {"maxsplit": 1},
        name="trailing-space",
    ),
    Case("StringSplit", 20, [WORDS[:0]], (np.zeros((0, 0), object), ints()), name="empty"),
    Case(
        "StringNormalizer",
        10,
        [np.array([["İstanbul", "Diyarbakır", "the"]], object)],
        np.array([["istanbul", "diyarbakır"]], object),
        {"case_change_action": "LOWER", "locale": "tr_TR", "stopwords": ("THE",)},
        name="turkish",
    ),
    Case(
        "StringNormalizer",
        10,
        [np.array(["DIŞ", "dış"], object)],
        np.array(["DIŞ"], object),
        {"is_case_sensitive": 1, "stopwords": ("dış",)},
    ),
    Case(
        "RegexFullMatch",
        20,
        [np.array([["é"], ["e_1"]], object)],
        np.array([[False], [True]]),
        {"pattern": r"\w+"},
    ),
    *[
        Case(
            "TfIdfVectorizer",
            9,
            [np.array([["a", "b", "b"], ["c", "a", "c"]], object)],
            np.array(expected, np.float32),
            {
                "mode": mode,
                "min_gram_length": 1,
                "max_gram_length": 2,
                "max_skip_count": 1,
                "ngram_counts": (0, 2),
                "ngram_indexes": (2, 0, 1),
                "pool_strings": ("a", "b", "a", "b"),
                "weights": (10.0, 100.0, 2.0),
            },
            name=mode,
        )
        for mode, expected in [
            ("TF", [[2, 2, 1], [0, 0, 1]]),
            ("IDF", [[100, 2, 10], [0, 0, 10]]),
            ("TFIDF", [[200, 4, 10], [0, 0, 10]]),
        ]
    ],
]

CASES = [*CONSTANTS, *RANDOM, *SEQUENCES, *STRINGS]
