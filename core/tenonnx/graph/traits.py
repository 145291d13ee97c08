"""Traits of ONNX's operators: which work element by element, commute, reduce, draw, or move data.

One table for providers and transforms: who needs a set of operators derives it from these. All of
them are of the domain ai.onnx. This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final


def _named(operators: str) -> frozenset[str]:
    return frozenset(operators.split())


# Activations: their parameters in order, with defaults.
#
# Their formulas are under the same names where they are compiled: numpy's in
# ``tenonnx_array.nonlinear``, numba's in ``tenonnx_cpu.activation``, C's in
# ``tenonnx_cuda.elementwise.expressions``.
ACTIVATIONS: Final[Mapping[str, Mapping[str, float]]] = {
    "Celu": {"alpha": 1.0},
    "Elu": {"alpha": 1.0},
    "Gelu": {},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "HardSwish": {},
    "LeakyRelu": {"alpha": 0.01},
    "Mish": {},
    "Relu": {},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Swish": {"alpha": 1.0},
    "Tanh": {},
    "ThresholdedRelu": {"alpha": 1.0},
}


def parameters_of(activation: str, given: Sequence[float] = ()) -> list[float]:
    """Return what an activation takes, in order: what is given, and defaults of what is not."""
    return [*given, *[*ACTIVATIONS.get(activation, {}).values()][len(given) :]]


# An element of the result depends on that element of the first input; others are parameters.
UNARY: Final = frozenset(ACTIVATIONS) | _named(
    """
    Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast Ceil Clip Cos Cosh Erf Exp Floor Identity
    IsInf IsNaN Log Neg Not Reciprocal Round Shrink Sign Sin Sinh Sqrt Tan
    """
)

# An element of the result depends on one element of each input; the inputs are broadcast.
BROADCASTING: Final = _named(
    """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less
    LessOrEqual Max Mean Min Mod Mul Or PRelu Pow Sub Sum Where Xor
    """
)

ELEMENTWISE: Final = UNARY | BROADCASTING

# The order of two inputs does not matter.
COMMUTATIVE: Final = _named(
    "Add And BitwiseAnd BitwiseOr BitwiseXor Equal Max Mean Min Mul Or Sum Xor"
)

# Elementwise operators that take an array library several passes, or a function.
COSTLY: Final = frozenset(ACTIVATIONS) - {"Relu"} | _named(
    """
    Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log PRelu Pow Shrink Sin Sinh Tan
    """
)

# Operators with the same ``axes`` and ``keepdims``.
REDUCTIONS: Final = _named(
    """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare
    """
)

# Two nodes, or two runs, may give different results.
RANDOM: Final = _named(
    """
    Bernoulli Dropout Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
    """
)

# The result has the first input's elements in the same order.
VIEWS: Final = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})

# The inputs whose elements have the type of the first result's.
TYPED_AS: Final[Mapping[str, slice]] = {
    **dict.fromkeys((UNARY | VIEWS | REDUCTIONS) - _named("Cast IsInf IsNaN"), slice(1)),
    **dict.fromkeys(
        _named(
            """
            AveragePool BatchNormalization Conv ConvTranspose CumSum DepthToSpace
            Dropout Einsum Expand GRU Gather GatherElements GatherND GlobalAveragePool
            GlobalMaxPool GroupNormalization Hardmax InstanceNormalization LSTM LayerNormalization
            LogSoftmax LpNormalization MaxPool Mod Pad Pow RNN Resize ScatterElements ScatterND
            SimplifiedLayerNormalization Slice Softmax SpaceToDepth Split Tile TopK Transpose Trilu
            """
        ),
        slice(1),
    ),
    **dict.fromkeys(
        _named("Add Concat Div Gemm MatMul Max Mean Min Mul PRelu Sub Sum"), slice(None)
    ),
    "CastLike": slice(1, 2),
    "QuantizeLinear": slice(2, 3),
    "RMSNormalization": slice(1, 2),
    "Where": slice(1, 3),
}

# Those of them whose every result has that type.
ALL_TYPED_AS_FIRST: Final = _named("GRU LSTM RNN Split")

# Operators whose result is of booleans.
BOOLEAN: Final = _named("And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor")

# Operators whose result is of int64.
COUNTING: Final = _named("ArgMax ArgMin NonMaxSuppression NonZero Shape Size")

# Operators by which exporters compute shapes; results are no larger than all inputs.
SHAPE_ARITHMETIC: Final = _named(
    """
    Abs Add And Cast Ceil Concat Div Equal Floor Gather Greater GreaterOrEqual Identity Less
    LessOrEqual Max Min Mod Mul Neg Not Or ReduceMax ReduceMin ReduceProd ReduceSum Reshape Slice
    Sqrt Squeeze Sub Unsqueeze Where
    """
)
