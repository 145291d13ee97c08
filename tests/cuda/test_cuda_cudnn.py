"""The numbers that cuDNN is spoken to in: those of its own header, where that is installed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from tenonnx_cuda.conv import convolution_graph
from tenonnx_cuda.cudnn import operations, plans
from tenonnx_cuda.cudnn.descriptors import CUDNN_ATTRIBUTES, DESCRIPTORS

HEADERS = ("cudnn_graph.h", "cudnn_graph_v9.h")

NUMBERS = {
    "DATA_FLOAT": operations.FLOAT,
    "DATA_INT32": operations.INT32,
    "DATA_BOOLEAN": operations.BOOLEAN,
    "NUMERICAL_NOTE_TENSOR_CORE": plans.TENSOR_CORE,
    "NUMERICAL_NOTE_DOWN_CONVERT_INPUTS": plans.DOWN_CONVERT,
    "NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION": plans.REDUCED_SUMS,
    "NUMERICAL_NOTE_NONDETERMINISTIC": plans.NONDETERMINISTIC,
    "BEHAVIOR_NOTE_RUNTIME_COMPILATION": plans.RUNTIME_COMPILATION,
    "CROSS_CORRELATION": convolution_graph.CROSS_CORRELATION,
    "PROPAGATE_NAN": operations.PROPAGATE,
    "REDUCE_TENSOR_ADD": operations.SUM,
    "REDUCE_TENSOR_MAX": operations.LARGEST,
    "POINTWISE_ADD": operations.ADD,
    "POINTWISE_MUL": operations.MULTIPLY,
    "POINTWISE_DIV": operations.DIVIDE,
    "POINTWISE_SUB": operations.SUBTRACT,
    "POINTWISE_EXP": operations.EXP,
    "POINTWISE_LOG": operations.LOG,
    "POINTWISE_RELU_FWD": operations.RELU,
    "POINTWISE_TANH_FWD": operations.TANH,
    "POINTWISE_CMP_GT": operations.GREATER,
    "POINTWISE_CMP_GE": operations.GREATER_OR_EQUAL,
    "POINTWISE_CMP_LT": operations.LESS,
    "POINTWISE_LOGICAL_AND": operations.AND,
    "POINTWISE_GEN_INDEX": operations.INDEX,
    "POINTWISE_BINARY_SELECT": operations.SELECT,
}


def header() -> str | None:
    """The text of cuDNN's header, if a package of it is installed."""
    if importlib.util.find_spec("nvidia") is None or not importlib.util.find_spec("nvidia.cudnn"):
        return None
    spec = importlib.util.find_spec("nvidia.cudnn")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = [p for f in folders for name in HEADERS if (p := Path(f) / "include" / name).exists()]
    return found[0].read_text() if found else None


def test_numbers_are_those_of_cudnns_header() -> None:
    text = header()
    if text is None:
        pytest.skip("cuDNN's headers are not installed (pip install nvidia-cudnn-cu13)")
    numbers = {name: int(n) for name, n in re.findall(r"(CUDNN_\w+)[^=,\n]*= *(\d+)", text)}
    for name, number in DESCRIPTORS.items():
        assert numbers[f"CUDNN_BACKEND_{name}_DESCRIPTOR"] == number
    for name, (number, _) in CUDNN_ATTRIBUTES.items():
        assert numbers[f"CUDNN_ATTR_{name}"] == number
    for name, number in NUMBERS.items():
        assert numbers[f"CUDNN_{name}"] == number
    kinds = {"float32": "FLOAT", "float16": "HALF", "bfloat16": "BFLOAT16", "int32": "INT32"}
    for dtype, number in operations.CUDNN_TYPES.items():
        assert numbers[f"CUDNN_DATA_{kinds[dtype.name]}"] == number
    modes = [numbers[f"CUDNN_HEUR_MODE_{name}"] for name in ("A", "FALLBACK")]
    assert modes == list(plans.HEURISTICS)
