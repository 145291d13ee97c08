"""The module of each operator; it is imported when one of its operators is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
    "attention.group_query": "com.microsoft::GroupQueryAttention",
    "attention.linear": "LinearAttention com.microsoft::LinearAttention",
    "attention.mask_lengths": "ReduceSum",
    "attention.operator": "Attention",
    "attention.rotary": "Neg",
    "attention.rotary_operator": "RotaryEmbedding com.microsoft::RotaryEmbedding",
    "conv.boxes": "NonMaxSuppression",
    "conv.channel_norms": "GroupNormalization InstanceNormalization",
    "conv.conv": "Conv",
    "conv.deform": "DeformConv",
    "conv.grid": "GridSample com.microsoft::GridSample",
    "conv.inverted_residual": "Conv",
    "conv.optimized": (
        "com.microsoft::FusedConv com.microsoft::NhwcConv com.microsoft::NhwcFusedConv "
        "com.microsoft::NhwcMaxPool"
    ),
    "conv.patch_embedding": "Conv",
    "conv.pooling": "AveragePool GlobalAveragePool MaxPool",
    "conv.resizing": "Resize",
    "conv.roi_align": "RoiAlign",
    "conv.transposed": "ConvTranspose",
    "conv.typed_windows": "Col2Im",
    "data_movement.concat": "Concat",
    "data_movement.indexed": (
        "ai.onnx.ml::ArrayFeatureExtractor GatherElements GatherND ScatterElements ScatterND "
        "com.microsoft::GatherND"
    ),
    "data_movement.pad_tile": (
        "Gather Pad ReverseSequence Tile Trilu com.microsoft::Pad com.microsoft::Trilu"
    ),
    "data_movement.transpose": "DepthToSpace SpaceToDepth Transpose",
    "data_movement.views": "Expand Flatten Reshape Slice Split SplitToSequence Squeeze Unsqueeze",
    "elementwise.affine_grid": "AffineGrid",
    "elementwise.batch_norm": "BatchNormalization",
    "elementwise.elementwise": (
        "Abs Acos Acosh Add Asin Asinh Atan Atanh Ceil Celu Clip Cos Cosh Div Elu Erf Exp Floor "
        "Gelu HardSigmoid HardSwish LeakyRelu Log Max Min Mish Mul Neg PRelu Pow Reciprocal Relu "
        "Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Sub Swish Tan Tanh ThresholdedRelu"
    ),
    "elementwise.one_hot": "Hardmax OneHot",
    "elementwise.operators": (
        "And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Equal Greater "
        "GreaterOrEqual IsInf IsNaN Less LessOrEqual Mod Not Or Round Sign Where Xor"
    ),
    "elementwise.scaled_silu": "com.microsoft::ScaledSiLU",
    "int8.conv": "Conv QLinearConv com.microsoft::QLinearConv",
    "int8.conv_integer": "ConvInteger",
    "int8.dense": "MatMul ai.tenonnx::DequantizeMatMul",
    "int8.matmul": (
        "MatMulInteger QLinearMatMul com.microsoft::DynamicQuantizeMatMul "
        "com.microsoft::MatMulIntegerToFloat com.microsoft::QGemm com.microsoft::QLinearMatMul"
    ),
    "int8.pooling": "GlobalAveragePool MaxPool com.microsoft::QLinearGlobalAveragePool",
    "int8.qlinear_binary": "Add Mul com.microsoft::QLinearAdd com.microsoft::QLinearMul",
    "int8.quantizing": (
        "DequantizeLinear DynamicQuantizeLinear QuantizeLinear com.microsoft::DequantizeLinear "
        "com.microsoft::QuantizeLinear"
    ),
    "int8.softmax": "com.microsoft::QLinearSoftmax",
    "int8.table": (
        "Concat DequantizeLinear com.microsoft::QLinearLeakyRelu com.microsoft::QLinearSigmoid"
    ),
    "matmul.affine": "Gemm MatMul",
    "matmul.dense": "Gemm",
    "matmul.einsum": "Einsum",
    "matmul.experts": "MatMul",
    "matmul.matmul": "Gemm MatMul",
    "ml.categories": "Sum",
    "ml.columns": "Concat",
    "ml.distances": "com.microsoft::CDist",
    "ml.feature_hashing": "ReduceSum",
    "ml.hashing": "com.microsoft::MurmurHash3",
    "ml.lookup": "ai.onnx.ml::LabelEncoder ai.onnx.ml::OneHotEncoder",
    "ml.normalizer": "ai.onnx.ml::Normalizer",
    "ml.scaler": "ai.onnx.ml::Scaler",
    "ml.svm": "ai.onnx.ml::SVMClassifier",
    "ml.tfidf": "TfIdfVectorizer",
    "ml.tokens": "com.microsoft::Tokenizer",
    "ml.trees": (
        "ai.onnx.ml::TreeEnsemble ai.onnx.ml::TreeEnsembleClassifier "
        "ai.onnx.ml::TreeEnsembleRegressor"
    ),
    "ml.warping": "com.microsoft::DynamicTimeWarping",
    "norm.branches": "com.microsoft::BranchwiseRMSNorm",
    "norm.engram": "com.microsoft::EngramGate",
    "norm.log_sum_exp": "ReduceLogSumExp",
    "norm.lp": "LpNormalization",
    "norm.norms": (
        "LayerNormalization LogSoftmax RMSNormalization SimplifiedLayerNormalization Softmax "
        "com.microsoft::SimplifiedLayerNormalization"
    ),
    "quantized.dequantized": "ai.tenonnx::DequantizeMatMul",
    "quantized.gather": "com.microsoft::GatherBlockQuantized",
    "quantized.mixtures": "com.microsoft::MoE com.microsoft::QMoE",
    "quantized.nbits": "com.microsoft::MatMulNBits",
    "recurrent.operator": "GRU LSTM RNN",
    "recurrent.quantized": "com.microsoft::DynamicQuantizeLSTM",
    "reduce.reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare"
    ),
    "reduce.scan": "CumProd CumSum",
    "reduce.topk": "TopK",
}
