"""Layers and models against onnxruntime: ``python -m bench.cpu.layers [--threads 1 4] [filter]``.

``turns`` is the median over turns of the ratio of fastest runs: the figure to go by on a machine
that others use, too.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)
os.environ.setdefault("TENONNX_JIT", "wait")

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime

import tenonnx
from bench import models, transformers
from bench.builder import FLOAT, Builder
from bench.cpu.rounds import alternate
from bench.models import Built


def one(op: str, *shape: int, **attributes: Any) -> Callable[[], Built]:
    """A node of one input."""

    def build() -> Built:
        b = Builder()
        b(op, "x", out="y", **attributes)
        proto = b.model({"x": (FLOAT, list(shape))}, {"y": (FLOAT, list(shape))}, opset=20)
        return proto, {"x": np.random.default_rng(1).standard_normal(shape, dtype=np.float32)}

    return build


def normalised(rows: int, width: int, *, skip: bool = False) -> Callable[[], Built]:
    """Layer normalisation, perhaps of a sum that is an output, too."""

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
    "norm-128x768": normalised(128, 768),
    "norm-skip-128x768": normalised(128, 768, skip=True),
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


def measure(name: str, build: Callable[[], Built], threads: int, given: argparse.Namespace) -> str:
    """Times one case; returns a line of the table."""
    proto, feeds = build()
    model = proto.SerializeToString()
    ours, theirs = tenonnx.SessionOptions(), onnxruntime.SessionOptions()
    ours.intra_op_num_threads = theirs.intra_op_num_threads = threads
    providers = ["CPUExecutionProvider"]
    mine = tenonnx.InferenceSession(model, ours, providers=providers)
    other = onnxruntime.InferenceSession(model, theirs, providers=providers)
    pairs = zip(other.run(None, feeds), mine.run(None, feeds), strict=True)
    error = max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in pairs)
    (his, my), (_, ratio) = alternate(
        [lambda: other.run(None, feeds), lambda: mine.run(None, feeds)], given.seconds, given.turns
    )
    return (
        f"{name:22} {threads:2} {his.fastest * 1e6:10.1f} {my.fastest * 1e6:10.1f} "
        f"{my.fastest / his.fastest:7.2f} {ratio:6.2f} {my.median / his.median:7.2f} "
        f"{my.processor / max(his.processor, 1e-9):6.2f} {error:8.1e}"
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("filter", nargs="?", default="")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, os.cpu_count() or 1])
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}; microseconds")
    print(f"{'case':22} th        ort       ours min/min  turns  median    cpu    error")
    for threads in given.threads:
        for name, build in CASES.items():
            if given.filter in name:
                print(measure(name, build, threads, given), flush=True)


if __name__ == "__main__":
    main()
