"""Layers of Phi-3-mini in 4 bits, quantized in blocks, as DequantizeLinear and MatMul."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from bench.builder import Builder
from bench.weight_sharing.case import Bound, Case, Weights, row, save, scaled

HIDDEN, INTERMEDIATE, BLOCK = 3072, 8192, 32

# By default onnxruntime rounds activations to 8 bits, and without prepacking it dequantizes whole
# matrices in every run.
BEST = {"session.qdq_matmulnbits_accuracy_level": "1"}

BOUNDS = (Bound("peak_mib", 64), Bound("ran_mib", 128), Bound("load_s", 1 / 20, relative=True))


def qdq(folder: Path, scale: float, layers: int) -> Case:
    """A chain of layers with all of the model's products, and residual Adds between them.

    Activations have three axes, as exporters write them: of two, onnxruntime fuses nothing.
    """
    hidden, intermediate = scaled(HIDDEN, scale), scaled(INTERMEDIATE, scale)
    path = folder / "qdq.onnx"
    b = Builder()
    ones = b.weight(np.ones(hidden, np.float32), "ones")
    x = "x"
    with Weights(path) as weights:

        def product(a: str, name: str, depth: int, columns: int) -> str:
            """Multiply by a matrix in 4 bits."""
            quantized = (
                weights.uint4(f"{name}.w", depth, columns),
                weights.positive(f"{name}.s", depth // BLOCK, columns, scale=depth**-0.5 / 4),
                weights.uint4(f"{name}.z", depth // BLOCK, columns),
            )
            matrix = b("DequantizeLinear", *quantized, axis=0, block_size=BLOCK)
            return b("MatMul", a, matrix)

        for layer in range(layers):
            normed = b("LayerNormalization", x, ones)
            qkv = product(normed, f"qkv{layer}", hidden, 3 * hidden)
            q, k, v = parts = [f"{name}_{layer}" for name in "qkv"]
            b.many("Split", qkv, outputs=parts, axis=-1, num_outputs=3)
            mixed = b("Add", b("Mul", q, b("Sigmoid", k)), v)
            x = b("Add", x, product(mixed, f"o{layer}", hidden, hidden))
            normed = b("LayerNormalization", x, ones)
            both = product(normed, f"gate_up{layer}", hidden, 2 * intermediate)
            gate, up = parts = [f"{name}{layer}" for name in ("gate", "up")]
            b.many("Split", both, outputs=parts, axis=-1, num_outputs=2)
            gated = b("Mul", b("Mul", gate, b("Sigmoid", gate)), up)
            x = b("Add", x, product(gated, f"down{layer}", intermediate, hidden))
        b("LayerNormalization", x, ones, out="y")
        graph = helper.make_graph(
            b.nodes,
            "qdq",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "rows", hidden])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "rows", hidden])],
            weights.initializers(b),
        )
    save(path, graph, 21)
    return Case("qdq-int4", path, [row(hidden, axes=3)], best=BEST, exact=False, bounds=BOUNDS)
