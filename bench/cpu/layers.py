"""Layers and models against onnxruntime: ``python -m bench.cpu.layers [--threads 1] [filter]``."""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

from bench import models, transformers
from bench.builder import FLOAT, Builder
from bench.cpu.side_by_side import COLUMNS, line, parser
from bench.models import Built


def one(op: str, *shape: int, **attributes: Any) -> Callable[[], Built]:
    """A node of one input."""

    def build() -> Built:
        b = Builder()
        b(op, "x", out="y", **attributes)
        proto = b.model({"x": (FLOAT, list(shape))}, {"y": (FLOAT, list(shape))}, opset=20)
        return proto, {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}

    return build


def normalized(rows: int, width: int, *, skip: bool = False) -> Callable[[], Built]:
    """Layer normalization, perhaps of a sum that is an output, too."""

    def build() -> Built:
        b = Builder()
        random = np.random.default_rng(1)
        feeds = {"x": random.standard_normal((rows, width), dtype=np.float32)}
        x = "x"
        outputs = {"y": (FLOAT, [rows, width])}
        if skip:
            feeds["z"] = random.standard_normal((rows, width), dtype=np.float32)
            x = b("Add", "x", "z", out="sum")
            outputs["sum"] = (FLOAT, [rows, width])
        b("LayerNormalization", x, b.small(width, around=1), b.small(width), out="y", axis=-1)
        return b.model({name: (FLOAT, [rows, width]) for name in feeds}, outputs), feeds

    return build


def gelu(rows: int, width: int) -> Callable[[], Built]:
    """The exact GELU in five nodes."""

    def build() -> Built:
        b = Builder()
        b("Identity", transformers.gelu(b, "x"), out="y")
        x = np.random.default_rng(1).standard_normal((rows, width), dtype=np.float32)
        return b.model({"x": (FLOAT, [rows, width])}, {"y": (FLOAT, [rows, width])}), {"x": x}

    return build


def attention(heads: int, queries: int, keys: int, size: int = 64) -> Callable[[], Built]:
    """Products, scale and softmax in five nodes."""

    def build() -> Built:
        b = Builder()
        random = np.random.default_rng(1)
        shapes = {"q": (1, heads, queries, size), "k": (1, heads, keys, size)}
        shapes["v"] = shapes["k"]
        feeds = {n: random.standard_normal(s, dtype=np.float32) for n, s in shapes.items()}
        b("Identity", transformers.attend(b, "q", "k", "v", size), out="y")
        inputs = {n: (FLOAT, list(s)) for n, s in shapes.items()}
        return b.model(inputs, {"y": (FLOAT, list(shapes["q"]))}), feeds

    return build


CASES: dict[str, Callable[[], Built]] = {
    "softmax-1536x128": one("Softmax", 1536, 128, axis=-1),
    "softmax-8x50257": one("Softmax", 8, 50257, axis=-1),
    "norm-128x768": normalized(128, 768),
    "norm-skip-128x768": normalized(128, 768, skip=True),
    "gelu-five-128x3072": gelu(128, 3072),
    "erf-128x3072": one("Erf", 128, 3072),
    "tanh-128x3072": one("Tanh", 128, 3072),
    "sigmoid-128x3072": one("Sigmoid", 128, 3072),
    "attention-12x128x128": attention(12, 128, 128),
    "attention-12x512x512": attention(12, 512, 512),
    "attention-12x1x513": attention(12, 1, 513),
    "mlp-five-nodes": models.mlp,
    "relus-200": models.relus,
    "lstm-2x256": models.lstm_layers,
    "lstm-2x256-batch-8": lambda: models.lstm_layers(batch=8),
    "lstm-both-ways": models.lstm,
    "forest-1000-rows": models.forest,
    "forest-1-row": lambda: models.forest(rows=1),
    "bert-base-1x128": lambda: transformers.encoder(
        layers=12, width=768, heads=12, vocabulary=30522
    ),
    "gpt2-step-512": lambda: transformers.decoder(
        layers=12, width=768, heads=12, vocabulary=50257, tokens=512
    ),
}


def main() -> None:
    """Print a table."""
    given = parser(__doc__).parse_args()
    print(f"onnxruntime {onnxruntime.__version__}; microseconds\n{COLUMNS}    error")
    for threads in given.threads:
        for name, build in CASES.items():
            if given.filter in name:
                proto, feeds = build()
                print(line(name, proto.SerializeToString(), feeds, threads, given)[0], flush=True)


if __name__ == "__main__":
    main()
