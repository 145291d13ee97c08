"""Laws of operators for any shape and dtype, computed by numpy in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx.testing.models import build

LAW_DTYPES = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}
LAW_FLOATS = ("float", "double")
RTOL = {"float": 1e-5, "double": 1e-12, "int32": 0, "int64": 0}

Drawn = tuple[onnx.ModelProto, list[np.ndarray[Any, Any]]]


@dataclass(frozen=True)
class Law:
    """An operator, the shapes that it takes, and what it computes.

    Attributes:
        body: The node; inputs are called ``a`` and ``b``, the output is ``y``.
        shapes: Draws the inputs' shapes.
        oracle: Takes the inputs, floats as float64; returns the output.
        dtypes: Element types that it is tried with.
    """

    body: str
    shapes: st.SearchStrategy[Sequence[tuple[int, ...]]]
    oracle: Callable[..., Any]
    dtypes: tuple[str, ...] = tuple(LAW_DTYPES)

    def draw(self, data: st.DataObject, dtype: str) -> Drawn:
        """Return a model with an input for every shape drawn, and arrays for them."""
        shapes = data.draw(self.shapes, label="shapes")
        kind = LAW_DTYPES[dtype]
        seed = data.draw(st.integers(0, 2**32 - 1), label="seed")
        random = np.random.default_rng(seed)
        # Small integers, so that sums and products are exact and the order of adding is free.
        arrays = [random.integers(-8, 9, shape).astype(kind) for shape in shapes]
        inputs = ", ".join(
            f"{dtype}[{', '.join(map(str, shape))}] {name}" if shape else f"{dtype} {name}"
            for name, shape in zip("ab", shapes, strict=False)
        )
        return build(self.body, inputs, f"{dtype}[] y"), arrays

    def expected(self, arrays: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        """Return what the operator must give, in the dtype of its inputs."""
        kind = arrays[0].dtype
        wide = [a.astype(np.float64) if kind.kind == "f" else a for a in arrays]
        return np.asarray(self.oracle(*wide)).astype(kind)


_ANY = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5).map(lambda s: (s,))
_SOLID = hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5).map(lambda s: (s,))
_PAIRS = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4).map(
    lambda s: s.input_shapes
)
_PRODUCTS = hnp.mutually_broadcastable_shapes(
    signature="(m,k),(k,n)->(m,n)", max_dims=2, min_side=1, max_side=5
).map(lambda s: s.input_shapes)


def _softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


# By operator.
LAWS: dict[str, Law] = {
    "Add": Law("y = Add(a, b)", _PAIRS, np.add),
    "Sub": Law("y = Sub(a, b)", _PAIRS, np.subtract),
    "Mul": Law("y = Mul(a, b)", _PAIRS, np.multiply),
    "Neg": Law("y = Neg(a)", _ANY, np.negative),
    "Abs": Law("y = Abs(a)", _ANY, np.abs),
    "Relu": Law("y = Relu(a)", _ANY, lambda a: np.maximum(a, 0)),
    "Exp": Law("y = Exp(a)", _ANY, np.exp, LAW_FLOATS),
    "Tanh": Law("y = Tanh(a)", _ANY, np.tanh, LAW_FLOATS),
    "Sigmoid": Law("y = Sigmoid(a)", _ANY, lambda a: 1 / (1 + np.exp(-a)), LAW_FLOATS),
    "Softmax": Law("y = Softmax(a)", _SOLID, _softmax, LAW_FLOATS),
    "Transpose": Law("y = Transpose(a)", _ANY, np.transpose),
    "Flatten": Law("y = Flatten(a)", _SOLID, lambda a: a.reshape(a.shape[0], -1)),
    "MatMul": Law("y = MatMul(a, b)", _PRODUCTS, np.matmul),
    "ReduceSum": Law("y = ReduceSum <keepdims = 0> (a)", _SOLID, np.sum),
    "Concat": Law(
        "y = Concat <axis = 0> (a, b)",
        st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)).map(
            lambda s: ((s[0], s[2]), (s[1], s[2]))
        ),
        lambda a, b: np.concatenate([a, b]),
    ),
}
