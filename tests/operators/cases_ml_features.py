"""Encoders, maps and scalers: worked out by hand."""

from __future__ import annotations

import numpy as np
from ml_case import INTS, MlCase, X, f32, text

NAN = np.nan

ENCODERS = [
    MlCase("ArrayFeatureExtractor", 1, [X, np.array([[2, 0]])], X[:, [2, 0]]),
    MlCase("ArrayFeatureExtractor", 1, [X[0], np.array(1)], f32([-2]), name="vector"),
    MlCase(
        "FeatureVectorizer",
        1,
        [INTS, INTS[:, :1]],
        f32([1, -2, 5, 1], [7, 0, -3, 7]),
        {"inputdimensions": (3, 1)},
    ),
    MlCase("FeatureVectorizer", 1, [X[0], X[1, :1]], f32([1, -2, 0.5, -1]), name="vectors"),
    MlCase(
        "LabelEncoder",
        1,
        [text(["b", "q"])],
        np.array([[1, -7]]),
        {"classes_strings": ("a", "b"), "default_int64": -7},
        name="strings",
    ),
    MlCase(
        "LabelEncoder",
        1,
        [np.array([1, 2, -1, 0])],
        text("b", "?", "?", "a"),
        {"classes_strings": ("a", "b"), "default_string": "?"},
        name="ints",
    ),
    MlCase(
        "LabelEncoder",
        2,
        [f32(NAN, -0.0, 2, 7)],
        text("n", "z", "last", "_Unused"),
        {
            "keys_floats": (2.0, NAN, 0.0, 2.0),
            "values_strings": ("first", "n", "z", "last"),
        },
    ),
    MlCase(
        "LabelEncoder",
        4,
        [np.array([3, 9], np.int16)],
        np.array([0.5, 8.0]),
        {
            "keys_tensor": np.array([1, 3], np.int16),
            "values_tensor": np.array([0.25, 0.5]),
            "default_tensor": np.array([8.0]),
        },
    ),
    MlCase(
        "CategoryMapper",
        1,
        [text(["b"], ["q"])],
        np.array([[40], [-1]]),
        {"cats_strings": ("a", "b"), "cats_int64s": (30, 40)},
        name="strings",
    ),
    MlCase(
        "CategoryMapper",
        1,
        [np.array([30, 1])],
        text("a", "_Unused"),
        {"cats_strings": ("a", "b"), "cats_int64s": (30, 40)},
        name="ints",
    ),
    MlCase(
        "OneHotEncoder",
        1,
        [f32([4.75], [6])],
        f32([[0, 1, 0]], [[0, 0, 0]]),
        {"cats_int64s": (5, 4, 3)},
    ),
    MlCase(
        "OneHotEncoder",
        1,
        [text("y", "x")],
        f32([0, 1], [1, 0]),
        {"cats_strings": ("x", "y"), "zeros": 0},
        name="strings",
    ),
]

MAPS = [
    MlCase(
        "DictVectorizer",
        1,
        [{"a": 4.0, "c": 8.0}],
        f32([4, 8, 0, 0]),
        {"string_vocabulary": ("a", "c", "b", "z")},
    ),
    MlCase(
        "DictVectorizer",
        1,
        [{7: "u", 3: "v"}],
        text(["v", "", "u"]),
        {"int64_vocabulary": (3, 5, 7)},
        name="strings",
    ),
    MlCase("CastMap", 1, [{5: 2.5, 1: 1.25}], f32([1.25, 2.5])),
    MlCase(
        "CastMap",
        1,
        [{3: "7", 1: "-2", 9: "4"}],
        np.array([[0, -2, 0, 7]]),
        {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 4},
        name="sparse",
    ),
    MlCase("CastMap", 1, [{1: 0.5}], text(["0.500000"]), {"cast_to": "TO_STRING"}, name="text"),
    MlCase(
        "ZipMap",
        1,
        [f32([0.5, 0.25], [1, 0])],
        lambda _: ([{"a": 0.5, "b": 0.25}, {"a": 1.0, "b": 0.0}],),
        {"classlabels_strings": ("a", "b")},
    ),
    MlCase(
        "ZipMap",
        1,
        [f32(0.5, 0.25)],
        lambda _: ([{4: 0.5, 2: 0.25}],),
        {"classlabels_int64s": (4, 2)},
        name="vector",
    ),
]

SCALERS = [
    MlCase("Binarizer", 1, [INTS], np.array([[1, 0, 1], [1, 0, 0]]), {"threshold": 0.5}),
    MlCase(
        "Scaler",
        1,
        [INTS],
        lambda x: ((x - f32(1, 0, -1)) * f32(2, 0.5, 1)).astype(np.float32),
        {"offset": (1.0, 0.0, -1.0), "scale": (2.0, 0.5, 1.0)},
    ),
    MlCase("Scaler", 1, [X[0]], f32(0, -6, -1), {"offset": (1.0,), "scale": (2.0,)}, name="one"),
    MlCase("Normalizer", 1, [X], f32([1, -2, 0.5], [1, 3, 2], [0, 0, 0], [0.0625, 1, 0.25])),
    MlCase(
        "Normalizer",
        1,
        [INTS],
        f32([0.125, -0.25, 0.625], [0.7, 0, -0.3]),
        {"norm": "L1"},
        name="L1",
    ),
    MlCase("Normalizer", 1, [f32(3, -4)], f32(0.6, -0.8), {"norm": "L2"}, name="L2"),
    # To the last bit as onnxruntime: a tree's threshold may be such a quotient.
    *(
        MlCase("Normalizer", 1, [x], y, {"norm": norm}, name=f"{norm}-{x.dtype}", rtol=0, atol=0)
        for x, norm, y in (
            (f32([1.7, 0.4]), "L2", f32([0.97341716, 0.22903934])),
            (np.float64([[1.7, 0.4]]), "L2", f32([0.97341716, 0.22903933])),
            (np.int64([[17, 4]]), "L2", f32([0.97341716, 0.22903934])),
        )
    ),
    MlCase(
        "Imputer",
        1,
        [f32([NAN, 1], [2, NAN])],
        f32([7, 1], [2, 8]),
        {"imputed_value_floats": (7.0, 8.0), "replaced_value_float": NAN},
    ),
    MlCase(
        "Imputer",
        1,
        [np.array([[-1, 5], [3, -1]], np.int32)],
        np.array([[9, 5], [3, 9]], np.int32),
        {"imputed_value_int64s": (9,), "replaced_value_int64": -1},
        name="ints",
    ),
]

CASES = [*ENCODERS, *MAPS, *SCALERS]
