"""Matrix products against onnxruntime: ``python -m bench.cpu.matmul [--threads 1 4] [filter]``."""

from __future__ import annotations

import os

os.environ.pop("OPENBLAS_CORETYPE", None)

from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.cpu.side_by_side import COLUMNS, line, parser


@dataclass(frozen=True)
class Case:
    """One product: ``rows`` x ``depth`` by ``depth`` x ``columns``, ``batch`` times."""

    name: str
    rows: int
    depth: int
    columns: int
    batch: int = 1
    turned: bool = False
    constant: bool = True
    epilogue: str = ""


CASES = [
    Case("mlp-64", 1, 64, 64),
    Case("mlp-512", 1, 512, 512),
    Case("bert-qkv-1", 1, 768, 768),
    Case("gpt2-up-1", 1, 768, 3072),
    Case("gpt2-down-1", 1, 3072, 768),
    Case("llm-1", 1, 4096, 4096),
    Case("llm-4", 4, 4096, 4096),
    Case("llm-8", 8, 4096, 4096),
    Case("head-1", 1, 1024, 65536, turned=True),
    Case("head-4", 4, 1024, 65536, turned=True),
    Case("head-16", 16, 1024, 65536, turned=True),
    Case("m8", 8, 768, 3072),
    Case("m16", 16, 768, 3072),
    Case("m32", 32, 768, 3072),
    Case("bert-qkv-128", 128, 768, 768),
    Case("bert-up-128", 128, 768, 3072),
    Case("bert-down-128", 128, 3072, 768),
    Case("bert-up-gelu-128", 128, 768, 3072, epilogue="Gelu"),
    Case("bert-qkv-1024", 1024, 768, 768),
    Case("bert-up-1024", 1024, 768, 3072),
    Case("mlp-128", 128, 1024, 1024),
    Case("turned-128", 128, 1024, 4096, turned=True),
    Case("square-512", 512, 512, 512),
    Case("big", 512, 4096, 4096),
    Case("scores", 128, 64, 128, batch=12, constant=False),
    Case("values", 128, 128, 64, batch=12, constant=False),
    Case("scores-8", 128, 64, 128, batch=96, constant=False),
    Case("classifier", 64, 2048, 1000),
    Case("narrow", 1024, 512, 10),
    Case("vector", 4096, 1024, 1),
]


def build(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one product, and inputs."""
    rng = np.random.default_rng(0)
    lead = [case.batch] if case.batch > 1 else []
    a = rng.standard_normal((*lead, case.rows, case.depth), dtype=np.float32)
    shape = (case.columns, case.depth) if case.turned else (case.depth, case.columns)
    b = rng.standard_normal((*lead, *shape), dtype=np.float32)
    nodes, initializers = [], []
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, a.shape)]
    feeds = {"a": a}
    if case.constant:
        initializers.append(numpy_helper.from_array(b, "b"))
    else:
        inputs.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, b.shape))
        feeds["b"] = b
    if case.turned:
        nodes.append(helper.make_node("Gemm", ["a", "b"], ["y0"], transB=1))
    else:
        nodes.append(helper.make_node("MatMul", ["a", "b"], ["y0"]))
    last = "y0"
    if case.epilogue:
        initializers.append(numpy_helper.from_array(b[0].copy() * 0, "bias"))
        nodes.append(helper.make_node("Add", ["y0", "bias"], ["y1"]))
        nodes.append(helper.make_node(case.epilogue, ["y1"], ["y2"]))
        last = "y2"
    output = helper.make_tensor_value_info(last, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, case.name, inputs, [output], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return model.SerializeToString(), feeds


def main() -> None:
    given = parser(__doc__).parse_args()
    print(f"onnxruntime {onnxruntime.__version__}, onnx {onnx.__version__}; microseconds")
    print(f"{COLUMNS}    error  GFLOP/s")
    for threads in given.threads:
        for case in CASES:
            if given.filter in case.name:
                text, fastest = line(case.name, *build(case), threads, given)
                flops = 2 * case.batch * case.rows * case.depth * case.columns
                print(f"{text} {flops / fastest / 1e9:8.0f}", flush=True)


if __name__ == "__main__":
    main()
