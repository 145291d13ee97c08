"""Laws over the whole table: layouts, types, shapes of any rank, special values, wrapping."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from case import Case, assert_equal
from cases import CASES
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tenonnx_array import TABLE

OPSET = 28
MATCHING = [c for c in CASES if c.inputs and TABLE.find(c.domain, c.op, c.version)]
RANDOM = {"Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike", "Dropout"}

BEYOND = {"LayerNormalization-17-stash-double": "sums of double may be kept as double"}

FLOATS = (np.float16, np.float32, np.float64)
INTEGERS = [np.dtype(kind + str(size)) for kind in "iu" for size in (1, 2, 4, 8)]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=7, min_side=0, max_side=3)


def call(op: str, *inputs: Any, **attributes: Any) -> Any:
    kernel = TABLE.find("", op, OPSET)
    assert kernel is not None
    for array in inputs:
        array.setflags(write=False)
    with np.errstate(all="ignore"):
        return kernel.bind(np, attributes, 1)(*inputs)


def answers(case: Case, inputs: list[Any]) -> list[Any]:
    kernel = TABLE.find(case.domain, case.op, case.version)
    assert kernel is not None
    bound = kernel.bind(np, case.attributes, len(case.answers()))
    with np.errstate(all="ignore"):
        found = bound(*inputs)
    return list(found) if kernel.multiple else [found]


def reversed_in_memory(array: Any) -> Any:
    """The same elements, each axis stored from its end, the first axis innermost."""
    if not isinstance(array, np.ndarray) or array.dtype == object or not array.ndim:
        return array
    flipped = (slice(None, None, -1),) * array.ndim
    stored = np.asfortranarray(array[flipped])
    stored.setflags(write=False)
    return stored[flipped]


def as_scalar(array: Any) -> Any:
    """A numpy scalar, as arithmetic leaves it, in place of an array without axes."""
    is_scalar = isinstance(array, np.ndarray) and array.ndim == 0 and array.dtype != object
    return array[()] if is_scalar else array


@pytest.mark.parametrize("changed", [reversed_in_memory, as_scalar])
@pytest.mark.parametrize("case", MATCHING, ids=lambda case: case.id)
def test_storage_does_not_matter(case: Case, changed: Callable[[Any], Any]) -> None:
    if "seed" not in case.attributes and case.op in RANDOM:
        return
    for actual, expected in zip(
        answers(case, [changed(array) for array in case.inputs]), case.answers(), strict=False
    ):
        assert_equal(actual, expected, case.rtol, case.atol)


def variables(parameters: Any, values: list[Any]) -> Iterator[tuple[str, Any]]:
    """The type variable of each parameter and the dtype of the array there."""
    for parameter, value in zip(parameters, values, strict=False):
        if isinstance(value, (np.ndarray, np.generic)) and parameter.is_homogeneous:
            yield parameter.type_str, value.dtype


@pytest.mark.parametrize("case", MATCHING, ids=lambda case: case.id)
def test_results_have_the_types_of_the_schema(case: Case) -> None:
    if not case.is_known or not onnx.defs.has(case.op, case.version, case.domain):
        return
    schema = onnx.defs.get_schema(case.op, case.version, case.domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    given = dict(variables(schema.inputs, list(case.inputs)))
    for variable, dtype in variables(schema.outputs, answers(case, list(case.inputs))):
        assert dtype == given.get(variable, dtype)
        number = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        name = f"tensor({onnx.TensorProto.DataType.Name(number).lower()})"
        tensors = [n for n in allowed.get(variable, [variable]) if n.startswith("tensor")]
        assert name in tensors or not tensors or case.id in BEYOND


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


UNARY: dict[str, Callable[[Any], Any]] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Asin": np.arcsin,
    "Asinh": np.arcsinh, "Atan": np.arctan, "Atanh": np.arctanh, "Ceil": np.ceil,
    "Cosh": np.cosh, "Exp": np.exp, "Floor": np.floor, "Log": np.log, "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x, "Relu": lambda x: np.maximum(x, 0), "Round": np.rint,
    "Sigmoid": sigmoid, "Sign": np.sign, "Sinh": np.sinh, "Sqrt": np.sqrt,
    "Softplus": lambda x: np.logaddexp(x, 0), "Softsign": lambda x: x / (1 + np.abs(x)),
    "Tanh": np.tanh,
    "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
    "HardSigmoid": lambda x: np.clip(np.longdouble(np.float32(0.2)) * x + 0.5, 0, 1),
    "LeakyRelu": lambda x: np.where(x < 0, np.longdouble(np.float32(0.01)) * x, x),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
}  # fmt: skip
LIMITS = {"Softsign": [math.inf, -math.inf]}
"""Arguments for which a formula has no value in numpy, and an implementation chooses one."""


@pytest.mark.parametrize("op", UNARY)
@given(data=st.data())
def test_unary_operators_follow_their_formula_everywhere(op: str, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(FLOATS)))
    elements = st.floats(width=8 * dtype.itemsize).filter(lambda v: v not in LIMITS.get(op, []))
    x = data.draw(hnp.arrays(dtype, SHAPES, elements=elements))
    with np.errstate(all="ignore"):
        expected = np.asarray(UNARY[op](x.astype(np.longdouble))).astype(dtype)
    actual = call(op, x)
    assert actual.dtype == dtype
    tiny = np.finfo(dtype).smallest_subnormal
    rtol = 4 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(actual.astype(float), expected.astype(float), rtol, 4 * tiny)


ARITHMETIC = {"Add": lambda a, b: a + b, "Sub": lambda a, b: a - b, "Mul": lambda a, b: a * b}
COMPARISONS = {
    "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal, "Equal": np.equal,
}  # fmt: skip


def pair(data: st.DataObject, dtype: np.dtype[Any]) -> list[Any]:
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=5, min_side=0))
    return [data.draw(hnp.arrays(dtype, shape)) for shape in shapes.input_shapes]


def wrapped(exact: Any, dtype: np.dtype[Any]) -> Any:
    """Python's integers, cut to the bits that there are."""
    bits = 8 * dtype.itemsize
    low = [int(v) % 2**bits for v in np.ravel(exact)]
    return np.array(low, f"u{dtype.itemsize}").view(dtype).reshape(np.shape(exact))


