"""Long steps of ai.onnx, of one output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

DRAW = np.random.default_rng(0)
MANY = 30_000_000

Thunk = Callable[[], "Sequence[Any]"]
Row = tuple[str, Thunk, "Mapping[str, Any]"]


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape, np.float32)


def ints(*shape: int, high: int = 1 << 30) -> Any:
    return DRAW.integers(0, high, shape)


def of(*values: Any) -> Any:
    return np.array(values)


def wide() -> list[Any]:
    return [floats(3000, 10_000), floats(10_000), floats(10_000)]


def images() -> list[Any]:
    return [floats(30, 10, 300, 300), floats(10), floats(10)]


def large() -> list[Any]:
    return [floats(8000, 10_000)]


def both() -> list[Any]:
    return [floats(3000, 10_000), ints(3000, 10_000, high=3000)]


def scattered() -> list[Any]:
    return [floats(3000, 10_000), ints(5_000_000, 2, high=3000)]


UNARY = """
    Abs Acos Asinh Ceil Cos Elu Erf Exp Floor Gelu HardSigmoid HardSwish IsInf IsNaN LeakyRelu Mish
    Neg Relu Round Selu Sigmoid Sign Softplus Softsign Swish Tan Tanh ThresholdedRelu Celu Log Sqrt
    Reciprocal
"""
BINARY = "Add Div Mul PRelu Pow Sub Max Mean Min Sum Less Equal GreaterOrEqual"
REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare
"""


def pointwise() -> Iterator[Row]:
    for op in UNARY.split():
        yield op, lambda: [np.abs(floats(MANY)) % 1], {}
    for op in BINARY.split():
        yield op, lambda: [np.abs(floats(3000, 10_000)), np.abs(floats(1, 10_000))], {}
    for op in ("Mod", "BitShift", "BitwiseAnd", "Div"):
        given = {"direction": "LEFT"} if op == "BitShift" else {}
        yield op, lambda: [x.astype(np.uint64) for x in (ints(MANY), 1 + ints(MANY, high=9))], given
    yield "Mod", lambda: [floats(MANY), 1 + np.abs(floats(MANY))], {"fmod": 1}
    yield "Clip", lambda: [floats(MANY), np.float32(-1), np.float32(1)], {}
    yield "Where", lambda: [ints(MANY, high=2) > 0, floats(MANY), floats(MANY)], {}
    yield "Cast", lambda: [floats(MANY)], {"to": 10}
    yield "Cast", lambda: [floats(MANY)], {"to": 17}
    yield "Cast", lambda: [floats(3_000_000)], {"to": 8}
    yield "Add", lambda: [x.astype(ml_dtypes.bfloat16) for x in (floats(MANY), floats(MANY))], {}
    yield "Exp", lambda: [floats(MANY).astype(np.float16)], {}
    yield "QuantizeLinear", lambda: [floats(MANY), np.float32(0.1), np.uint8(3)], {}
    yield (
        "DequantizeLinear",
        lambda: [ints(3000, 10_000, high=255).astype(np.uint8), np.abs(floats(3000)),
                 np.zeros(3000, np.uint8)],
        {"axis": 0},
    )  # fmt: skip
    yield (
        "DequantizeLinear",
        lambda: [ints(3000, 10_240, high=15).astype(ml_dtypes.int4), np.abs(floats(3000, 320))],
        {"axis": 1, "block_size": 32},
    )
    yield "DynamicQuantizeLinear", lambda: [floats(MANY)], {}


