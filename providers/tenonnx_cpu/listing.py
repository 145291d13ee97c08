"""Which module is for which operators; it is imported when one of them is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
    "affine": "Gemm MatMul",
    "attention": "MatMul",
    "attention_op": "Attention",
    "byte_dense": "MatMul ai.tenonnx::DequantizeMatMul",
    "byte_matmul": (
        "MatMulInteger QLinearMatMul com.microsoft::DynamicQuantizeMatMul "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::QGemm com.microsoft::QLinearMatMul"
    ),
    "byte_ops": "GlobalAveragePool MaxPool",
    "byte_pairs": "Add Mul com.microsoft::QLinearAdd com.microsoft::QLinearMul",
    "byte_softmax": "com.microsoft::QLinearSoftmax",
    "conv": "Conv",
    "conv_bytes": "Conv QLinearConv com.microsoft::QLinearConv",
    "conv_integer": "ConvInteger",
    "dense": "Gemm",
    "dequantised": "ai.tenonnx::DequantizeMatMul",
    "elementwise": (
        "Abs Add Ceil Clip Div Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Max Min Mul Neg "
        "PRelu Pow Reciprocal Relu Sigmoid Softsign Sqrt Sub Swish Tanh ThresholdedRelu"
    ),
    "group_query": "com.microsoft::GroupQueryAttention",
    "joining": "Concat",
    "matmul": "Gemm MatMul",
    "nbits": "com.microsoft::MatMulNBits",
    "norms": "Add LayerNormalization LogSoftmax Mul Pow RMSNormalization ReduceMean Softmax",
    "pooling": "AveragePool GlobalAveragePool MaxPool",
    "quantising": (
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear com.microsoft::DequantizeLinear "
        "com.microsoft::QuantizeLinear"
    ),
    "recurrent": "GRU LSTM",
    "rotary": "Slice",
    "rotary_op": "RotaryEmbedding com.microsoft::RotaryEmbedding",
    "skip_norms": (
        "SimplifiedLayerNormalization com.microsoft::SimplifiedLayerNormalization "
        "com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization"
    ),
}
