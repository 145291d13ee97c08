"""Writes the models of ``optimized/`` with onnxruntime; the tests do not need it.

``python tests/contrib/optimize.py`` saves models of ``tests/exports`` as onnxruntime optimizes
them, fuses them for transformers, and quantizes them. A quantized model's answers lie beside it.
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

HERE = Path(__file__).parent / "optimized"
EXPORTS = Path(__file__).parents[1] / "exports"
LEVELS = {
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
LAYOUTS = ["NchwcTransformer", "NhwcTransformer"]
"""They lay tensors out for the processor at hand, in a domain of their own: ``save_blocked``."""


BLOCKED = """
<ir_version: 8, opset_import: ["": 17]>
blocked (float[n,3,h,w] x, float[n,a,b,20] z)
    => (float[n,24,c,d] y, float[n,e,f,20] t, float[n,48,1,1] g) {
    c1 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)  r1 = Relu(c1)
    p1 = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r1)
    c2 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=48>(p1, w2, b2)
    r2 = LeakyRelu<alpha=0.2>(c2)
    c3 = Conv<kernel_shape=[1,1]>(r2, w3, b3)  c4 = Conv<kernel_shape=[1,1]>(r2, w4)
    s1 = Add(c3, c4)  r4 = Relu(s1)
    c5 = Conv<kernel_shape=[1,1]>(r4, w5, b5)  k5 = Clip(c5, low, high)  g = GlobalAveragePool(k5)
    a1 = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(k5)
    u1 = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">
        (a1, , scales)
    y = Conv<kernel_shape=[1,1]>(u1, w6, b6)
    z1 = Transpose<perm=[0,3,1,2]>(z)  c7 = Conv<kernel_shape=[3,3]>(z1, w7, b7)
    h7 = HardSigmoid<alpha=0.25>(c7)  t = Transpose<perm=[0,2,3,1]>(h7) }
"""
"""Its optimized form has operators of com.microsoft.nchwc, and channels that fill no block."""


def save_blocked() -> None:
    """Write a network in the layout of this machine, with its inputs and answers."""
    random = np.random.default_rng(0)
    shapes = {
        "w1": (48, 3, 3, 3), "b1": (48,), "w2": (48, 1, 3, 3), "b2": (48,), "w3": (24, 48, 1, 1),
        "b3": (24,), "w4": (24, 48, 1, 1), "w5": (48, 24, 1, 1), "b5": (48,), "w6": (24, 48, 1, 1),
        "b6": (24,), "w7": (20, 20, 3, 3), "b7": (20,),
    }  # fmt: skip
    weights = {k: random.standard_normal(v).astype(np.float32) * 0.3 for k, v in shapes.items()}
    weights |= {"low": np.float32(-0.5), "high": np.float32(0.5)}
    weights["scales"] = np.array([1, 1, 2, 3], np.float32)
    model = onnx.parser.parse_model(BLOCKED)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()
    )
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = str(HERE.parent / "blocked.onnx")
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {"x": (2, 3, 17, 18), "z": (1, 5, 6, 20)}
    given = {name: random.random(shape, np.float32) for name, shape in feeds.items()}
    answers = dict(zip("ytg", session.run(None, given), strict=True))
    arrays = {f"in:{k}": v for k, v in given.items()} | {f"out:{k}": v for k, v in answers.items()}
    np.savez_compressed(HERE.parent / "blocked.npz", **arrays)


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


def finish(quantized: Path, name: str, target: str, level: str = "extended") -> None:
    """Optimize a quantized model, and keep what it was and what onnxruntime answers."""
    save(quantized, HERE / target, level)
    quantized.unlink()
    session = ort.InferenceSession(HERE / target, providers=["CPUExecutionProvider"])
    answers = session.run(None, feeds_of(name))
    np.savez_compressed((HERE / target).with_suffix(".npz"), *answers)


class Samples(quantization.CalibrationDataReader):  # type: ignore[misc]
    """The sample in an export's folder."""

    def __init__(self, name: str) -> None:
        self.left = [feeds_of(name)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def quantize(name: str, form: str, source: Path | None = None) -> None:
    path = HERE / "quantized.onnx"
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
    save_blocked()
    for suffix in ("onnx", "ort"):
        save(EXPORTS / "convnext.onnx", HERE / f"convnext-extended.{suffix}", "extended")
    save(EXPORTS / "resnet.onnx", HERE / "resnet-all.onnx", "all")
    save(EXPORTS / "mobilenet.onnx", HERE / "mobilenet-all.ort", "all")
    fused = optimize_model(
        str(EXPORTS / "distilbert.onnx"), "bert", num_heads=4, hidden_size=32, opt_level=0
    )
    fused.save_model_to_file(str(HERE / "distilbert-fused.onnx"))
    quantize("distilbert", "dynamic", HERE / "distilbert-fused.onnx")
    quantize("bert", "dynamic")
    quantize("llama", "int4")
    quantize("convnext", "QDQ")
    quantize("resnet", "QOperator")
