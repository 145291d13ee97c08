"""The models that are timed, each built from random weights of a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference

from bench.builder import FLOAT, INT64, Builder, Feeds
from bench.convnets import STAGES, mobilenet_v2, resnet50
from bench.transformers import decoder, encoder

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"

Built = tuple[onnx.ModelProto, Feeds]


def mlp(width: int = 64) -> Built:
    """Five nodes: three layers, two activations."""
    b = Builder()
    x = "x"
    for layer in range(3):
        out = "y" if layer == 2 else ""
        x = b("Gemm", x, b.normal(width, width), b.small(width), out=out)
        if layer < 2:
            x = b("Relu", x)
    proto = b.model({"x": (FLOAT, ["batch", width])}, {"y": (FLOAT, ["batch", width])})
    return proto, {"x": np.random.default_rng(1).standard_normal((1, width), dtype=np.float32)}


def mlp_stack(rows: int = 1, width: int = 1024, inner: int = 4096, layers: int = 4) -> Built:
    """Dense layers to a wider row and back, with a Relu after each but the last."""
    b = Builder()
    x = "x"
    for layer in range(layers):
        shape = (width, inner) if layer % 2 == 0 else (inner, width)
        x = b("Gemm", x, b.normal(*shape), b.small(shape[1]))
        if layer < layers - 1:
            x = b("Relu", x)
    b("Identity", x, out="y")
    proto = b.model({"x": (FLOAT, ["batch", width])}, {"y": (FLOAT, ["batch", width])})
    return proto, {"x": np.random.default_rng(1).standard_normal((rows, width), dtype=np.float32)}


def relus(length: int = 200, dtype: int = FLOAT) -> Built:
    """A chain of Relus over four elements: what it takes is what a node costs, unless fused."""
    b = Builder()
    x = "x"
    for position in range(length):
        x = b("Relu", x, out="y" if position == length - 1 else "")
    # With types inferred, as exporters leave them, it is plain which chains are of float32.
    proto = shape_inference.infer_shapes(b.model({"x": (dtype, [4])}, {"y": (dtype, [4])}))
    return proto, {"x": np.array([-1, 0, 1, 2], helper.tensor_dtype_to_np_dtype(dtype))}


def wide(nodes: int) -> Built:
    """So many nodes, each adding a weight of its own to what one of seven before has made."""
    b = Builder()
    values = ["x"]
    for i in range(nodes):
        out = "y" if i == nodes - 1 else ""
        values.append(b("Add", values[-1 - i % 7], b.small(4), out=out))
    return b.model({"x": (FLOAT, [4])}, {"y": (FLOAT, [4])}), {"x": np.ones(4, np.float32)}


def sums(weights: int, most: int = 100) -> Built:
    """So many weights of four numbers each, a hundred of them added up by one node."""
    b = Builder()
    found = [b.small(4) for _ in range(weights)]
    parts = [b("Sum", "x", *found[i : i + most]) for i in range(0, weights, most)]
    while len(parts) > 1:
        parts = [b("Sum", *parts[i : i + most]) for i in range(0, len(parts), most)]
    b("Identity", parts[0], out="y")
    return b.model({"x": (FLOAT, [4])}, {"y": (FLOAT, [4])}), {"x": np.ones(4, np.float32)}


def lstm(steps: int = 100, width: int = 128) -> Built:
    """One LSTM layer in both directions over a batch of eight sequences."""
    return _both_ways("LSTM", 4, steps, width)


def gru(steps: int = 100, width: int = 128) -> Built:
    """One GRU layer in both directions over a batch of eight sequences."""
    return _both_ways("GRU", 3, steps, width, linear_before_reset=1)


def _both_ways(op: str, gates: int, steps: int, width: int, **given: Any) -> Built:
    b = Builder()
    weights = [b.random.standard_normal((2, gates * width, n)) / n**0.5 for n in (64, width)]
    w, r = (b.weight(array.astype(np.float32)) for array in weights)
    bias = b.small(2, 2 * gates * width)
    b(op, "x", w, r, bias, out="y", hidden_size=width, direction="bidirectional", **given)
    proto = b.model(
        {"x": (FLOAT, ["steps", "batch", 64])}, {"y": (FLOAT, ["steps", 2, "batch", width])}
    )
    x = np.random.default_rng(1).standard_normal((steps, 8, 64), dtype=np.float32)
    return proto, {"x": x}


def lstm_layers(steps: int = 100, batch: int = 1, width: int = 256, layers: int = 2) -> Built:
    """LSTM layers of one direction, one over the other."""
    return _recurrent_layers("LSTM", 4, steps, batch, width, layers)


def gru_layers(steps: int = 100, batch: int = 1, width: int = 256, layers: int = 2) -> Built:
    """GRU layers of one direction, one over the other, in the form that torch exports."""
    return _recurrent_layers("GRU", 3, steps, batch, width, layers, linear_before_reset=1)


def _recurrent_layers(
    op: str, gates: int, steps: int, batch: int, width: int, layers: int, **given: Any
) -> Built:
    b = Builder()
    x = "x"
    for _ in range(layers):
        w, r = (b.normal(1, gates * width, width) for _ in range(2))
        y = b(op, x, w, r, b.small(1, 2 * gates * width), hidden_size=width, **given)
        x = b("Squeeze", y, b.ints(1))
    b("Identity", x, out="y")
    shape = [steps, batch, width]
    feed = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    return b.model({"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}), {"x": feed}


def forest(trees: int = 100, depth: int = 6, rows: int = 1000) -> Built:
    """A scaler and a forest of full binary trees over twenty features, three classes."""
    features, classes = 20, 3
    b = Builder()
    inner, total = 2**depth - 1, 2 ** (depth + 1) - 1
    node = np.tile(np.arange(total), trees)
    leaf = node >= inner
    tree = np.repeat(np.arange(trees), total)
    values = b.random.standard_normal(node.size)
    leaves = np.repeat(np.flatnonzero(leaf), classes)
    shares = b.random.dirichlet(np.ones(classes), leaves.size // classes) / trees
    scaled = b(
        "Scaler",
        "x",
        domain="ai.onnx.ml",
        offset=b.random.standard_normal(features).tolist(),
        scale=b.random.uniform(0.5, 2, features).tolist(),
    )
    b.many(
        "TreeEnsembleClassifier",
        scaled,
        outputs=["label", "probabilities"],
        domain="ai.onnx.ml",
        nodes_treeids=tree.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_modes=np.where(leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=np.where(leaf, 0, b.random.integers(0, features, node.size)).tolist(),
        nodes_values=np.where(leaf, 0, values).tolist(),
        nodes_truenodeids=np.where(leaf, 0, 2 * node + 1).tolist(),
        nodes_falsenodeids=np.where(leaf, 0, 2 * node + 2).tolist(),
        class_treeids=tree[leaves].tolist(),
        class_nodeids=node[leaves].tolist(),
        class_ids=np.tile(np.arange(classes), leaves.size // classes).tolist(),
        class_weights=shares.reshape(-1).tolist(),
        classlabels_int64s=list(range(classes)),
        post_transform="NONE",
    )
    proto = b.model(
        {"x": (FLOAT, ["rows", features])},
        {"label": (INT64, ["rows"]), "probabilities": (FLOAT, ["rows", classes])},
        ml=3,
    )
    x = np.random.default_rng(1).standard_normal((rows, features), dtype=np.float32)
    return proto, {"x": x}


def digits() -> Built:
    """The trained network of ``examples/digits`` on random pixels."""
    proto = onnx.load(DIGITS)
    given = proto.graph.input[0]
    shape = [d.dim_value or 1 for d in given.type.tensor_type.shape.dim]
    return proto, {given.name: np.random.default_rng(1).random(shape, dtype=np.float32)}


# Every timed model, in its full size.
MODELS: dict[str, Callable[[], Built]] = {
    "mlp": mlp,
    "relus": relus,
    "digits": digits,
    "encoder": encoder,
    "decoder": decoder,
    "resnet50": resnet50,
    "mobilenet-v2": mobilenet_v2,
    "lstm": lstm,
    "forest": forest,
}

# Some of them in sizes that take a moment.
SMALL: dict[str, Callable[[], Built]] = {
    "mlp": mlp,
    "digits": digits,
    "encoder": lambda: encoder(layers=1, width=64, heads=2, vocabulary=256),
    "decoder": lambda: decoder(layers=1, width=64, heads=2, vocabulary=256),
    "resnet50": lambda: resnet50(image=32, blocks=(1, 1, 1, 1), width=8),
    "mobilenet-v2": lambda: mobilenet_v2(image=32, stages=STAGES[:2]),
    "forest": lambda: forest(trees=5, depth=3, rows=50),
}


def models(*, quick: bool) -> dict[str, Callable[[], Built]]:
    """Return the builders of the models that can be built here."""
    chosen = dict(SMALL if quick else MODELS)
    if not DIGITS.exists():
        del chosen["digits"]
    return chosen
