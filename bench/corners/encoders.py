"""Encoders in smaller numbers, and small ones as they are exported."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from bench.builder import FLOAT, MICROSOFT, Builder
from bench.corners.exported import exported
from bench.cpu.table import TINY, Row
from bench.models import Built
from bench.smaller import half
from bench.transformers import encoder

VIT = {"layers": 2, "width": 384, "heads": 6, "vocabulary": 256}


def qattention(tokens: int = 128, width: int = 256, heads: int = 4) -> Built:
    """Attention of bytes by matrices of bytes, as onnxruntime's tools quantize BERT."""
    b = Builder()
    random = b.random
    # Within 7 bits: onnxruntime adds pairs of u8 x s8 products in 16 bits where there is no VNNI.
    weight = b.weight(random.integers(-64, 64, (width, 3 * width), np.int8))
    scales = [b.number(0.02), b.number(0.002)]
    zeros = [b.weight(np.array(zero)) for zero in (np.uint8(128), np.int8(0))]
    b(
        "QAttention", "x", weight, b.small(3 * width), *scales, "", *zeros, out="y",
        domain=MICROSOFT, num_heads=heads,
    )  # fmt: skip
    shape = [1, tokens, width]
    proto = b.model({"x": (TensorProto.UINT8, shape)}, {"y": (FLOAT, shape)})
    return proto, {"x": np.random.default_rng(1).integers(0, 256, shape, np.uint8)}


ROWS = {
    "qattention": Row("QAttention, 128 x 256", qattention, lambda: qattention(4, 16, 2)),
    "encoder-fp16": Row(
        "encoder of float16, 2 layers of 384",
        lambda: half(encoder(**VIT)),
        lambda: half(encoder(**TINY)),
        tolerance=0.02,
    ),
    **{f"tiny-{name}": exported(f"{name}-dynamo") for name in ("vit", "t5", "deberta")},
}
