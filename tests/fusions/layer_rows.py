"""Rows for transforms of layers: products, normalizations, activations and convolutions."""

from __future__ import annotations

import math

import numpy as np
from drafts import Draft

from models import FLOAT

KINDS = [np.float32, np.float16]
SHAPES = [(2, 3, 8), (3, 8), (8,), (), (1, 8), (2, 0, 8), (2, 3, 1), (2, 2, 3, 8)]


def gelu(d: Draft) -> None:
    """Half of x times one and the error function of x over the root of two, in any order."""
    kind = d.choose([np.float32, np.float16, np.float64])
    x = d.input("x", *d.choose(SHAPES), dtype=kind)
    root = d.number(math.sqrt(2), 0, 1, 2, dtype=kind)
    one, half = d.number(1.0, 0, 1, 2, dtype=kind), d.number(0.5, 0, 1, 2, dtype=kind)
    inside = d.both("Add", d.add("Erf", d.add("Div", x, root)), one)
    match d.choose(["halved last", "halved first", "sum halved"]):
        case "halved last":
            d.both("Mul", d.both("Mul", x, inside), half)
        case "halved first":
            d.both("Mul", d.both("Mul", x, half), inside)
        case _:
            d.both("Mul", x, d.both("Mul", inside, half))


def tanh_gelu(d: Draft) -> None:
    """The same by a tangent."""
    kind = d.choose(KINDS)
    x = d.input("x", *d.choose(SHAPES), dtype=kind)
    d.feeds["x"] *= kind(d.choose([1, 100]))
    cube = d.add("Pow", x, d.number(3.0, 0, 1, 2, dtype=kind))
    inner = d.both("Add", x, d.both("Mul", cube, d.number(0.044715, 0, 1, 2, dtype=kind)))
    slope = d.number(math.sqrt(2 / math.pi), 0, 1, 2, dtype=kind)
    share = d.add("Tanh", d.both("Mul", inner, slope))
    share = d.both("Add", share, d.number(1.0, 0, 1, 2, dtype=kind))
    half = d.both("Mul", x, d.number(0.5, 0, 1, 2, dtype=kind))
    d.both("Mul", half, share)


def swish(d: Draft) -> None:
    """x times its sigmoid, perhaps steeper."""
    kind = d.choose(KINDS)
    x = d.input("x", *d.choose(SHAPES), dtype=kind)
    inside = x
    if d.choose([True, False]):
        inside = d.both("Mul", x, d.number(1.702, 0, 1, 3, dtype=kind))
    d.both("Mul", x, d.add("Sigmoid", inside))


def hard_swish(d: Draft) -> None:
    """x times a sixth of what x + 3 is between 0 and 6."""
    kind = d.choose([np.float32, np.float16, np.int32])
    x = d.input("x", *d.choose(SHAPES), dtype=kind)
    if d.choose([False, True]) and d.feeds["x"].size and kind != np.int32:
        d.feeds["x"].reshape(-1)[:1] = d.choose([np.nan, np.inf, -np.inf])
    six = d.number(6, 0, 1, 2, dtype=kind)
    inside = d.both("Add", x, d.number(3, 0, 1, 2, dtype=kind))
    inside = d.add("Clip", inside, d.number(0, 0, dtype=kind), d.number(6, 0, dtype=kind))
    if d.choose([True, False]):
        d.add("Div", d.both("Mul", x, inside), six)
    else:
        d.both("Mul", x, d.add("Div", inside, six))


def bias_gelu(d: Draft) -> None:
    """Gelu of a sum with a vector."""
    d.opset = 20
    x = d.input("x", *d.choose(SHAPES))
    vector = d.weight(d.floats(*d.choose([(8,), (1,), (), (3, 8), (1, 1, 8)])))
    d.add("Gelu", d.both("Add", x, vector), approximate=d.choose(["none", "tanh"]))


