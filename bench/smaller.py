"""Models in smaller numbers, made by onnxruntime's own tools as its users make them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.builder import Feeds
from bench.models import Built


def half(built: Built) -> Built:
    """Return a model of float16 throughout, between inputs and outputs of float32."""
    from onnxruntime.transformers.float16 import (
        convert_float_to_float16,
    )

    proto, feeds = built
    return convert_float_to_float16(proto, keep_io_types=True), feeds


def quantized(
    built: Built,
    samples: int = 2,
    *,
    form: str = "QDQ",
    activations: str = "QUInt8",
    reduced: bool = True,
) -> Built:
    """Return a model of int8 weights per channel, and activations by their range in random inputs.

    Args:
        built: The model, with inputs of float32 if there is more than one sample.
        samples: Inputs to calibrate with: those that are timed, and random ones like them.
        form: ``QDQ`` nodes, or integer operators: ``QOperator``.
        activations: Their type, ``QUInt8`` or ``QInt8``.
        reduced: Weights have 7 bits: without VNNI onnxruntime's sums of uint8 by int8 saturate at
            16 bits.
    """
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_static,
    )

    proto, feeds = built

    class Reader(CalibrationDataReader):
        """Hands out random inputs like the one that is timed."""

        def __init__(self) -> None:
            random = np.random.default_rng(2)
            self.left: list[Feeds] = [feeds]
            for _ in range(samples - 1):
                self.left.append(
                    {k: random.standard_normal(v.shape, dtype=np.float32) for k, v in feeds.items()}
                )

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        target = Path(folder, "quantized.onnx")
        quantize_static(
            proto,
            target,
            Reader(),
            quant_format=QuantFormat[form],
            per_channel=True,
            reduce_range=reduced,
            activation_type=QuantType[activations],
            weight_type=QuantType.QInt8,
        )
        return onnx.load(target), feeds


def dynamic(built: Built, weights: str) -> Built:
    """Return a model whose activations are quantized in each run; ``weights`` is their type."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    proto, feeds = built
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        target = Path(folder, "quantized.onnx")
        quantize_dynamic(proto, target, weight_type=QuantType[weights])
        return onnx.load(target), feeds
