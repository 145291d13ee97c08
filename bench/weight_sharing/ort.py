"""Models in onnxruntime's own format, held by several processes at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from bench.builder import Builder
from bench.models import models
from bench.weight_sharing.case import NO_PREPACKING, Bound, Case, Weights, row, save, scaled

# At full scale these make 1 GiB.
WIDTH, LAYERS = 4096, 16

PROCESSES = (1, 4, 8)

BEST = {
    **NO_PREPACKING,
    "session.use_memory_mapped_ort_model": "1",
    "session.use_ort_model_bytes_for_initializers": "1",
}

CONVERT = """
import sys, onnxruntime
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
options.optimized_model_filepath = sys.argv[2]
options.add_session_config_entry("session.save_model_format", "ORT")
options.add_session_config_entry("session.disable_prepacking", "1")
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


def ort(folder: Path, scale: float) -> Iterator[Case]:
    """A chain of matrix products in 1, 4 and 8 processes, and ResNet-50 in one."""
    width = scaled(WIDTH, scale)
    path = folder / "chain.onnx"
    b = Builder()
    x = "x"
    with Weights(path) as weights:
        for layer in range(LAYERS):
            w = weights.normal(f"weight{layer}", width, width, scale=width**-0.5)
            x = b("MatMul", x, w, out="y" if layer == LAYERS - 1 else "")
        graph = helper.make_graph(
            b.nodes,
            "chain",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", width])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", width])],
            weights.tensors,
        )
    save(path, graph, 17)
    model = convert(path, folder / "ort" / "chain.ort")
    path.with_suffix(".data").unlink()
    limit = 1.05 * model.stat().st_size / (1 << 20)
    bounds = (Bound("ran_mib", 16), Bound("pss_mib", limit))
    for processes in PROCESSES:
        yield Case(
            f"ort x{processes}", model, [row(width)], BEST, processes=processes, bounds=bounds
        )
    proto, feeds = models(quick=scale < 1)["resnet50"]()
    onnx.save(proto, path := folder / "resnet50.onnx")
    yield Case("ort resnet50", convert(path, folder / "ort" / "resnet50.ort"), [feeds], BEST)


def convert(source: Path, target: Path) -> Path:
    """Have onnxruntime write a model in its own format, in a process of its own."""
    target.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", CONVERT, str(source), str(target)], check=True)
    return target
