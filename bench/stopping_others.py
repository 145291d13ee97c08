"""Long steps of several outputs, of com.microsoft, of ai.onnx.ml and of training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bench.stopping_rows import MANY, Row, floats, images, ints, large, of, wide

SCALE, ZERO = np.array(0.1, np.float32), np.array(3, np.uint8)


def small_bytes(*shape: int) -> Any:
    return ints(*shape, high=255).astype(np.uint8)


def quantized() -> list[Any]:
    return [small_bytes(MANY), SCALE, ZERO]


def several() -> Iterator[Row]:
    yield "TopK/2", lambda: [floats(10_000_000), of(20_000)], {}
    yield "Unique/4", lambda: [floats(5_000_000)], {}
    yield "Unique/4", lambda: [ints(5_000_000, high=1000)], {"sorted": 0}
    yield "Dropout/2", lambda: [floats(MANY), np.float32(0.5), np.True_], {}
    yield "DynamicQuantizeLinear/3", lambda: [floats(MANY)], {}
    yield "LayerNormalization/3", wide, {}
    yield "LayerNormalization/3", lambda: [floats(1, MANY)] + [floats(MANY)] * 2, {}
    yield "MaxPool/2", lambda: [floats(16, 16, 256, 256)], {"kernel_shape": [3, 3]}
    yield (
        "BatchNormalization/3",
        lambda: [*images(), floats(10), np.abs(floats(10))],
        {"training_mode": 1},
    )
    yield "Split/2", large, {"axis": 0}
    yield "SoftmaxCrossEntropyLoss/2", lambda: [floats(30_000, 1000), ints(30_000, high=1000)], {}
    yield "NegativeLogLikelihoodLoss", lambda: [floats(30_000, 1000), ints(30_000, high=1000)], {}
    yield "Attention/4", lambda: [floats(1, 8, 2000, 64)] * 3, {"is_causal": 1}
    yield "Attention", lambda: [floats(1, 1, 6000, 64)] * 3, {}
    yield (
        "GRU/2",
        lambda: [floats(500, 32, 256), floats(1, 768, 256), floats(1, 768, 256)],
        {"hidden_size": 256},
    )
    yield "StringSplit/2", lambda: [np.array(["Abc def"] * 1_000_000, object)], {}
    yield "SwiGLU", lambda: [floats(3000, 10_000)] * 2, {}
    yield "ConstantOfShape", lambda: [of(10 * MANY)], {"value": np.ones(1, np.float32)}


def microsoft() -> Iterator[Row]:
    for op in ("Gelu", "QuickGelu", "FastGelu", "ScaledSiLU"):
        yield f"com.microsoft::{op}", lambda: [floats(MANY)], {}
    yield "com.microsoft::BiasGelu", lambda: [floats(3000, 10_000), floats(10_000)], {}
    yield "com.microsoft::BiasSplitGelu", lambda: [floats(3000, 10_000), floats(10_000)], {}
    yield "com.microsoft::BiasAdd", lambda: [
        floats(30, 1000, 1000), floats(1000), floats(30, 1000, 1000),
    ], {}  # fmt: skip
    yield "com.microsoft::GatedAdd", lambda: [floats(MANY)] * 3, {}
    yield (
        "com.microsoft::BiasSoftmax",
        lambda: [floats(3000, 10_000)] * 2,
        {
            "axis": 1,
            "is_inner_broadcast": 0,
        },
    )
    sums = "com.microsoft::Skip{}LayerNormalization/4"
    yield sums.format(""), lambda: [*[floats(3, 1000, 10_000)] * 2, *[floats(10_000)] * 2], {}
    yield sums.format("Simplified"), lambda: [*[floats(3, 1000, 10_000)] * 2, floats(10_000)], {}
    yield "com.microsoft::EmbedLayerNormalization/2", lambda: [
        ints(64, 512, high=10_000), None, floats(10_000, 768), floats(512, 768), None, floats(768),
        floats(768),
    ], {}  # fmt: skip
    for op in ("QLinearAdd", "QLinearMul"):
        yield f"com.microsoft::{op}", lambda: [*quantized(), *quantized(), SCALE, ZERO], {}
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        yield f"com.microsoft::{op}", lambda: [*quantized(), SCALE, ZERO], {}
    many = [SCALE, ZERO]
    yield "com.microsoft::QLinearSoftmax", lambda: [
        small_bytes(3000, 10_000), *many, *many,
    ], {"opset": 13}  # fmt: skip
    yield "com.microsoft::QLinearConcat", lambda: [*many, *quantized(), *quantized()], {"axis": 0}
    yield "com.microsoft::QLinearGlobalAveragePool", lambda: [
        small_bytes(30, 10, 300, 300), *many, *many,
    ], {"channels_last": 0}  # fmt: skip
    yield "com.microsoft::QLinearAveragePool", lambda: [
        small_bytes(16, 16, 256, 256), *many, *many,
    ], {"kernel_shape": [3, 3]}  # fmt: skip
    yield "com.microsoft::QuantizeLinear", lambda: [floats(MANY), *many], {}
    yield "com.microsoft::DequantizeLinear", lambda: [*quantized()], {}
    yield "com.microsoft::MatMulIntegerToFloat", lambda: [
        small_bytes(3000, 1000), small_bytes(1000, 1000), SCALE, SCALE,
    ], {}  # fmt: skip
    yield "com.microsoft::Trilu", lambda: [floats(5000, 6000)], {}
    yield "com.microsoft::Unique/3", lambda: [floats(5_000_000)], {}
    yield "com.microsoft::IsAllFinite", lambda: [floats(MANY)], {}
    yield "com.microsoft::ComplexMul", lambda: [floats(MANY // 2, 2)] * 2, {}
    yield "com.microsoft::CDist", lambda: [floats(2000, 100), floats(2000, 100)], {}
    yield "com.microsoft::Inverse", lambda: [floats(30_000, 20, 20)], {}
    yield "com.microsoft::Inverse", lambda: [floats(2000, 2000)], {}
    yield "com.microsoft::Rfft", lambda: [floats(300, 100_000)], {
        "signal_ndim": 1, "normalized": 0, "onesided": 1,
    }  # fmt: skip
    yield "com.microsoft::GridSample", lambda: [floats(4, 8, 500, 500), floats(4, 500, 500, 2)], {}
    yield "com.microsoft::GroupNorm", lambda: [
        floats(30, 300, 300, 10), floats(10), floats(10),
    ], {"groups": 2, "activation": 1}  # fmt: skip
    yield "com.microsoft::RotaryEmbedding", lambda: [
        floats(8, 16, 2000, 64), np.zeros(1, np.int64), floats(2000, 32), floats(2000, 32),
    ], {}  # fmt: skip
    yield "com.microsoft::FusedMatMul", lambda: [floats(20_000, 1000), floats(1000, 1000)], {}
    yield "com.microsoft::MatMulNBits", lambda: [
        floats(2000, 2048), small_bytes(2048, 64, 16), np.abs(floats(2048, 64)),
    ], {"K": 2048, "N": 2048, "bits": 4, "block_size": 32}  # fmt: skip
    yield "com.microsoft::MultiHeadAttention", lambda: [floats(1, 2000, 512)] * 3, {"num_heads": 8}
    yield "com.microsoft::GroupQueryAttention/3", lambda: [
        floats(1, 2000, 512), floats(1, 2000, 128), floats(1, 2000, 128), None, None,
        np.array([1999], np.int32), np.array(2000, np.int32),
    ], {"num_heads": 8, "kv_num_heads": 2}  # fmt: skip
    yield "com.microsoft::CropAndResize", lambda: [
        floats(4, 16, 256, 256), np.tile(np.array([0, 0, 1, 1], np.float32), (64, 1)),
        np.arange(64, dtype=np.int32) % 4, np.array([200, 200], np.int32),
    ], {}  # fmt: skip
    yield from experts()
    yield from cached_attention()


def experts() -> Iterator[Row]:
    yield "com.microsoft::MoE", lambda: [
        floats(2000, 512), floats(2000, 8), floats(8, 2048, 512), None, floats(8, 512, 2048),
    ], {"k": 2}  # fmt: skip
    yield "com.microsoft::QMoE", lambda: [
        floats(2000, 512), floats(2000, 8), small_bytes(8, 2048, 256), np.abs(floats(8, 2048)),
        None, small_bytes(8, 512, 1024), np.abs(floats(8, 512)),
    ], {"k": 2}  # fmt: skip


def cached_attention() -> Iterator[Row]:
    tokens, blocks = 2000, 2048 // 16
    heads = {"num_heads": 8, "kv_num_heads": 2}
    keys = [floats(1, tokens, 512), floats(1, tokens, 128), floats(1, tokens, 128)]
    yield "com.microsoft::SparseAttention/3", lambda: [
        *keys, *[floats(1, 2, 2048, 64)] * 2, np.arange(33, dtype=np.int32)[None],
        np.arange(32, dtype=np.int32)[None], np.array([tokens], np.int32),
        np.array([tokens], np.int32),
    ], {**heads, "sparse_block_size": 64}  # fmt: skip
    yield "com.microsoft::PagedAttention/3", lambda: [
        *[x[0] for x in keys], *[floats(blocks, 16, 2, 64)] * 2,
        np.array([0, tokens], np.int32), np.zeros(1, np.int32),
        np.arange(blocks, dtype=np.int32)[None],
    ], heads  # fmt: skip


def classical() -> Iterator[Row]:
    ones = {"coefficients": [0.1] * 100, "intercepts": [0.0] * 10}
    features: dict[str, dict[str, Any]] = {
        "Binarizer": {},
        "Scaler": {"scale": [2.0]},
        "Normalizer": {"norm": "L2"},
    }
    for op, given in features.items():
        yield f"ai.onnx.ml::{op}", lambda: [floats(3_000_000, 10)], given
    yield "ai.onnx.ml::Imputer", lambda: [floats(3_000_000, 10)], {"imputed_value_floats": [1.0]}
    yield "ai.onnx.ml::LinearRegressor", lambda: [floats(1_000_000, 10)], {**ones, "targets": 10}
    yield "ai.onnx.ml::LinearClassifier/2", lambda: [floats(1_000_000, 10)], {
        **ones, "classlabels_ints": list(range(10)), "post_transform": "SOFTMAX",
    }  # fmt: skip
    yield "ai.onnx.ml::SVMRegressor", lambda: [floats(100_000, 10)], {
        "coefficients": [0.1] * 100, "support_vectors": [0.5] * 1000, "n_supports": 100,
        "rho": [0.0], "kernel_type": "RBF", "kernel_params": [0.1, 0.0, 3.0],
    }  # fmt: skip
    yield "ai.onnx.ml::LabelEncoder", lambda: [ints(3_000_000, high=100)], {
        "keys_int64s": list(range(100)), "values_floats": [0.5] * 100,
    }  # fmt: skip
    yield "ai.onnx.ml::OneHotEncoder", lambda: [ints(1_000_000, high=10)], {
        "cats_int64s": list(range(10)),
    }  # fmt: skip
    yield (
        "ai.onnx.ml::ArrayFeatureExtractor",
        lambda: [floats(3000, 10_000), ints(5000, high=999)],
        {},
    )
    yield "ai.onnx.ml::FeatureVectorizer", lambda: [floats(3_000_000, 5)] * 2, {
        "inputdimensions": [5, 5],
    }  # fmt: skip
    state = [np.float32(0.1), of(3)]
    yield "ai.onnx.preview.training::Adam/3", lambda: [*state, *[np.abs(floats(MANY // 3))] * 4], {}
    yield "ai.onnx.preview.training::Adagrad/2", lambda: [*state, *[floats(MANY // 3)] * 3], {}


KINDS = {"several": several, "microsoft": microsoft, "classical": classical}
