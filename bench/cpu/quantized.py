"""Blockwise quantized products against onnxruntime: ``python -m bench.cpu.quantized [filter]``.

onnxruntime gets a ``MatMulNBits`` node, or for a matrix of rows DequantizeLinear and MatMul, which
it turns into one. To see memory rather than caches at work, as a model's decoding does, there are
as many matrices as fill ``--mib``.
"""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

import argparse
import itertools
from dataclasses import dataclass

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.cpu.side_by_side import COLUMNS, compared, parser
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import Activations, matmul_q, request

INT4 = {False: TensorProto.UINT4, True: TensorProto.INT4}


@dataclass(frozen=True)
class Case:
    """A product of ``rows`` by a matrix; ``accuracy`` is onnxruntime's level."""

    name: str
    rows: int
    depth: int
    columns: int
    block: int = 32
    bits: int = 4
    by_column: bool = True
    zeros: bool = False
    accuracy: int = 4


SHAPES = [("qkv", 3072, 9216), ("up", 3072, 16384), ("down", 8192, 3072), ("4096", 4096, 4096)]
CASES = [
    *(Case(f"nbits-{name}-{m}", m, k, n) for name, k, n in SHAPES for m in (1, 4, 16, 128)),
    Case("nbits-4096-512", 512, 4096, 4096),
    Case("nbits-b128-1", 1, 4096, 4096, block=128),
    *(Case(f"nbits-zeros-{m}", m, 4096, 4096, zeros=True) for m in (1, 16)),
    *(Case(f"nbits-{b}bit-{m}", m, 4096, 4096, bits=b) for b in (2, 8) for m in (1, 16, 128)),
    *(Case(f"nbits-f32-4096-{m}", m, 4096, 4096, accuracy=0) for m in (1, 4, 128)),
    *(Case(f"nbits-f32-8bit-{m}", m, 4096, 4096, bits=8, accuracy=0) for m in (1, 128)),
    *(
        Case(f"qdq-{name}-{m}", m, k, n, by_column=False)
        for name, k, n in SHAPES
        for m in (1, 4, 16, 128)
    ),
]


def build(case: Case, rng: np.random.Generator) -> tuple[bytes, Quantized]:
    """Return a model, and the same matrix for ``matmul_q``."""
    blocks = case.depth // case.block
    lines = (case.columns, blocks) if case.by_column else (blocks, case.columns)
    scales = rng.random(lines, np.float32) * 0.01
    codes = rng.integers(0, 256, case.depth * case.columns * case.bits // 8, np.uint8)
    zeros = rng.integers(0, 256, scales.size * case.bits // 8, np.uint8) if case.zeros else None
    own = Quantized(
        codes, scales, zeros, case.bits, case.depth, case.columns, case.block, case.by_column,
        signed=not case.by_column, zero=1 << case.bits - 1 if case.by_column else 0,
    )  # fmt: skip
    if case.by_column:
        packed = codes.reshape(case.columns, blocks, -1)
        weights = [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")]
        if zeros is not None:
            weights.append(numpy_helper.from_array(zeros, "z"))
        nodes = [
            helper.make_node(
                "MatMulNBits",
                ["x", *(w.name for w in weights)],
                ["y"],
                domain="com.microsoft",
                K=case.depth,
                N=case.columns,
                bits=case.bits,
                block_size=case.block,
                accuracy_level=case.accuracy,
            )
        ]
    else:
        tensor = TensorProto(name="w", data_type=TensorProto.INT4, raw_data=codes.tobytes())
        tensor.dims.extend((case.depth, case.columns))
        weights = [tensor, numpy_helper.from_array(scales, "s")]
        nodes = [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=case.block),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, case.name, [value("x", TensorProto.FLOAT, ["m", case.depth])],
        [value("y", TensorProto.FLOAT, ["m", case.columns])], weights,
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString(), own


def measure(case: Case, threads: int, given: argparse.Namespace) -> str:
    """Time one case; return a line of the table."""
    rng = np.random.default_rng(0)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    size = case.depth * case.columns * case.bits // 8
    count = max(1, min(8, (given.mib << 20) // size))
    made = [build(case, rng) for _ in range(count)]
    activations: Activations = "int8" if case.accuracy == 4 else "float32"
    request(made[0][1], activations)
    sessions = [
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for model, _ in made
    ]
    x = rng.standard_normal((case.rows, case.depth), dtype=np.float32)
    expected = sessions[0].run(None, {"x": x})[0]
    found = done(matmul_q(x, made[0][1], threads, activations=activations))
    assert found is not None
    error = np.abs(expected - found).max() / np.abs(expected).max()
    his, mine = itertools.cycle(sessions), itertools.cycle(own for _, own in made)
    text, fastest = compared(
        lambda: next(his).run(None, {"x": x}),
        lambda: done(matmul_q(x, next(mine), threads, activations=activations)),
        given,
    )
    products = case.rows * case.depth * case.columns
    return (
        f"{case.name:28} {threads:2} {text} {error:8.1e} {products / fastest / 1e9:8.0f} "
        f"{size / fastest / 1e9:6.1f}"
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--mib", type=int, default=128)
    given = options.parse_args()
    print(f"onnxruntime {onnxruntime.__version__}; microseconds; matrices of {given.mib} MiB")
    print(f"{COLUMNS}    error  Gprod/s   GB/s")
    for threads in given.threads:
        for case in CASES:
            if given.filter in case.name:
                print(measure(case, threads, given), flush=True)


if __name__ == "__main__":
    main()