@pytest.mark.parametrize("op", ARITHMETIC)
@given(data=st.data())
def test_integers_wrap_and_broadcast(op: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    a, b = pair(data, dtype)
    exact = np.asarray(ARITHMETIC[op](a.astype(object), b.astype(object)), object)
    actual = call(op, a, b)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, wrapped(exact, dtype))


@pytest.mark.parametrize("op", [*ARITHMETIC, "Div", *COMPARISONS, "Max", "Min"])
@given(data=st.data())
def test_floats_follow_ieee_754(op: str, data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(FLOATS)))
    a, b = pair(data, dtype)
    named = {**ARITHMETIC, **COMPARISONS, "Div": np.divide, "Max": np.maximum, "Min": np.minimum}
    with np.errstate(all="ignore"):
        expected = named[op](a, b)
    actual = call(op, a, b)
    assert actual.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(actual, expected)


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceSum": np.sum, "ReduceProd": np.prod, "ReduceMax": np.max, "ReduceMin": np.min,
    "ReduceMean": np.mean,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
@given(data=st.data())
def test_reductions_over_any_axes(op: str, data: st.DataObject) -> None:
    # More factors than 27 may be more than a float32 holds, in some orders of multiplication.
    most = 3 if op == "ReduceProd" else 7
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=most, min_side=1, max_side=3))
    special = st.sampled_from([math.inf, -math.inf, math.nan])
    elements = st.floats(-8, 8, width=32, allow_subnormal=False)
    x = data.draw(hnp.arrays(np.float32, shape, elements=elements | special))
    axes = data.draw(st.lists(st.integers(0, max(x.ndim - 1, 0)), unique=True))[: x.ndim]
    signed = [a - x.ndim * data.draw(st.booleans()) for a in axes]
    keep, noop = data.draw(st.booleans()), data.draw(st.booleans())
    over = tuple(axes) or (() if noop else None)
    with np.errstate(all="ignore"):
        wide = x.astype(np.longdouble)
        expected = REDUCTIONS[op](wide, axis=over, keepdims=keep)
    actual = call(
        op, x, np.array(signed, np.int64), keepdims=int(keep), noop_with_empty_axes=int(noop)
    )
    assert actual.dtype == np.float32
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(np.float64(actual), np.float64(expected), 2e-5, 1e-4)


@given(data=st.data())
def test_integer_sums_wrap(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([np.dtype(t) for t in ("i4", "i8", "u4", "u8")]))
    x = data.draw(hnp.arrays(dtype, SHAPES))
    exact = np.asarray(np.sum(x.astype(object)), object)
    actual = call("ReduceSum", x, keepdims=0)
    assert actual.dtype == dtype
    np.testing.assert_array_equal(actual, wrapped(exact, dtype))


@given(data=st.data(), rank=st.integers(0, 24))
def test_shapes_of_large_rank(data: st.DataObject, rank: int) -> None:
    sizes = data.draw(st.permutations([2, 3, 2] + [1] * 21))[:rank]
    x = np.arange(math.prod(sizes), dtype=np.int32).reshape(sizes)
    perm = data.draw(st.permutations(range(rank)))
    turned = call("Transpose", x, perm=tuple(perm))
    np.testing.assert_array_equal(turned, x.transpose(perm))
    flat = call("Reshape", turned, np.array([-1]))
    np.testing.assert_array_equal(call("Reshape", flat, np.array(turned.shape)), turned)
    ones = [axis for axis, size in enumerate(sizes) if size == 1]
    squeezed = call("Squeeze", x, np.array(ones, np.int64)) if ones else x
    assert squeezed.shape == tuple(size for size in sizes if size != 1)
    np.testing.assert_array_equal(call("Unsqueeze", squeezed, np.array(ones, np.int64)), x)
    wide = [3 if size == 1 and axis < 4 else size for axis, size in enumerate(sizes)]
    expanded = call("Expand", x, np.array(wide, np.int64))
    np.testing.assert_array_equal(expanded, np.broadcast_to(x, wide))
    assert call("Shape", x).tolist() == list(sizes)
    assert call("Size", x) == x.size
