"""Architectures as onnxruntime's quantization tools leave them: the answers stay the same.

The tools calibrate, and compare, on whatever the name ``onnxruntime`` stands for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tenonnx

try:
    FOUND = importlib.util.find_spec("onnxruntime.quantization") is not None
except ImportError:
    FOUND = False
if not FOUND:
    pytest.skip("needs an onnxruntime with its tools", allow_module_level=True)

from onnxruntime import quantization as tools

EXPORTS = Path(__file__).parents[1] / "exports"

pytestmark = pytest.mark.filterwarnings("ignore")

Feeds = dict[str, Any]


class Once(tools.CalibrationDataReader):
    def __init__(self, feeds: Feeds) -> None:
        self.feeds: Feeds | None = feeds

    def get_next(self) -> Feeds | None:
        feeds, self.feeds = self.feeds, None
        return feeds


def static(source: Path, target: Path, feeds: Feeds) -> None:
    form = tools.QuantFormat.QDQ
    tools.quantize_static(str(source), str(target), Once(feeds), quant_format=form)


def per_channel(source: Path, target: Path, feeds: Feeds) -> None:
    tools.quantize_static(
        str(source), str(target), Once(feeds), per_channel=True,
        activation_type=tools.QuantType.QUInt8, op_types_to_quantize=["Conv", "Gemm", "MatMul"],
    )  # fmt: skip


def dynamic(source: Path, target: Path, feeds: Feeds) -> None:
    del feeds
    tools.quantize_dynamic(str(source), str(target), op_types_to_quantize=["MatMul", "Gemm"])


def int4(source: Path, target: Path, feeds: Feeds) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    del feeds
    quantizer = MatMulNBitsQuantizer(
        onnx.load(source), block_size=32, is_symmetric=True, quant_format=tools.QuantFormat.QDQ
    )
    quantizer.process()
    quantizer.model.save_model_to_file(str(target))


TRANSFORMERS = ["gpt2", "llama", "whisper", "vit"]
CASES = [
    *((name, way) for name in TRANSFORMERS for way in (static, per_channel, dynamic, int4)),
    ("resnet", static),
    ("resnet", per_channel),
]


@pytest.mark.parametrize(("name", "quantize"), CASES)
def test_tools_outputs_run(
    tmp_path: Path, name: str, quantize: Callable[[Path, Path, Feeds], None]
) -> None:
    source, target = EXPORTS / f"{name}.onnx", tmp_path / "quantized.onnx"
    with np.load(EXPORTS / f"{name}.npz") as data:
        feeds = {key[3:]: data[key] for key in data if key.startswith("in:")}
        original = [data[key] for key in data if key.startswith("out:")]
    quantize(source, target, feeds)
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    found = tenonnx.InferenceSession(target, options).run(None, feeds)
    expected = ReferenceEvaluator(onnx.load(target)).run(None, feeds)
    for answer, reference, exact in zip(found, expected, original, strict=True):
        if answer.dtype.kind != "f":
            continue
        size = np.linalg.norm(reference.astype(np.float64).ravel())
        # Sums in another order round an activation to the next step here and there.
        assert np.linalg.norm((answer - reference).astype(np.float64).ravel()) <= 0.01 * size
        assert np.linalg.norm((answer - exact).astype(np.float64).ravel()) <= 0.5 * size
