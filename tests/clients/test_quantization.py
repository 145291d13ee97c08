"""onnxruntime's quantization tools: they calibrate through tenonnx, which runs what they make."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import FLOAT, model, node, value

try:
    FOUND = importlib.util.find_spec("onnxruntime.quantization") is not None
except ImportError:
    FOUND = False
if not FOUND:
    pytest.skip("needs an onnxruntime with its tools", allow_module_level=True)

import onnxruntime
from onnxruntime import quantization as tools

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((64, 3, 12, 12)).astype(np.float32)

pytestmark = pytest.mark.filterwarnings("ignore")


def weights(*shape: int) -> Any:
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    proto = model(
        [
            node("Conv", "x k b", "c", pads=[1, 1, 1, 1]),
            node("Relu", "c", "r"),
            node("GlobalAveragePool", "r", "g"),
            node("Flatten", "g", "f"),
            node("MatMul", "f w", "y"),
        ],
        [value("x", FLOAT, ["n", 3, 12, 12])],
        [value("y", FLOAT, ["n", 32])],
        {"k": weights(64, 3, 3, 3), "b": weights(64), "w": weights(64, 32)},
        opset=17,
        ir_version=8,
    )
    file = tmp_path / "float.onnx"
    onnx.save(proto, file)
    return file


class Reader(tools.CalibrationDataReader):
    def __init__(self) -> None:
        self.rows: Iterator[Any] = iter(np.split(ROWS, 8))

    def get_next(self) -> Any:
        rows = next(self.rows, None)
        return None if rows is None else {"x": rows}


def run(path: Path) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": ROWS})[0]


def check_close(path: Path, reference: Path, most: float) -> None:
    """Check the error's size relative to the output's."""
    expected = run(reference)
    error = np.linalg.norm(run(path) - expected) / np.linalg.norm(expected)
    assert 0 < error < most


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_static_quantization(path: Path, form: str, method: str) -> None:
    target = path.with_name("static.onnx")
    tools.quantize_static(
        str(path),
        str(target),
        Reader(),
        quant_format=tools.QuantFormat[form],
        calibrate_method=tools.CalibrationMethod[method],
    )
    check_close(target, path, 0.1)


def test_dynamic_quantization(path: Path) -> None:
    target = path.with_name("dynamic.onnx")
    tools.quantize_dynamic(str(path), str(target), op_types_to_quantize=["MatMul"])
    assert "MatMulInteger" in {n.op_type for n in onnx.load(target).graph.node}
    check_close(target, path, 0.1)


def test_preprocessing_writes_the_optimized_model(path: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    target = path.with_name("prepared.onnx")
    quant_pre_process(str(path), str(target), skip_symbolic_shape=True)
    np.testing.assert_allclose(run(target), run(path), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
def test_weights_of_four_bits(path: Path, symmetric: bool, form: str) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        onnx.load(path),
        block_size=32,
        is_symmetric=symmetric,
        quant_format=tools.QuantFormat[form],
        op_types_to_quantize=("MatMul",),
    )
    quantizer.process()
    target = path.with_name("four.onnx")
    quantizer.model.save_model_to_file(str(target))
    check_close(target, path, 0.3)
