"""The module of each operator; it is imported when one of its operators is first needed.

Written by `python tools/kernel_listing.py`; a test checks that it is up to date.
"""

from __future__ import annotations

from typing import Final

LISTING: Final = {
    "attention": "Attention-23 Attention-25 RotaryEmbedding-23",
    "batch_norm": (
        "BatchNormalization-14 BatchNormalization-7 BatchNormalization-9 BatchNormalization-6 "
        "BatchNormalization-1"
    ),
    "boxes": "NonMaxSuppression-10",
    "cast": "Identity-1 Cast-1 Cast-6 Cast-19 Cast-24 CastLike-15 CastLike-19 CastLike-24",
    "conv": "Conv-1 CausalConvWithState-27",
    "conv_quantized": "ConvInteger-10 QLinearConv-10",
    "conv_transpose": "ConvTranspose-1 Col2Im-18",
    "cumulative": "CumSum-11 CumProd-26",
    "deform": "DeformConv-19",
    "elementwise": (
        "Abs-1 Abs-6 Ceil-1 Ceil-6 Exp-1 Exp-6 Floor-1 Floor-6 Log-1 Log-6 Neg-1 Neg-6 "
        "Reciprocal-1 Reciprocal-6 Sqrt-1 Sqrt-6 Tanh-1 Tanh-6 Acos-7 Asin-7 Atan-7 Cos-7 Sin-7 "
        "Tan-7 Acosh-9 Asinh-9 Atanh-9 Cosh-9 Erf-9 IsNaN-9 Sign-9 Sinh-9 Round-11 Mod-10 Add-1 "
        "Add-6 Add-7 Div-1 Div-6 Div-7 Mul-1 Mul-6 Mul-7 Sub-1 Sub-6 Sub-7 Pow-1 Pow-7 Max-1 "
        "Max-6 Min-1 Min-6 Sum-1 Sum-6 Mean-1 Mean-6 Clip-11 Clip-6 Clip-1 IsInf-10"
    ),
    "generate": "Constant-11 Constant-12 Constant-1 ConstantOfShape-9 Range-11 Range-27 EyeLike-9",
    "grid": "GridSample-20 GridSample-16 AffineGrid-20",
    "images": "ImageDecoder-20",
    "index": (
        "Gather-1 GatherElements-11 GatherND-11 GatherND-12 NonZero-9 OneHot-9 Unique-11 "
        "Compress-9 ReverseSequence-10"
    ),
    "linalg": (
        "MatMul-1 Gemm-7 Gemm-1 GroupedMatMul-29 MatMulInteger-10 QLinearMatMul-10 Einsum-12 Det-11"
    ),
    "linear_attention": "LinearAttention-27",
    "logical": (
        "And-1 And-7 Equal-1 Equal-7 Greater-1 Greater-7 Less-1 Less-7 Or-1 Or-7 Xor-1 Xor-7 "
        "Not-1 Where-9 GreaterOrEqual-12 LessOrEqual-12 BitwiseAnd-18 BitwiseNot-18 BitwiseOr-18 "
        "BitwiseXor-18 BitShift-11 BitCast-26"
    ),
    "loss": "NegativeLogLikelihoodLoss-12 SoftmaxCrossEntropyLoss-12",
    "ml.encode": (
        "ai.onnx.ml::LabelEncoder-1 ai.onnx.ml::LabelEncoder-2 ai.onnx.ml::LabelEncoder-4 "
        "ai.onnx.ml::CategoryMapper-1 ai.onnx.ml::OneHotEncoder-1"
    ),
    "ml.features": "ai.onnx.ml::ArrayFeatureExtractor-1 ai.onnx.ml::FeatureVectorizer-1",
    "ml.linear": "ai.onnx.ml::LinearRegressor-1 ai.onnx.ml::LinearClassifier-1",
    "ml.maps": "ai.onnx.ml::DictVectorizer-1 ai.onnx.ml::CastMap-1 ai.onnx.ml::ZipMap-1",
    "ml.scale": (
        "ai.onnx.ml::Binarizer-1 ai.onnx.ml::Scaler-1 ai.onnx.ml::Normalizer-1 "
        "ai.onnx.ml::Imputer-1"
    ),
    "ml.svm": "ai.onnx.ml::SVMRegressor-1 ai.onnx.ml::SVMClassifier-1",
    "ml.trees": (
        "ai.onnx.ml::TreeEnsemble-5 ai.onnx.ml::TreeEnsembleRegressor-1 "
        "ai.onnx.ml::TreeEnsembleRegressor-3 ai.onnx.ml::TreeEnsembleClassifier-1 "
        "ai.onnx.ml::TreeEnsembleClassifier-3"
    ),
    "nonlinear": (
        "Elu-1 Elu-6 HardSigmoid-1 HardSigmoid-6 LeakyRelu-1 LeakyRelu-6 Relu-1 Relu-6 Sigmoid-1 "
        "Sigmoid-6 Selu-1 Selu-6 PRelu-7 PRelu-1 PRelu-6 Celu-12 Gelu-20 HardSwish-14 Mish-18 "
        "Shrink-9 Softplus-1 Softsign-1 Swish-24 SwiGLU-28 ThresholdedRelu-10"
    ),
    "norm": (
        "LayerNormalization-1 RMSNormalization-23 InstanceNormalization-6 InstanceNormalization-1 "
        "GroupNormalization-21 GroupNormalization-18 LRN-1"
    ),
    "pad": "Pad-18 Pad-11 Pad-2 Pad-1 CenterCropPad-18 Trilu-14",
    "pool": (
        "MaxPool-10 MaxPool-8 MaxPool-1 AveragePool-19 AveragePool-10 AveragePool-7 AveragePool-1 "
        "LpPool-18 LpPool-2 LpPool-1 GlobalAveragePool-1 GlobalMaxPool-1 GlobalLpPool-2 "
        "GlobalLpPool-1 MaxUnpool-9"
    ),
    "quant": (
        "QuantizeLinear-10 QuantizeLinear-13 QuantizeLinear-19 QuantizeLinear-21 "
        "QuantizeLinear-23 DequantizeLinear-10 DequantizeLinear-13 DequantizeLinear-21 "
        "DequantizeLinear-23 DynamicQuantizeLinear-11"
    ),
    "recurrent": "RNN-1 RNN-7 RNN-14 GRU-1 GRU-3 GRU-7 GRU-14 LSTM-1 LSTM-7 LSTM-14",
    "reduce": (
        "ReduceL1-1 ReduceL1-18 ReduceL2-1 ReduceL2-18 ReduceLogSum-1 ReduceLogSum-18 "
        "ReduceLogSumExp-1 ReduceLogSumExp-18 ReduceMax-1 ReduceMax-18 ReduceMean-1 ReduceMean-18 "
        "ReduceMin-1 ReduceMin-18 ReduceProd-1 ReduceProd-18 ReduceSum-1 ReduceSum-13 "
        "ReduceSumSquare-1 ReduceSumSquare-18"
    ),
    "resize": "Resize-18 Resize-11 Resize-10 Upsample-9 Upsample-7 Upsample-1",
    "roi_align": "RoiAlign-16 RoiAlign-10",
    "roi_pool": "MaxRoiPool-1",
    "sampling": (
        "RandomNormal-1 RandomNormalLike-1 RandomUniform-1 RandomUniformLike-1 Bernoulli-15 "
        "Multinomial-7 Dropout-12 Dropout-10 Dropout-7 Dropout-6 Dropout-1"
    ),
    "scatter": (
        "ScatterElements-11 ScatterElements-16 Scatter-9 ScatterND-11 ScatterND-16 TensorScatter-24"
    ),
    "search": "ArgMax-12 ArgMax-1 ArgMin-12 ArgMin-1 TopK-1 TopK-10 TopK-11",
    "sequence": (
        "SequenceConstruct-11 SequenceEmpty-11 SequenceInsert-11 SequenceErase-11 SequenceAt-11 "
        "SequenceLength-11 ConcatFromSequence-11 SplitToSequence-11 Optional-15 "
        "OptionalHasElement-15 OptionalGetElement-15"
    ),
    "shape": (
        "Shape-1 Shape-15 Size-1 Reshape-5 Reshape-14 Reshape-1 Flatten-1 Squeeze-13 Squeeze-1 "
        "Unsqueeze-13 Unsqueeze-1 Transpose-1 Expand-8 DepthToSpace-1 DepthToSpace-11 "
        "SpaceToDepth-1 SpaceToDepth-28"
    ),
    "signal": (
        "DFT-17 DFT-20 STFT-17 HannWindow-17 HammingWindow-17 BlackmanWindow-17 MelWeightMatrix-17"
    ),
    "slicing": "Slice-10 Slice-1 Split-18 Split-13 Split-2 Split-1 Concat-4 Concat-1 Tile-6 Tile-1",
    "softmax": (
        "Softmax-13 Softmax-1 LogSoftmax-13 LogSoftmax-1 Hardmax-13 Hardmax-1 LpNormalization-1 "
        "MeanVarianceNormalization-9"
    ),
    "strings": "StringConcat-20 StringSplit-20 StringNormalizer-10 RegexFullMatch-20",
    "tfidf": "TfIdfVectorizer-9",
    "training": (
        "ai.onnx.preview.training::Adagrad-1 ai.onnx.preview.training::Adam-1 "
        "ai.onnx.preview.training::Momentum-1"
    ),
}
