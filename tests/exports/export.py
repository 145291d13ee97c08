"""Writes the models of this folder: tiny, random weights, exactly as torch and skl2onnx export.

It needs torch, transformers, onnxscript, scikit-learn and skl2onnx, which the tests themselves do
not. Every model is one ``.onnx`` with an ``.npz`` beside it: inputs as ``in:NAME``, the framework's
own answers as ``out:NAME``. ``--width`` writes larger ones elsewhere.
"""

from __future__ import annotations

import argparse
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from architectures import Architectures
from networks import NETWORKS
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn

HERE = Path(__file__).parent


def settle(module: nn.Module, scale: float) -> None:
    """Give every parameter and batch-norm statistic a value that shows up in the output."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and "inv_freq" not in name:
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.data = noise * 0.5 + 0.5 if "var" in name else (noise - 0.5) * scale


def export(
    path: Path, module: nn.Module, inputs: dict[str, torch.Tensor], *, dynamo: bool, scale: float
) -> None:
    module.eval()
    settle(module, scale)
    arguments = tuple(inputs.values())
    with torch.no_grad():
        result = module(*arguments)
    results = result if isinstance(result, tuple) else (result,)
    outputs = [f"out_{i}" for i in range(len(results))]
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
    """Drop the exporter's notes (stack traces, file names), which are not what is tested."""
    model = ir.load(path)
    ClearMetadataAndDocStringPass()(model)
    ir.save(model, path)


def export_sklearn() -> None:
    """Write pipelines of scikit-learn's common estimators."""
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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all by default")
    parser.add_argument("--width", type=int, default=32, help="of hidden states (%(default)s)")
    parser.add_argument("--vocabulary", type=int, default=99, help="tokens (%(default)s)")
    parser.add_argument("--exporter", choices=("both", "torchscript", "dynamo"), default="both")
    parser.add_argument("--output", type=Path, default=HERE, metavar="FOLDER")
    return parser.parse_args()


def main() -> None:
    given = parse()
    warnings.simplefilter("ignore")
    models = {**Architectures(given.width, given.vocabulary).models, **NETWORKS}
    if not given.names:
        export_sklearn()
    for name in given.names or models:
        for exporter in ("torchscript", "dynamo"):
            if given.exporter not in ("both", exporter):
                continue
            torch.manual_seed(0)
            path = given.output / f"{name}{'-dynamo' if exporter == 'dynamo' else ''}.onnx"
            # Sums of this many products stay of the size that they have in the tiny models.
            scale = 0.6 * math.sqrt(32 / given.width)
            try:
                export(path, *models[name](), dynamo=exporter == "dynamo", scale=scale)
            except Exception as error:  # an exporter's gap is worth a line, not the end
                print(f"{path.name} not exported: {str(error)[:200]!r}")


if __name__ == "__main__":
    main()