def rows() -> Iterator[Row]:
    for op in REDUCTIONS.split():
        yield op, lambda: [np.abs(floats(3000, 10_000)), of(-1)], {}
        yield f"{op}", lambda: [np.abs(floats(3000, 10_000)), of(0)], {}
        yield f"{op}", lambda: [np.abs(floats(MANY))], {}
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield op, lambda: [floats(3000, 10_000)], {"axis": -1}
        yield op, lambda: [floats(3000, 10_000)], {"axis": 0}
        yield op, lambda: [floats(1, MANY)], {}
    for op in ("ArgMax", "ArgMin"):
        yield op, lambda: [floats(3000, 10_000)], {"axis": 0}
        yield op, lambda: [floats(MANY)], {}
    yield "LpNormalization", lambda: [floats(3000, 10_000)], {}
    yield "MeanVarianceNormalization", lambda: [floats(30, 10, 300, 300)], {}
    yield "LayerNormalization", wide, {}
    yield "RMSNormalization", lambda: wide()[:2], {}
    yield "InstanceNormalization", images, {}
    yield "GroupNormalization", images, {"num_groups": 2}
    yield "BatchNormalization", lambda: [*images(), floats(10), np.abs(floats(10))], {}
    yield "LRN", lambda: images()[:1], {"size": 5}
    yield "CumSum", lambda: [floats(MANY), of(0)], {}
    yield "CumSum", lambda: [floats(3000, 10_000), of(1)], {}
    yield "CumProd", lambda: [floats(MANY), of(0)], {}
    yield "TopK", lambda: [floats(3000, 5000), of(1000)], {}
    yield "TopK", lambda: [floats(10_000_000), of(100)], {}
    yield "TopK", lambda: [floats(10_000_000), of(5_000_000)], {}
    yield "Unique", lambda: [ints(5_000_000)], {}
    yield "Unique", lambda: [floats(20_000, 50)], {"axis": 0}
    yield "NonZero", lambda: [ints(MANY, high=2)], {}
    yield "Compress", lambda: [floats(MANY), ints(MANY, high=2) > 0], {}


