"""Writes the models of this folder: tiny, random weights, exactly as torch and skl2onnx export.

``python tests/exports/export.py [NAME ...]`` needs torch, transformers, onnxscript, scikit-learn
and skl2onnx, which the tests themselves do not. Without names it writes all of them. Every model is
one ``.onnx`` with an ``.npz`` beside it: inputs as ``in:NAME``, the framework's own answers as
``out:NAME``.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from architectures import MODELS
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn

HERE = Path(__file__).parent


def settle(module: nn.Module) -> None:
    """Gives every parameter and batch-norm statistic a value that shows up in the output."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and "inv_freq" not in name:
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.data = noise * 0.5 + 0.5 if "var" in name else (noise - 0.5) * 0.6


def export(name: str, module: nn.Module, inputs: dict[str, torch.Tensor], dynamo: bool) -> None:
    module.eval()
    settle(module)
    arguments = tuple(inputs.values())
    with torch.no_grad():
        result = module(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    outputs = [f"out_{i}" for i in range(len(results))]
    path = HERE / f"{name}{'-dynamo' if dynamo else ''}.onnx"
    torch.onnx.export(
        module,
        arguments,
        path,
        input_names=list(inputs),
        output_names=outputs,
        dynamo=dynamo,
        external_data=False,
        verbose=False,
    )
    strip(path)
    arrays = {f"in:{k}": v.numpy() for k, v in inputs.items()}
    arrays |= {f"out:{k}": v.numpy() for k, v in zip(outputs, results, strict=True)}
    np.savez_compressed(path.with_suffix(".npz"), **arrays)
    print(f"{path.name}: {path.stat().st_size:,} bytes")


def strip(path: Path) -> None:
    """Drops the exporter's notes (stack traces, file names), which are not what is tested."""
    model = ir.load(path)
    ClearMetadataAndDocStringPass()(model)
    ir.save(model, path)


def export_sklearn() -> None:
    """Writes pipelines of scikit-learn's common estimators."""
    import sklearn.ensemble as ensemble
    import sklearn.linear_model as linear
    import sklearn.neighbors as neighbors
    import sklearn.preprocessing as preprocessing
    import sklearn.svm as svm
    from skl2onnx import to_onnx
    from sklearn.datasets import load_iris
    from sklearn.pipeline import make_pipeline

    x, y = load_iris(return_X_y=True)
    x = x.astype(np.float32)
    estimators: dict[str, Any] = {
        "logistic": make_pipeline(preprocessing.StandardScaler(), linear.LogisticRegression()),
        "forest": ensemble.RandomForestClassifier(10, max_depth=4, random_state=0),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0),
        "svc": make_pipeline(preprocessing.MinMaxScaler(), svm.SVC(probability=True)),
        "knn": neighbors.KNeighborsClassifier(3),
    }
    for name, estimator in estimators.items():
        estimator.fit(x, y)
        path = HERE / f"sklearn-{name}.onnx"
        options = {"zipmap": False} if hasattr(estimator, "predict_proba") else {}
        kwargs: dict[str, Any] = {"options": {id(estimator): options}} if options else {}
        path.write_bytes(to_onnx(estimator, x[:1], **kwargs).SerializeToString())
        arrays = {"in:X": x, "out:0": estimator.predict(x)}
        if options:
            arrays["out:1"] = estimator.predict_proba(x)
        np.savez_compressed(path.with_suffix(".npz"), **arrays)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if not sys.argv[1:]:
        export_sklearn()
    for model_name in sys.argv[1:] or MODELS:
        for new in (False, True):
            torch.manual_seed(0)
            try:
                export(model_name, *MODELS[model_name](), dynamo=new)
            except Exception as error:  # an exporter's gap is worth a line, not the end
                print(f"{model_name} (dynamo={new}) not exported: {str(error)[:200]!r}")