def layer_norm(d: Draft) -> None:
    """x less its mean, over its deviation, times a scale and more a bias."""
    kind = d.choose([np.float32, np.float16, np.float64])
    d.opset = d.choose([21, 17])
    shape = d.choose(SHAPES)
    x = d.input("x", *shape, dtype=kind)
    mean = _mean(d, x, len(shape))
    centered = d.add("Sub", x, mean)
    square = d.add("Pow", centered, d.number(2, 0, 1, dtype=kind))
    if d.choose([False, True]):
        square = d.add("Mul", centered, centered)
    epsilon = d.number(1e-5, 0, 1, 4, dtype=kind)
    deviation = d.add("Sqrt", d.both("Add", _mean(d, square, len(shape)), epsilon))
    normal = d.add("Div", centered, deviation)
    sizes = [(8,), (1,), (), (1, 8), (3, 8)]
    scaled = d.both("Mul", normal, d.weight(d.floats(*d.choose(sizes), dtype=kind)))
    if d.choose([True, False]):
        d.both("Add", scaled, d.weight(d.floats(*d.choose(sizes), dtype=kind)))


def _mean(d: Draft, x: str, rank: int) -> str:
    axes, keepdims = d.choose([[-1], [rank - 1], [-2], [0], [-2, -1]]), d.choose([1, 1, 0])
    if d.opset < 18:
        return d.add("ReduceMean", x, axes=axes, keepdims=keepdims)
    return d.add("ReduceMean", x, d.weight(np.array(axes)), keepdims=keepdims)


def rms_norm(d: Draft) -> None:
    """x over its root mean square, times a scale, perhaps in float32 for 16 bits."""
    shape, narrow = d.choose(SHAPES), d.choose([np.float32, np.float16])
    x = d.input("x", *shape, dtype=narrow)
    if narrow != np.float32:
        x = d.add("Cast", x, to=FLOAT)
    square = d.add("Pow", x, d.number(2, 0, 1))
    deviation = d.add("Sqrt", d.both("Add", _mean(d, square, len(shape)), d.number(1e-5, 0, 1, 4)))
    normal = d.add("Div", x, deviation)
    if narrow != np.float32:
        normal = d.add("Cast", normal, to=10)
    sizes = [(8,), (1,), (), (1, 8), (3, 8)]
    d.both("Mul", normal, d.weight(d.floats(*d.choose(sizes), dtype=narrow)))


def matmul_add(d: Draft) -> None:
    """A product of matrices and a vector."""
    kind = d.choose([np.float32, np.float16, np.float64, np.int32])
    x = d.input("x", *d.choose([(3, 4), (1, 4), (0, 4), (4,), (2, 3, 4)]), dtype=kind)
    sizes = d.choose([(4, 5), (4, 1), (4,), (2, 4, 5)])
    w = d.weight(d.floats(*sizes, dtype=kind))
    if d.choose([False, True]):
        w = d.feed("w", d.weights.pop(w))
    bias = d.weight(d.floats(*d.choose([(5,), (1,), (), (1, 5), (3, 5)]), dtype=kind))
    d.both("Add", d.add("MatMul", x, w), bias)


def transposed_gemm(d: Draft) -> None:
    """A product of a matrix that is turned before."""
    x = d.input("x", *d.choose([(3, 4), (2, 3, 4), (4,)]))
    y = d.input("y", *d.choose([(5, 4), (2, 5, 4)]))
    order = d.choose([[1, 0], [0, 1], [0, 2, 1]])
    turned = d.add("Transpose", y, perm=order) if d.choose([1, 0]) else d.add("Transpose", y)
    if d.choose([False, True]):
        turned_x = d.add("Transpose", x)
        x = d.add("Transpose", turned_x) if d.choose([True, False]) else turned_x
    if d.choose([False, True]):
        c = d.input("c", *d.choose([(5,), (3, 1), (), (3, 5)]))
        d.add("Gemm", x, turned, c, alpha=0.5, beta=d.choose([1.0, 2.0]))
    else:
        d.add("MatMul", x, turned)


