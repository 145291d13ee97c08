"""Writes the ``.ort`` files of this folder with onnxruntime; the tests do not need it.

``python tests/ort_format/files/convert.py`` converts models of ``tests/exports`` at optimization
levels 0 and 1, and a model of its own with subgraphs, sequences and strings.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
sys.path.insert(0, str(TESTS))

from models import BOOL, FLOAT, INT64, graph, model, node, value  # noqa: E402 - needs the path

LEVELS = (
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
)


def convert(source: str | bytes, name: str, level: int) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(HERE / f"{name}-{level}.ort")
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def nested() -> bytes:
    """A loop in a branch, both reading outer values and weights, and a sequence."""
    table = np.arange(64, dtype=np.float32).reshape(16, 4)
    body = graph(
        [node("Add", "a x", "b"), node("MatMul", "b w", "c"), node("Identity", "k", "go")],
        [value("i", INT64, []), value("k", BOOL, []), value("a", FLOAT, [2, 4])],
        [value("go", BOOL, []), value("c", FLOAT, [2, 4])],
        {"w": np.eye(4, dtype=np.float32) * 2},
    )
    then = graph([node("Loop", "n _ x", "t", body=body)], [], [value("t", FLOAT, [2, 4])])
    other = graph([node("Gather", "table ids", "e")], [], [value("e", FLOAT, [2, 4])])
    nodes = [
        node("If", "cond", "y", then_branch=then, else_branch=other),
        node("SequenceConstruct", "y x", "both"),
        node("ConcatFromSequence", "both", "z", axis=0),
    ]
    inputs = [
        value("cond", BOOL, []),
        value("n", INT64, []),
        value("ids", INT64, [2]),
        value("x", FLOAT, [2, 4]),
    ]
    proto = model(nodes, inputs, [value("z", FLOAT, [4, 4])], {"table": table}, opset=20)
    return proto.SerializeToString()


if __name__ == "__main__":
    for export in ("bert", "lstm", "resnet"):
        for number in range(len(LEVELS)):
            convert(str(TESTS / "exports" / f"{export}.onnx"), export, number)
    for number in range(len(LEVELS)):
        convert(nested(), "nested", number)
