"""Estimators as skl2onnx converts them, against scikit-learn's own answers."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("skl2onnx", reason="needs skl2onnx")
pytest.importorskip("onnxruntime", reason="needs what stands for it")

import onnxruntime
from estimators import data_for, fitted, names
from skl2onnx import to_onnx
from skl2onnx.common.data_types import (
    DictionaryType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from sklearn import datasets
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    LabelBinarizer,
    LabelEncoder,
    MinMaxScaler,
    OneHotEncoder,
    StandardScaler,
)

pytestmark = pytest.mark.filterwarnings("ignore")

OPSETS = {"": 18, "ai.onnx.ml": 3}

CONVERTED_OTHERWISE = {
    "KNeighborsTransformer": "its model sorts neighbors by other distances",
    "QuantileTransformer": "its model interpolates in float32, in another order",
}
"""Estimators whose models, computed by onnxruntime, differ from scikit-learn as well."""

NEED_OTHER_DATA = frozenset(
    {
        *("ColumnTransformer", "CountVectorizer", "DictVectorizer", "FeatureUnion"),
        *("GridSearchCV", "KernelCenterer", "LabelBinarizer", "LabelEncoder"),
        *("MultiOutputClassifier", "MultiOutputRegressor", "Pipeline", "TfidfVectorizer"),
        *("TunedThresholdClassifierCV", "OneHotEncoder"),
    }
)
"""Estimators with tests of their own, or that skl2onnx converts in parts of others only."""


def session_of(estimator: Any, *given: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            converted = to_onnx(estimator, *given, target_opset=OPSETS, **options)
        except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
            pytest.skip(f"skl2onnx: {str(error).splitlines()[0][:120]}")
    return onnxruntime.InferenceSession(
        converted.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def check(found: Any, expected: Any) -> None:
    expected = expected.toarray() if hasattr(expected, "toarray") else np.asarray(expected)
    found = np.asarray(found).reshape(expected.shape)
    if expected.dtype.kind in "OU":
        assert found.tolist() == expected.tolist()
        return
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * scale)


def answers(estimator: Any, x: Any) -> list[Any]:
    """Return what a converted model's first outputs ought to be."""
    selects = hasattr(estimator, "get_support")
    if not hasattr(estimator, "predict") or selects:
        return [estimator.transform(x)]
    if not hasattr(estimator, "predict_proba"):
        return [estimator.predict(x)]
    return [estimator.predict(x), estimator.predict_proba(x)]


@pytest.mark.parametrize("name", [n for n in names() if n not in NEED_OTHER_DATA])
def test_estimators(name: str) -> None:
    if name in CONVERTED_OTHERWISE:
        pytest.skip(f"skl2onnx: {CONVERTED_OTHERWISE[name]}")
    estimator, x = fitted(name)
    session = session_of(estimator, x[:1])
    found = session.run(None, {session.get_inputs()[0].name: x})
    for ours, theirs in zip(found, answers(estimator, x), strict=False):
        if isinstance(ours, list) and isinstance(ours[0], dict):
            ours = [[row[label] for label in estimator.classes_] for row in ours]
        if isinstance(ours, list) and isinstance(theirs, list):
            continue
        check(ours, theirs)


def test_probabilities_come_as_maps_as_clients_expect_them() -> None:
    x, y = data_for("LogisticRegression", LogisticRegression())
    estimator = LogisticRegression().fit(x, y)
    session = session_of(estimator, x[:1])
    assert [o.type for o in session.get_outputs()] == [
        "tensor(int64)",
        "seq(map(int64,tensor(float)))",
    ]
    labels, maps = session.run(None, {"X": x})
    assert labels.tolist() == estimator.predict(x).tolist()
    check([list(row.values()) for row in maps], estimator.predict_proba(x))


def test_string_labels() -> None:
    x, y = data_for("LogisticRegression", LogisticRegression())
    estimator = LogisticRegression().fit(x, datasets.load_iris().target_names[y])
    labels, maps = session_of(estimator, x[:1]).run(None, {"X": x})
    assert labels.tolist() == estimator.predict(x).tolist()
    assert set(maps[0]) == set(estimator.classes_)


TEXTS = ["the cat sat", "on the mat", "the dog ate the cat", "cats and dogs"]


@pytest.mark.parametrize("kind", [CountVectorizer, TfidfVectorizer])
@pytest.mark.parametrize("dtype", [str, object])
def test_texts(kind: Any, dtype: Any) -> None:
    estimator = kind(ngram_range=(1, 2)).fit(TEXTS)
    try:
        session = session_of(estimator, initial_types=[("X", StringTensorType([None, 1]))])
    except NotImplementedError as error:
        if "Tokenizer" in str(error):
            pytest.skip("no plug-in here runs com.microsoft::Tokenizer")
        raise
    found = session.run(None, {"X": np.array(TEXTS, dtype).reshape(-1, 1)})[0]
    check(found, estimator.transform(TEXTS))


def test_dictionaries() -> None:
    rows = [{"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}]
    estimator = DictVectorizer(sparse=False).fit(rows)
    kind = DictionaryType(StringTensorType([1]), FloatTensorType([1]))
    session = session_of(estimator, initial_types=[("X", kind)])
    for row in rows:
        check(session.run(None, {"X": row})[0], estimator.transform([row]))


def test_labels() -> None:
    words = np.array(["b", "a", "c", "a"])
    encoder = LabelEncoder().fit(words)
    session = session_of(encoder, initial_types=[("X", StringTensorType([None]))])
    check(session.run(None, {"X": words})[0], encoder.transform(words))
    numbers = np.array([3, 1, 2, 1])
    binarizer = LabelBinarizer().fit(numbers)
    session = session_of(binarizer, initial_types=[("X", Int64TensorType([None, 1]))])
    check(session.run(None, {"X": numbers.reshape(-1, 1)})[0], binarizer.transform(numbers))


def test_categories() -> None:
    words = np.array([["a", "x"], ["b", "y"], ["a", "y"]], object)
    estimator = OneHotEncoder(sparse_output=False).fit(words)
    session = session_of(estimator, initial_types=[("X", StringTensorType([None, 2]))])
    check(session.run(None, {"X": words.astype(str)})[0], estimator.transform(words))


def test_pipelines_of_columns() -> None:
    x, y = data_for("LogisticRegression", LogisticRegression())
    columns = ColumnTransformer([("a", StandardScaler(), [0, 1]), ("b", MinMaxScaler(), [2, 3])])
    union = FeatureUnion([("c", columns), ("d", StandardScaler())])
    pipeline = Pipeline([("u", union), ("m", LogisticRegression(max_iter=500))]).fit(x, y)
    session = session_of(pipeline, x[:1], options={"zipmap": False})
    labels, probabilities = session.run(None, {"X": x.tolist()})
    assert labels.tolist() == pipeline.predict(x).tolist()
    check(probabilities, pipeline.predict_proba(x))


def test_searches_and_several_targets() -> None:
    x, y = data_for("Ridge", Ridge())
    search = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2).fit(x, y)
    check(session_of(search, x[:1]).run(None, {"X": x})[0], search.predict(x))
    several = MultiOutputRegressor(Ridge()).fit(x, np.stack([y, -y], 1))
    check(session_of(several, x[:1]).run(None, {"X": x})[0], several.predict(x))
    x, y = data_for("LogisticRegression", LogisticRegression())
    classes = np.stack([y, y == 1], 1).astype(int)
    kinds = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(x, classes)
    session = session_of(kinds, x[:1], options={"zipmap": False})
    assert session.run(None, {"X": x})[0].tolist() == kinds.predict(x).tolist()