def image(d: Draft, kernel: tuple[int, ...] = (3, 3), rows: int = 6) -> tuple[str, int]:
    """Add a convolution; return its result and the number of its channels."""
    x = d.input("x", *d.choose([(2, 4), (1, 4), (0, 4)]), *(7,) * len(kernel))
    group = d.choose([1, 2])
    weights = d.weight(d.floats(rows, 4 // group, *kernel))
    bias = [d.weight(d.floats(rows))] if d.choose([True, False]) else []
    return d.add("Conv", x, weights, *bias, group=group, pads=[1] * 2 * len(kernel)), rows


def conv_bias(d: Draft) -> None:
    """Models that add a value to each channel of a convolution."""
    y, rows = image(d, d.choose([(3, 3), (3,)]), d.choose([6, 2]))
    ones = (1,) * (len(d.feeds["x"].shape) - 2)
    width = d.feeds["x"].shape[-1]
    shape = d.choose(
        [(rows, *ones), (1, rows, *ones), (1, *ones), (), (1,), (rows,), (width,), (3, rows, *ones),
         (1, 1, rows, *ones), (rows, *ones[:-1], width)]
    )  # fmt: skip
    column = d.weight(d.floats(*shape))
    if d.choose([True, False]):
        d.both("Add", y, column)
    else:
        d.add("Sub", *d.choose([(y, column), (column, y)]))


def conv_batchnorm(d: Draft) -> None:
    """A convolution, its normalization, and a factor for each channel."""
    y, rows = image(d, d.choose([(3, 3), (3,)]), d.choose([6, 2, 1]))
    ones = (1,) * (len(d.feeds["x"].shape) - 2)
    count = d.choose([rows, 1])
    given = [d.weight(d.random.random(count).astype(np.float32) + 0.5) for _ in range(4)]
    y = d.add("BatchNormalization", y, *given)
    if d.choose([False, True]):
        shape = d.choose([(rows, *ones), (1, rows, *ones), (), (1,), (7,), (3, rows, *ones)])
        column = d.weight(d.floats(*shape))
        d.add(d.choose(["Mul", "Div"]), *d.choose([(y, column), (column, y)]))


def conv_transpose(d: Draft) -> None:
    """The same for transposed convolutions."""
    group = d.choose([1, 2])
    x, rows = d.input("x", d.choose([2, 1]), 4, 5, 5), 6
    weights = d.weight(d.floats(4, rows // group, 3, 3))
    y = d.add("ConvTranspose", x, weights, group=group, strides=[2, 2])
    given = [d.weight(d.random.random(d.choose([rows, 1])).astype(np.float32) + 0.5)] * 4
    y = d.add("BatchNormalization", y, *given)
    d.both(
        "Add", y, d.weight(d.floats(*d.choose([(rows, 1, 1), (1,), (), (11,), (3, rows, 1, 1)])))
    )


def conv_pads(d: Draft) -> None:
    """Zeros around an image."""
    x = d.input("x", 2, 4, *d.choose([(7, 7), (7,)]))
    sides = d.choose([1, 2, 0, -1])
    spatial = d.feeds["x"].ndim - 2
    batch = d.choose([0, 1])
    pads = d.weight(np.array([batch, 0, *(sides,) * spatial] * 2))
    number = d.number(d.choose([0.0, 1.0, np.nan]), 0, 1)
    given = [pads] if d.choose([False, True]) else [pads, number]
    padded = d.add("Pad", x, *given, mode=d.choose(["constant", "edge", "reflect"]))
    weights = d.weight(d.floats(6, 4, *d.choose([(3, 3), (3,)])))
    more = d.choose([{}, {"pads": [1] * 2 * spatial}, {"auto_pad": "SAME_UPPER"}])
    d.add("Conv", padded, weights, **more)


def conv_activation(d: Draft) -> None:
    """A convolution, a sum with another image, and an activation."""
    y, rows = image(d)
    n = d.feeds["x"].shape[0]
    shapes = [
        *((n, rows, 7, 7), (1, rows, 7, 7), (rows, 1, 1), (), (1,), (7,), (3, rows, 7, 7)),
        *((n, 1, 7, 7), (1, n, rows, 7, 7), (7, 7), (n, rows, 1, 1)),
    ]
    if d.choose([True, False]):
        y = d.both("Add", y, d.input("z", *d.choose(shapes)))
    kind = d.choose(["Relu", "Clip", "LeakyRelu", "HardSigmoid", "Sigmoid", ""])
    if kind == "Clip":
        low, high = d.choose([(0.0, 1.0), (1.0, -1.0)])
        d.add("Clip", y, d.number(low, 0), d.number(high, 0))
    elif kind:
        d.add(kind, y)


ROWS = {
    "gelu": gelu,
    "gelu, tangent": tanh_gelu,
    "swish": swish,
    "hard-swish": hard_swish,
    "layer-norm": layer_norm,
    "rms-norm": rms_norm,
    "matmul-add": matmul_add,
    "transposed-gemm": transposed_gemm,
    "conv-bias": conv_bias,
    "conv-batchnorm": conv_batchnorm,
    "conv-batchnorm, transposed": conv_transpose,
    "conv-pads": conv_pads,
}
