"""Writes the models of ``optimised/`` with onnxruntime; the tests do not need it.

``python tests/contrib/optimise.py`` saves models of ``tests/exports`` as onnxruntime optimises
them, fuses them for transformers, and quantises them. A quantised model's answers lie beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime import quantization
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers.optimizer import optimize_model

HERE = Path(__file__).parent / "optimised"
EXPORTS = Path(__file__).parents[1] / "exports"
LEVELS = {
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
LAYOUTS = ["NchwcTransformer", "NhwcTransformer"]
"""They lay tensors out for the processor at hand, in a domain of their own."""


def save(source: Path, target: Path, level: str) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(target)
    options.add_session_config_entry("session.save_model_format", target.suffix[1:].upper())
    ort.InferenceSession(source, options, ["CPUExecutionProvider"], disabled_optimizers=LAYOUTS)


def feeds_of(name: str) -> dict[str, Any]:
    arrays = np.load(EXPORTS / f"{name}.npz")
    inputs = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
    session = ort.InferenceSession(EXPORTS / f"{name}.onnx", providers=["CPUExecutionProvider"])
    wanted = {value.name for value in session.get_inputs()}
    return {key: array for key, array in inputs.items() if key in wanted}


def finish(quantised: Path, name: str, target: str, level: str = "extended") -> None:
    """Optimise a quantised model, and keep what it was and what onnxruntime answers."""
    save(quantised, HERE / target, level)
    quantised.unlink()
    session = ort.InferenceSession(HERE / target, providers=["CPUExecutionProvider"])
    answers = session.run(None, feeds_of(name))
    np.savez_compressed((HERE / target).with_suffix(".npz"), *answers)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The one sample that an export comes with."""

    def __init__(self, name: str) -> None:
        self.left = [feeds_of(name)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def quantise(name: str, form: str, source: Path | None = None) -> None:
    path = HERE / "quantised.onnx"
    source = source or EXPORTS / f"{name}.onnx"
    if form == "dynamic":
        # Shapes are not inferred through operators of other domains.
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantization.quantize_dynamic(source, path, extra_options=options)
    elif form == "int4":
        quantizer = MatMulNBitsQuantizer(str(source), block_size=16, is_symmetric=False)
        quantizer.process()
        quantizer.model.save_model_to_file(str(path))
    else:
        quantization.quantize_static(
            source, path, Samples(name), quant_format=quantization.QuantFormat[form]
        )
    finish(path, name, f"{name}-{form.lower()}.onnx")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for suffix in ("onnx", "ort"):
        save(EXPORTS / "convnext.onnx", HERE / f"convnext-extended.{suffix}", "extended")
    save(EXPORTS / "resnet.onnx", HERE / "resnet-all.onnx", "all")
    save(EXPORTS / "mobilenet.onnx", HERE / "mobilenet-all.ort", "all")
    fused = optimize_model(
        str(EXPORTS / "distilbert.onnx"), "bert", num_heads=4, hidden_size=32, opt_level=0
    )
    fused.save_model_to_file(str(HERE / "distilbert-fused.onnx"))
    quantise("distilbert", "dynamic", HERE / "distilbert-fused.onnx")
    quantise("bert", "dynamic")
    quantise("llama", "int4")
    quantise("convnext", "QDQ")
    quantise("resnet", "QOperator")
