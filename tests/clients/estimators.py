"""scikit-learn's estimators of every family, fitted to its own data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators

ROWS = 100
"""Rows that estimators are fitted to, and that models are run on."""

ARGUMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "AdaBoostClassifier": lambda: {"n_estimators": 5},
    "AdaBoostRegressor": lambda: {"n_estimators": 5},
    "BaggingClassifier": lambda: {"estimator": DecisionTreeClassifier(max_depth=3)},
    "BaggingRegressor": lambda: {"estimator": DecisionTreeRegressor(max_depth=3)},
    "CalibratedClassifierCV": lambda: {"estimator": LogisticRegression(), "cv": 2},
    "ClassifierChain": lambda: {"estimator": LogisticRegression()},
    "ExtraTreesClassifier": lambda: {"n_estimators": 5},
    "ExtraTreesRegressor": lambda: {"n_estimators": 5},
    "FeatureHasher": lambda: {"n_features": 8},
    "GaussianRandomProjection": lambda: {"n_components": 2},
    "GradientBoostingClassifier": lambda: {"n_estimators": 5},
    "GradientBoostingRegressor": lambda: {"n_estimators": 5},
    "HistGradientBoostingClassifier": lambda: {"max_iter": 5},
    "HistGradientBoostingRegressor": lambda: {"max_iter": 5},
    "IncrementalPCA": lambda: {"n_components": 2},
    "IsolationForest": lambda: {"n_estimators": 5},
    "KBinsDiscretizer": lambda: {"encode": "ordinal", "quantile_method": "averaged_inverted_cdf"},
    "MLPClassifier": lambda: {"hidden_layer_sizes": (8,), "max_iter": 50},
    "MLPRegressor": lambda: {"hidden_layer_sizes": (8,), "max_iter": 50},
    "OneVsOneClassifier": lambda: {"estimator": LogisticRegression()},
    "OneVsRestClassifier": lambda: {"estimator": LogisticRegression()},
    "OutputCodeClassifier": lambda: {"estimator": LogisticRegression()},
    "RFE": lambda: {"estimator": Ridge(), "n_features_to_select": 2},
    "RFECV": lambda: {"estimator": Ridge(), "min_features_to_select": 2},
    "RandomForestClassifier": lambda: {"n_estimators": 5},
    "RandomForestRegressor": lambda: {"n_estimators": 5},
    "SelectFromModel": lambda: {"estimator": Ridge()},
    "SelectKBest": lambda: {"k": 2},
    "StackingClassifier": lambda: {"estimators": [("a", SVC(probability=False))], "cv": 2},
    "StackingRegressor": lambda: {"estimators": [("a", Ridge())], "cv": 2},
    "VotingClassifier": lambda: {"estimators": [("a", LogisticRegression())], "voting": "soft"},
    "VotingRegressor": lambda: {"estimators": [("a", Ridge())]},
}
"""Arguments that some estimators need, or that make them faster."""


def names() -> list[str]:
    """Return the estimators that skl2onnx converts."""
    from skl2onnx import supported_converters

    convertible = {name.removeprefix("Sklearn") for name in supported_converters()}
    return [name for name, _ in all_estimators() if name in convertible]


def fitted(name: str) -> tuple[Any, np.ndarray[Any, Any]]:
    """Return an estimator and rows to run it on."""
    kind = dict(all_estimators())[name]
    arguments = ARGUMENTS.get(name, dict)()
    if "random_state" in inspect.signature(kind).parameters:
        arguments["random_state"] = 0
    estimator = kind(**arguments)
    x, y = data_for(name, estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    return estimator, x


def data_for(name: str, estimator: Any) -> tuple[np.ndarray[Any, Any], Any]:
    """Return rows and targets that suit an estimator."""
    iris = datasets.load_iris()
    order = np.random.default_rng(0).permutation(len(iris.data))[:ROWS]
    flowers, kinds = iris.data[order].astype(np.float32), iris.target[order]
    if getattr(estimator, "_estimator_type", "") == "regressor" or is_regressor(estimator):
        sick = datasets.load_diabetes()
        x, y = sick.data[:ROWS].astype(np.float32), sick.target[:ROWS]
        if name.startswith("MultiTask") or name in ("MultiOutputRegressor", "RegressorChain"):
            return x, np.stack([y, y[::-1]], 1)
        return (x[:, :1], y) if name == "IsotonicRegression" else (x, y)
    if name in ("MultiOutputClassifier", "ClassifierChain"):
        return flowers, np.stack([kinds == 0, kinds == 1], 1).astype(int)
    return flowers, kinds


def is_regressor(estimator: Any) -> bool:
    """Return whether an estimator predicts numbers."""
    from sklearn.base import is_regressor as check

    return bool(check(estimator))
