"""Which module is for which operators; it is imported when one of them is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
    "attention.attention": "MatMul",
    "attention.group_query": "com.microsoft::GroupQueryAttention",
    "attention.linear": "LinearAttention com.microsoft::LinearAttention",
    "attention.operator": "Attention",
    "attention.rotary": "Neg",
    "attention.rotary_operator": "RotaryEmbedding com.microsoft::RotaryEmbedding",
    "classical.distances": "com.microsoft::CDist",
    "classical.svm": "ai.onnx.ml::SVMClassifier",
    "classical.trees": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier "
        "ai.onnx.ml::TreeEnsembleRegressor"
    ),
    "conv.boxes": "NonMaxSuppression",
    "conv.channel_norms": "GroupNormalization InstanceNormalization",
    "conv.conv": "Conv",
    "conv.optimised": (
        "com.microsoft::FusedConv com.microsoft::NhwcConv com.microsoft::NhwcFusedConv "
        "com.microsoft::NhwcMaxPool"
    ),
    "conv.patches": "Conv",
    "conv.pooling": "AveragePool GlobalAveragePool MaxPool ReduceMean",
    "conv.resizing": "Resize",
    "conv.transposed": "ConvTranspose",
    "copying.joining": "Concat",
    "copying.moving": "DepthToSpace Gather Pad ReverseSequence SpaceToDepth Tile",
    "copying.picking": "GatherElements",
    "copying.turning": "Transpose",
    "copying.views": "Expand Flatten Reshape Slice Split SplitToSequence Squeeze Unsqueeze",
    "elementwise.batch_norm": "BatchNormalization",
    "elementwise.elementwise": (
        "Abs Add Ceil Clip Div Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Max Min Mul Neg "
        "PRelu Pow Reciprocal Relu Sigmoid Softsign Sqrt Sub Swish Tanh ThresholdedRelu"
    ),
    "int8.conv": "Conv QLinearConv com.microsoft::QLinearConv",
    "int8.conv_integer": "ConvInteger",
    "int8.dense": "MatMul ai.tenonnx::DequantizeMatMul",
    "int8.matmul": (
        "MatMulInteger QLinearMatMul com.microsoft::DynamicQuantizeMatMul "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::QGemm com.microsoft::QLinearMatMul"
    ),
    "int8.pairs": "Add Mul com.microsoft::QLinearAdd com.microsoft::QLinearMul",
    "int8.pooling": "GlobalAveragePool MaxPool com.microsoft::QLinearGlobalAveragePool",
    "int8.quantising": (
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear com.microsoft::DequantizeLinear "
        "com.microsoft::QuantizeLinear"
    ),
    "int8.softmax": "com.microsoft::QLinearSoftmax",
    "int8.table": (
        "Concat DequantizeLinear com.microsoft::QLinearLeakyRelu com.microsoft::QLinearSigmoid"
    ),
    "products.affine": "Gemm MatMul",
    "products.dense": "Gemm",
    "products.experts": "MatMul",
    "products.matmul": "Gemm MatMul",
    "quantised.dequantised": "ai.tenonnx::DequantizeMatMul",
    "quantised.gather": "com.microsoft::GatherBlockQuantized",
    "quantised.mixtures": "com.microsoft::MoE com.microsoft::QMoE",
    "quantised.nbits": "com.microsoft::MatMulNBits",
    "recurrent.operator": "GRU LSTM RNN",
    "recurrent.quantised": "com.microsoft::DynamicQuantizeLSTM",
    "rows.norms": (
        "Add LayerNormalization LogSoftmax RMSNormalization SimplifiedLayerNormalization Softmax "
        "com.microsoft::SimplifiedLayerNormalization"
    ),
    "rows.reduction": "ReduceL2 ReduceMax ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    "rows.topk": "TopK",
}
