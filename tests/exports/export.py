"""Writes the models of this folder: tiny, random weights, exactly as torch and skl2onnx export.

``python tests/exports/export.py`` needs torch, transformers, onnxscript, scikit-learn and
skl2onnx, which the tests themselves do not. Every model is one ``.onnx`` with an ``.npz`` beside
it: inputs as ``in:NAME``, the framework's own answers as ``out:NAME``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
import transformers as tr
from onnx_ir.passes.common import ClearMetadataAndDocStringPass
from torch import nn

HERE = Path(__file__).parent
TINY: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
IDS = torch.arange(12).reshape(2, 6) * 7 % 99


class Logits(nn.Module):
    """Calls a transformers model and returns its first output."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class Step(nn.Module):
    """One decoder step: tokens and the cache in, logits and the longer cache out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = list(zip(past[::2], past[1::2], strict=True))
        cache = tr.DynamicCache(pairs)
        out = self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)
        flat = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *flat)


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm over channels last, and two pointwise layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(nn.functional.gelu(self.widen(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Residual(nn.Module):
    """ResNet's basic block, with a strided projection."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.skip = nn.Sequential(
            nn.Conv2d(inside, outside, 1, 2, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class Inverted(nn.Module):
    """MobileNetV2's block with a squeeze-and-excitation in the middle, as in MobileNetV3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 4 * width
        self.expand = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.Hardswish(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Recurrent(nn.Module):
    """A recurrent layer that returns its sequence and its last state."""

    def __init__(self, layer: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = layer(8, 16, batch_first=True, bidirectional=True, num_layers=2, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *(state if isinstance(state, tuple) else (state,)))


def cnn(*blocks: nn.Module) -> nn.Sequential:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)]
    stem = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, *head)


def encoder(config: type, model: type, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    made = model(config(**{**TINY, **options}, attn_implementation="eager"))
    mask = torch.ones_like(IDS)
    mask[1, 4:] = 0
    return Logits(made), {"input_ids": IDS, "attention_mask": mask}


def decoder(config: type, model: type, **options: Any) -> tuple[nn.Module, dict[str, Any]]:
    made = model(config(**{**TINY, **options}, attn_implementation="eager"))
    heads = options.get("num_key_value_heads", 4)
    inputs: dict[str, Any] = {"input_ids": IDS[:, :2]}
    for layer in range(2):
        for part in ("key", "value"):
            shape = (2, heads, 5, 8)
            inputs[f"past_{layer}_{part}"] = torch.randn(shape) * 0.3
    return Step(made), inputs


IMAGE = {"x": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}
SERIES = {"x": torch.randn(2, 7, 8, generator=torch.Generator().manual_seed(0))}
GPT2: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}

MODELS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "bert": lambda: encoder(tr.BertConfig, tr.BertModel),
    "distilbert": lambda: encoder(
        tr.DistilBertConfig, tr.DistilBertModel, dim=32, n_layers=2, n_heads=4, hidden_dim=48
    ),
    "gpt2": lambda: decoder(tr.GPT2Config, tr.GPT2LMHeadModel, **GPT2),
    "llama": lambda: decoder(tr.LlamaConfig, tr.LlamaForCausalLM, num_key_value_heads=2),
    "qwen2": lambda: decoder(tr.Qwen2Config, tr.Qwen2ForCausalLM, num_key_value_heads=2),
    "resnet": lambda: (cnn(Residual(16, 16)), IMAGE),
    "mobilenet": lambda: (cnn(Inverted(16)), IMAGE),
    "convnext": lambda: (cnn(ConvNeXtBlock(16)), IMAGE),
    "lstm": lambda: (Recurrent(nn.LSTM), SERIES),
    "gru": lambda: (Recurrent(nn.GRU), SERIES),
    "rnn": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), SERIES),
}


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
    export_sklearn()
    for model_name, build in MODELS.items():
        for new in (False, True):
            torch.manual_seed(0)
            try:
                export(model_name, *build(), dynamo=new)
            except Exception as error:  # an exporter's gap is worth a line, not the end
                print(f"{model_name} (dynamo={new}) not exported: {str(error)[:200]!r}")
