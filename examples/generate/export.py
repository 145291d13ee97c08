"""The decoder as an ONNX model of standard operators, with caches that a caller keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from network import Decoder, Layer
from onnx import TensorProto, helper, numpy_helper


class Graph:
    """Nodes and weights, collected by calls that return the name of the result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, array: Any) -> str:
        """Add an initializer."""
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node of one output, named like it."""
        self.nodes.append(helper.make_node(op, inputs, [output], output, **attributes))
        return output


def layer_nodes(graph: Graph, layer: Layer, index: int, x: str) -> str:
    """Add a layer that reads ``x`` [batch, length, width]; return its result's name.

    The new keys and values go into caches [batch, key heads, capacity, head] at ``start``.
    """
    shape, at, weights = layer.shape, f"layers.{index}", layer.state_dict()

    def product(source: str, name: str) -> str:
        matrix = graph.weight(f"{at}.{name}.weight", weights[f"{name}.weight"].numpy().T)
        return graph.node("MatMul", [source, matrix], f"{at}.{name}")

    def norm(source: str, name: str) -> str:
        scale = graph.weight(f"{at}.{name}.weight", weights[f"{name}.weight"].numpy())
        return graph.node(
            "RMSNormalization", [source, scale], f"{at}.{name}", epsilon=shape.epsilon
        )

    def heads(source: str, count: int) -> str:
        sizes = graph.weight(f"{source}.sizes", np.array([0, 0, count, shape.head]))
        split = graph.node("Reshape", [source, sizes], f"{source}.split")
        return graph.node("Transpose", [split], f"{source}.heads", perm=[0, 2, 1, 3])

    def turned(source: str) -> str:
        inputs = [source, "cos", "sin", "position_ids"]
        return graph.node("RotaryEmbedding", inputs, f"{source}.turned")

    def cached(source: str, kind: str) -> str:
        inputs = [f"past_key_values.{index}.{kind}", source, "start"]
        return graph.node("TensorScatter", inputs, f"present.{index}.{kind}", axis=2)

    normed = norm(x, "attention_norm")
    q = turned(heads(product(normed, "q"), shape.heads))
    k = cached(turned(heads(product(normed, "k"), shape.key_heads)), "key")
    v = cached(heads(product(normed, "v"), shape.key_heads), "value")
    inputs = [q, k, v, "", "", "", "end"]
    seen = graph.node("Attention", inputs, f"{at}.attention", is_causal=1)
    turned_back = graph.node("Transpose", [seen], f"{seen}.turned", perm=[0, 2, 1, 3])
    joined = graph.node("Reshape", [turned_back, "joined"], f"{seen}.joined")
    x = graph.node("Add", [x, product(joined, "o")], f"{at}.attended")
    normed = norm(x, "inner_norm")
    gate = product(normed, "gate")
    opened = graph.node("Mul", [gate, graph.node("Sigmoid", [gate], f"{gate}.open")], f"{at}.silu")
    gated = graph.node("Mul", [opened, product(normed, "up")], f"{at}.gated")
    return graph.node("Add", [x, product(gated, "down")], f"{at}.out")


def to_onnx(model: Decoder) -> onnx.ModelProto:
    """Return the decoder as a model of opset 24.

    ``input_ids`` and ``position_ids`` are [batch, length], of consecutive positions. A cache
    that goes in comes out in the same shape, with the new tokens' entries at their positions;
    bound to one buffer, it is updated in place. ``logits`` are [batch, length, vocabulary].
    """
    shape, graph = model.shape, Graph()
    graph.weight("cos", model.cos.numpy())
    graph.weight("sin", model.sin.numpy())
    for name, values in {"joined": [0, 0, -1], "first": 0, "last": -1, "one": 1}.items():
        graph.weight(name, np.array(values))
    graph.node("Gather", ["position_ids", "first"], "start", axis=1)
    graph.node("Gather", ["position_ids", "last"], "newest", axis=1)
    graph.node("Add", ["newest", "one"], "end")
    table = graph.weight("embedding.weight", model.embedding.weight.detach().numpy())
    x = graph.node("Gather", [table, "input_ids"], "embedding")
    for index, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        x = layer_nodes(graph, layer, index, x)
    scale = graph.weight("norm.weight", model.norm.weight.detach().numpy())
    x = graph.node("RMSNormalization", [x, scale], "norm", epsilon=shape.epsilon)
    # The table is read as it lies, so that it stays one tensor.
    turned = graph.node("Transpose", [table], "lm_head.weight", perm=[1, 0])
    graph.node("MatMul", [x, turned], "logits")
    return _model(graph, shape)


def _model(graph: Graph, shape: Any) -> onnx.ModelProto:
    value, size = helper.make_tensor_value_info, ["batch", "length"]
    cache = ["batch", shape.key_heads, "capacity", shape.head]
    names = [f"{i}.{kind}" for i in range(shape.layers) for kind in ("key", "value")]
    inputs = [value(name, TensorProto.INT64, size) for name in ("input_ids", "position_ids")]
    inputs += [value(f"past_key_values.{name}", TensorProto.FLOAT, cache) for name in names]
    outputs = [value("logits", TensorProto.FLOAT, [*size, shape.vocabulary])]
    outputs += [value(f"present.{name}", TensorProto.FLOAT, cache) for name in names]
    made = helper.make_graph(graph.nodes, "decoder", inputs, outputs, graph.weights)
    result = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", 24)],
        ir_version=11,
        producer_name="examples/generate/train.py",
    )
    onnx.checker.check_model(result, full_check=True)
    return result