def moving() -> Iterator[Row]:
    yield "Transpose", large, {"perm": [1, 0]}
    yield "Transpose", lambda: [floats(400, 400, 400)], {"perm": [2, 1, 0]}
    yield "Concat", lambda: [floats(MANY), floats(MANY)], {"axis": 0}
    yield "Concat", lambda: [floats(MANY // 10, 10), floats(MANY // 10, 10)], {"axis": 1}
    yield "Expand", lambda: [floats(10_000), of(6000, 10_000)], {}
    yield "Tile", lambda: [floats(3000, 100), of(2, 100)], {}
    yield "Pad", lambda: [*large(), of(1, 1, 1, 1)], {}
    yield "Pad", lambda: [*large(), of(1, 1, 1, 1)], {"mode": "reflect"}
    yield "Slice", lambda: [*large(), of(0), of(8000), of(0), of(2)], {}
    yield "Reshape", lambda: [floats(8000, 10_000).T, of(-1)], {}
    yield "Gather", lambda: [floats(10_000, 1000), ints(60_000, high=10_000)], {}
    yield "Gather", lambda: [floats(MANY), ints(MANY, high=MANY)], {}
    yield "GatherElements", both, {}
    yield "GatherND", lambda: [floats(3000, 10_000), ints(10_000_000, 2, high=3000)], {}
    yield "ScatterElements", lambda: [*both(), floats(3000, 10_000)], {}
    yield "ScatterElements", lambda: [*both(), floats(3000, 10_000)], {"reduction": "add"}
    yield "ScatterND", lambda: [*scattered(), floats(5_000_000)], {}
    yield "ScatterND", lambda: [*scattered(), floats(5_000_000)], {"reduction": "max"}
    yield "DepthToSpace", lambda: [floats(8, 64, 250, 250)], {"blocksize": 4}
    yield "SpaceToDepth", lambda: [floats(8, 4, 1000, 1000)], {"blocksize": 4}
    yield "ReverseSequence", lambda: [floats(1000, 100, 300), ints(100, high=1000)], {}
    yield "Trilu", lambda: [floats(5000, 6000)], {}
    yield "OneHot", lambda: [ints(60_000, high=1000), of(1000), of(0.0, 1.0)], {}
    yield "EyeLike", lambda: [floats(6000, 6000)], {}
    yield "Range", lambda: [np.float32(0), np.float32(MANY), np.float32(1)], {}
    yield "ConstantOfShape", lambda: [of(10 * MANY)], {}
    yield "RandomNormalLike", lambda: [floats(MANY)], {}
    yield "Bernoulli", lambda: [np.abs(floats(MANY)) % 1], {}
    yield "Dropout", lambda: [floats(MANY), np.float32(0.5), np.True_], {}


def products() -> Iterator[Row]:
    yield "MatMul", lambda: [floats(20_000, 1000), floats(1000, 1000)], {}
    yield "Gemm", lambda: [floats(20_000, 1000), floats(1000, 1000), floats(1000)], {}
    yield (
        "MatMulInteger",
        lambda: [
            ints(3000, 1000, high=99).astype(np.uint8),
            ints(1000, 1000, high=99).astype(np.uint8),
        ],
        {},
    )
    yield "MatMul", lambda: [ints(500, 800), ints(800, 500)], {}
    yield "Einsum", lambda: [floats(60, 100, 1500), floats(2000, 1500)], {"equation": "bij,kj->bik"}
    yield "Einsum", lambda: [floats(6000, 6000)], {"equation": "ij->ji"}
    yield "Einsum", lambda: [floats(6000, 6000)], {"equation": "ij->"}
    yield "Einsum", lambda: [floats(1500, 1500)] * 3, {"equation": "ij,jk,kl->il"}
    yield "Einsum", lambda: [floats(30_000_000)] * 2, {"equation": "i,i->"}
    yield "Det", lambda: [floats(2500, 2500)], {}
    yield "Det", lambda: [floats(50_000, 20, 20)], {}
    yield "Conv", lambda: [floats(16, 32, 128, 128), floats(32, 32, 3, 3)], {}
    yield "Conv", lambda: [floats(1, 64, 2000, 200), floats(64, 1, 3, 3)], {"group": 64}
    yield "ConvTranspose", lambda: [floats(4, 32, 128, 128), floats(32, 32, 3, 3)], {}
    yield (
        "ConvInteger",
        lambda: [
            ints(2, 16, 128, 128, high=99).astype(np.uint8),
            ints(16, 16, 3, 3, high=99).astype(np.uint8),
        ],
        {},
    )
    yield "MaxPool", lambda: [floats(16, 16, 256, 256)], {"kernel_shape": [3, 3]}
    yield "AveragePool", lambda: [floats(16, 16, 256, 256)], {"kernel_shape": [3, 3]}
    yield "LpPool", lambda: [floats(16, 16, 256, 256)], {"kernel_shape": [3, 3]}
    yield "GlobalAveragePool", lambda: [floats(16, 32, 256, 256)], {}
    yield "GridSample", lambda: [floats(4, 8, 500, 500), floats(4, 500, 500, 2)], {}
    sizes = np.array([1, 1, 4, 4], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        yield "Resize", lambda: [floats(8, 8, 128, 128), None, sizes], {"mode": mode}
    yield "Col2Im", lambda: [floats(16, 9 * 16, 126 * 126), of(128, 128), of(3, 3)], {}
    yield "DFT", lambda: [floats(100, 100_000, 1)], {}
    yield "STFT", lambda: [floats(4, 1_000_000, 1), of(64), np.hanning(512).astype(np.float32)], {}
    yield "Attention", lambda: [floats(2, 8, 2000, 64)] * 3, {}
    recurrent = {"hidden_size": 256}
    yield (
        "LSTM",
        lambda: [floats(500, 32, 256), floats(1, 1024, 256), floats(1, 1024, 256)],
        recurrent,
    )
    yield (
        "NonMaxSuppression",
        lambda: [
            np.abs(floats(1, 3000, 4)),
            np.abs(floats(1, 4, 3000)),
            of(1000),
            np.array([0.5], np.float32),
        ],
        {},
    )
    yield (
        "RoiAlign",
        lambda: [floats(1, 64, 100, 100), 50 + floats(500, 4), ints(500, high=1)],
        {"output_height": 14, "output_width": 14},
    )
    yield (
        "RotaryEmbedding",
        lambda: [
            floats(8, 16, 2000, 64),
            floats(2000, 32),
            floats(2000, 32),
            np.tile(np.arange(2000), (8, 1)),
        ],
        {},
    )
    yield (
        "StringNormalizer",
        lambda: [np.array(["Abc def"] * 1_000_000, object)],
        {"case_change_action": "LOWER"},
    )
    yield "StringConcat", lambda: [np.array(["Abc def"] * 3_000_000, object)] * 2, {}
    yield "StringSplit", lambda: [np.array(["Abc def"] * 1_000_000, object)], {}


KINDS = {"pointwise": pointwise, "rows": rows, "moving": moving, "products": products}
