"""A float32 model whose every weight goes through constant Transposes and Reshapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from bench.builder import Builder
from bench.weight_sharing.case import Bound, Case, Weights, row, save, scaled

# At full scale these make 1.5 GB.
WIDTH, LAYERS, HEADS = 2304, 6, 16

BOUNDS = (Bound("peak_mib", 16), Bound("ran_mib", 16), Bound("load_s", 1 / 20, relative=True))


def fold(folder: Path, scale: float) -> Case:
    """Layers of attention's and a perceptron's shapes, stored as frameworks lay them out."""
    width = scaled(WIDTH, scale)
    path = folder / "fold.onnx"
    b = Builder()
    flat = b.ints(width, width)
    tall = b.ints(width, 4 * width)
    ones = b.weight(np.ones(width, np.float32), "ones")
    x = "x"
    with Weights(path) as weights:

        def turned(name: str, *shape: int, into: str = "") -> str:
            """Add a matrix that is stored as its transpose, maybe in another shape."""
            stored = weights.normal(name, *shape, scale=width**-0.5)
            if into:
                stored = b("Reshape", stored, into)
            return b("Transpose", stored, perm=[1, 0])

        for layer in range(LAYERS):
            normed = b("LayerNormalization", x, ones)
            shape = (HEADS, width // HEADS, width)
            q, k, v = (
                b("MatMul", normed, turned(f"weight_{name}{layer}", *shape, into=flat))
                for name in "qkv"
            )
            mixed = b("Add", b("Mul", q, b("Sigmoid", k)), v)
            x = b("Add", x, b("MatMul", mixed, turned(f"o{layer}", width, width)))
            up = b("Relu", b("MatMul", x, turned(f"up{layer}", 4 * width, width)))
            down = turned(f"down{layer}", 4 * width * width, into=tall)
            x = b("Add", x, b("MatMul", up, down))
        b("LayerNormalization", x, ones, out="y")
        graph = helper.make_graph(
            b.nodes,
            "fold",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", width])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", width])],
            weights.initializers(b),
        )
    save(path, graph, 17)
    return Case("fold", path, [row(width)], bounds=BOUNDS)
