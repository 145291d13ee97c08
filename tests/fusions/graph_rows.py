"""Rows for transforms that tidy graphs, and that write classical models and others out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from drafts import Draft

from models import FLOAT, INT64

MS = {"domain": "com.microsoft"}
SHAPES = [(2, 3, 4), (3, 4), (4,), (), (1, 3, 4), (2, 0, 4), (2, 3, 1), (1,)]


def redundant(d: Draft) -> None:
    """A node that gives back what it gets, between others."""
    x = d.input("x", *d.choose(SHAPES[:7]))
    shape, rank = d.feeds[x].shape, d.feeds[x].ndim
    y = d.add("Neg", x)
    op = d.choose(
        ["Identity", "Reshape", "Expand", "Tile", "Pad", "Slice", "Add", "Mul", "Sub", "Div",
         "Concat", "Max", "Dropout", "Transpose", "Resize"]
    )  # fmt: skip
    if op in ("Add", "Mul", "Sub", "Div"):
        number = d.number(0 if op in ("Add", "Sub") else 1, 0, 1, rank + 1)
        y = d.add(op, y, number)
    elif op == "Reshape":
        sizes = [[*shape], [-1, *shape[1:]], [0] * rank, [*shape, 1], [-1], [1, *shape]]
        y = d.add(op, y, _ints(d, d.choose(sizes)), allowzero=d.choose([0, 1]))
    elif op == "Expand":
        sizes = [[*shape], [1], [], [1] * (rank + 1), [2, *shape], [1] * rank]
        y = d.add(op, y, _ints(d, d.choose(sizes)))
    elif op == "Tile":
        y = d.add(op, y, _ints(d, d.choose([[1] * rank, [2] * rank])))
    elif op == "Pad":
        y = d.add(op, y, _ints(d, d.choose([[0] * 2 * rank, [1] * 2 * rank])))
    elif op == "Slice":
        starts, ends = _ints(d, [0]), _ints(d, [d.choose([2**63 - 1, 2**31 - 1, 1])])
        more = d.choose([[], [_ints(d, [-1])], [_ints(d, [-1]), _ints(d, [-1])]])
        y = d.add(op, y, starts, ends, *more)
    elif op == "Transpose" and rank:
        y = d.add(op, y, perm=d.choose([[*range(rank)], [*range(rank)][::-1]]))
    elif op == "Resize":
        scales = d.weight(np.ones(d.choose([rank, 1]), np.float32))
        y = d.add(op, y, "", scales, mode=d.choose(["nearest", "linear"]))
    else:
        given = {"axis": d.choose([0, -1])} if op == "Concat" else {}
        y = d.add(op, y, **given)
    d.add("Abs", y) if d.choose([True, False]) else None


def reshaped_twice(d: Draft) -> None:
    """Two Reshapes of which one will do."""
    x = d.input("x", *d.choose([(2, 3, 4), (2, 0, 4), (24,)]))
    first = d.choose([[6, 4], [-1, 4], [0, -1], [24], [2, 12]])
    y = d.add("Reshape", d.add("Neg", x), _ints(d, first)) if d.choose([1, 0]) else x
    if y == x:
        y = d.add("Flatten", x, axis=d.choose([1, 2, 0, -1]))
    y = d.add("Reshape", y, _ints(d, d.choose([[2, 3, 4], [-1], [0, -1], [4, -1], [0, 4]])))
    d.add("Abs", y)


def expanded(d: Draft) -> None:
    """Models that expand a value to the shape of the other operand."""
    x = d.input("x", *d.choose([(2, 3, 4), (2, 0, 4), (4,)]))
    n = d.input("n", *d.choose([(2, 3, 1), (2, 1, 1), (1,), (5, 1, 1, 1), (3, 3)]))
    like = d.choose([x, n, "z"])
    if like == "z":
        d.input("z", 2, 3, 4)
    wide = d.add("Expand", n, d.add("Shape", like, **d.choose([{}, {"end": 2}])))
    y = d.both(d.choose(["Div", "Add"]), x, wide)
    match d.choose(["alone", "read", "left"]):
        case "read":
            d.outputs = [y, d.add("ReduceSum", wide)]
        case "left":
            d.outputs = [y, wide]
        case _:
            d.outputs = [y]


def squeezed(d: Draft) -> None:
    """An axis that is put in and taken out."""
    x = d.input("x", *d.choose([(2, 1, 4), (1, 4), (4,), (2, 1, 1)]))
    axes = [[1], [-1], [0], [1, 2]]
    first, second = d.choose([("Unsqueeze", "Squeeze"), ("Squeeze", "Unsqueeze")])
    y = d.add(first, d.add("Neg", x), _ints(d, d.choose(axes)))
    d.add("Abs", d.add(second, y, _ints(d, d.choose(axes))))


def casts(d: Draft) -> None:
    """Casts without loss before others."""
    kinds = [np.float32, np.float16, np.int32, np.uint8, np.bool_, np.float64]
    codes = [FLOAT, 11, 10, 6, 2, INT64, 9]
    kind = d.choose(kinds)
    x = d.feed("x", (d.floats(2, 3) * d.choose([1, 50, 1e5])).astype(np.float64).astype(kind))
    y = d.add("Cast", x, to=d.choose([11, FLOAT, 10, 6, INT64]))
    y = d.add("Cast", y, to=d.choose(codes))
    d.add("Identity", y)


def repeated(d: Draft) -> None:
    """The same computed twice."""
    x, z = d.input("x", 2, 3), d.input("z", *d.choose([(2, 3), (3,), (2, 1)]))
    op = d.choose(["Add", "Sub"])
    pairs = [(x, z), (x, z)], [(x, z), (z, x)], [(x, x), (x, z)]
    d.add("Mul", *(d.add(op, *pair) for pair in d.choose(pairs)))


def transposes(d: Draft) -> None:
    """Transpose around what works element by element."""
    x = d.input("x", *d.choose([(2, 3, 4, 5), (1, 3, 4, 5), (2, 0, 4, 5)]))
    y = d.add("Transpose", x, perm=[0, 2, 3, 1])
    shape = [
        (3,),
        (1, 3),
        (2, 4, 5, 3),
        (1, 1, 1, 3),
        (),
        (1,),
        (5, 3),
        (2, 1, 1, 1),
        (1, 2, 4, 5, 3),
    ]
    match d.choose(["constant", "input", "reduced", "padded", "clipped", "both", "quantized"]):
        case "constant":
            y = d.both(d.choose(["Add", "Mul"]), y, d.weight(d.floats(*d.choose(shape))))
        case "input":
            y = d.both("Add", y, d.input("z", *d.choose(shape)))
        case "reduced":
            axes = _ints(d, d.choose([[1, 2], [-2], [1], [3], [0, 1]]))
            y = d.add(d.choose(["ReduceMean", "ReduceMax"]), y, axes, keepdims=d.choose([1, 0]))
        case "padded":
            pads = d.choose([[0, 1, 2, 0, 0, 3, 0, 0], [0, 0, 0, 1, 0, 0, 0, 2]])
            y = d.add("Pad", y, _ints(d, pads), d.number(1.5, 0))
        case "clipped":
            y = d.add("Clip", y, d.number(-0.5, 0), d.number(0.5, 0))
        case "both":
            other = d.input("z", *d.choose([(2, 3, 4, 5), (1, 3, 4, 1), (2, 3, 1, 1)]))
            other = d.add("Transpose", other, perm=d.choose([[0, 2, 3, 1], [0, 3, 2, 1]]))
            y = d.both("Sub", y, other)
        case _:
            scale = d.weight(np.full(d.choose([(), (3,), (1,)]), 0.1, np.float32))
            y = d.add("QuantizeLinear", y, scale, axis=d.choose([3, -1]))
            y = d.add("DequantizeLinear", y, scale, axis=d.choose([3, -1]))
    y = d.add(d.choose(["Relu", "Sigmoid", "Softmax"]), y)
    d.add("Transpose", y, perm=d.choose([[0, 3, 1, 2], [0, 2, 3, 1]]))


def widen_fp16(d: Draft) -> None:
    """16-bit floats between casts."""
    d.rounding = 4e-3
    x = d.add("Cast", d.input("x", *d.choose([(2, 8), (1, 8), (8,), (2, 3, 8)])), to=10)
    y = d.add("MatMul", x, d.weight(d.floats(8, d.choose([4, 1]), dtype=np.float16)))
    y = d.add("Add", y, d.weight(d.floats(*d.choose([(4,), (1,), (), (2, 4)]), dtype=np.float16)))
    y = d.add(d.choose(["Relu", "Tanh", "Neg"]), y)
    d.add("Cast", y, to=d.choose([FLOAT, 11]))


def log_sum_exp(d: Draft) -> None:
    """The logarithm of a sum of powers."""
    x = d.input("x", *d.choose(SHAPES), dtype=d.choose([np.float32, np.float64]))
    if d.choose([False, True]) and d.feeds["x"].size:
        d.feeds["x"].reshape(-1)[:4] = d.choose([np.inf, -np.inf, np.nan, 200.0, -200.0])
    axes = d.choose([[-1], [0], [0, 1], [], None])
    given = [] if axes is None else [_ints(d, axes)]
    d.add("ReduceLogSumExp", x, *given, keepdims=d.choose([1, 0]),
          noop_with_empty_axes=d.choose([0, 1]))  # fmt: skip


def column(d: Draft) -> None:
    """A product and sums of squares, as models of clusters have them."""
    x = d.input("x", *d.choose([(3, 4), (1, 4), (0, 4)]))
    axes = _ints(d, d.choose([[1], [-1], [0]]))
    squares = d.add("ReduceSumSquare", x, axes, keepdims=d.choose([1, 0]))
    squares = d.both("Mul", squares, d.number(2.0, 0, 1, 2)) if d.choose([False, True]) else squares
    given = {"alpha": d.choose([-2.0, 1.0]), "beta": d.choose([1.0, 0.5]), "transB": 1}
    d.add("Gemm", x, d.weight(d.floats(d.choose([5, 1]), 4)), squares, **given)


def invariants(d: Draft) -> None:
    """A loop that hands a state on as it is."""
    from onnx import helper

    from models import BOOL, node, value

    x, w = d.input("x", 2, 3), d.input("w", *d.choose([(2, 3), (3,), (), (1, 2, 3)]))
    nodes = [
        node("Identity", "go", "on"),
        node("Add", "a b", "c"),
        node("Identity", d.choose(["b", "a"]), "kept"),
    ]
    body = helper.make_graph(
        nodes, "body",
        [value("i", INT64, []), value("go", BOOL, []), value("a", 1, None), value("b", 1, None)],
        [value("on", BOOL, []), value("c", FLOAT, None), value("kept", FLOAT, None)],
    )  # fmt: skip
    count, yes = d.weight(np.array(d.choose([3, 0]))), d.weight(np.array(True))
    d.outputs = d.several("Loop", 2, count, yes, x, w, body=body)


def constants(d: Draft) -> None:
    """Models with nodes of constants alone, and with nodes without readers."""
    x = d.input("x", *d.choose([(2, 3), (3,), ()]))
    given: dict[str, Any] = d.choose([{"value_floats": [1.0, 2.0, 3.0]}, {"value_float": 2.0}])
    made = d.add("Constant", **given)
    op = d.choose(["Neg", "Exp", "Sqrt", "Unsqueeze", "Tile"])
    more = [_ints(d, [0])] if op == "Unsqueeze" else [_ints(d, [2])] if op == "Tile" else []
    made = d.add(op, made, *more)
    d.add("Abs", made)
    d.both("Add", x, made)


def quantized(d: Draft) -> None:
    """A product with a matrix of bytes."""
    x = d.input("x", *d.choose([(3, 4), (1, 4), (2, 3, 4), (4,), (0, 4)]))
    kind = d.choose([np.int8, np.uint8])
    codes = d.weight(d.random.integers(0, 100, d.choose([(4, 6), (4, 1)])).astype(kind))
    columns = d.weights[codes].shape[1]
    scales, axis = d.choose(
        [((columns,), 1), ((), 1), ((1,), 1), ((4,), 0), ((columns,), -1), ((2, columns), 0)]
    )
    scale = d.weight((d.random.random(scales) + 0.5).astype(np.float32))
    zero = [d.weight(d.random.integers(0, 50, scales).astype(kind))] if d.choose([1, 0]) else []
    block = {"block_size": 2} if len(scales) == 2 else {}
    w = d.add("DequantizeLinear", codes, scale, *zero, axis=axis, **block)
    if d.choose([False, True]):
        bias = d.weight(d.floats(*d.choose([(columns,), (), (1,), (3, 1), (3, columns)])))
        d.add("Gemm", x, w, bias, beta=d.choose([1.0, 0.5]))
    else:
        d.add("MatMul", x, w)


def moved(d: Draft) -> None:
    """Codes that are dequantized to be moved, and quantized again."""
    x = d.input("x", *d.choose([(2, 4, 4), (1, 4, 4), (0, 4, 4)]))
    kind = d.choose([np.uint8, np.int8, np.uint16])

    def by(*others: float) -> list[str]:
        scale, rank = d.choose([0.05, *others]), d.choose([0, 1])
        zero = [d.number(d.choose([3, 5]), rank, dtype=kind)] if d.choose([1, 0]) else []
        return [d.number(scale, rank), *zero]

    codes = d.add("QuantizeLinear", x, *by(), axis=1)
    y = d.add("DequantizeLinear", codes, *by(0.04, np.inf, 0.0, 1e-38), axis=1)
    op = d.choose(["Transpose", "Reshape", "Flatten", "Gather", "Slice", "Relu", "DepthToSpace"])
    if op == "Reshape":
        y = d.add(op, y, _ints(d, [-1, 2, 8]))
    elif op == "Gather":
        y = d.add(op, y, _ints(d, d.choose([[1, 0], [-1]])), axis=1)
    elif op == "Slice":
        y = d.add(op, y, _ints(d, [3]), _ints(d, [-5]), _ints(d, [2]), _ints(d, [-1]))
    elif op == "DepthToSpace":
        y = d.add(op, d.add("Unsqueeze", y, _ints(d, [0])), blocksize=d.choose([1, 2]))
    else:
        y = d.add(op, y, **({"perm": [0, 2, 1]} if op == "Transpose" else {}))
    code = by(0.06)
    made = d.add("QuantizeLinear", y, *code, axis=d.choose([1, 0]))
    d.outputs = d.choose([[], [made], [y]])
    y = d.add("DequantizeLinear", made, *code, axis=1)
    d.outputs = [*d.outputs, y] if d.outputs else []


def microsoft(d: Draft) -> None:
    """Fused operators of com.microsoft."""
    op = d.choose(
        ["BiasGelu", "FastGelu", "QuickGelu", "FusedMatMul", "FusedGemm", "SkipLayerNormalization"]
    )
    x = d.input("x", *d.choose([(2, 3, 8), (3, 8), (1, 8), (0, 8)]))
    match op:
        case "BiasGelu" | "FastGelu":
            d.add(op, x, d.weight(d.floats(*d.choose([(8,), (1,)]))), **MS)
        case "QuickGelu":
            d.add(op, x, alpha=d.choose([1.702, 1.0]), **MS)
        case "FusedMatMul":
            y = d.input("y", *d.choose([(8, 5), (5, 8), (2, 8, 5)]))
            d.add(op, x, y, alpha=d.choose([0.5, 1.0]), transB=d.choose([0, 1]), **MS)
        case "FusedGemm":
            c = d.weight(d.floats(*d.choose([(5,), (1,), (3, 1), ()])))
            kind = d.choose(["Relu", "LeakyRelu", "Sigmoid"])
            d.add(op, x, d.weight(d.floats(8, 5)), c, activation=kind, **MS)
        case _:
            z = d.input("z", *d.choose([(2, 3, 8), (1, 3, 8), (3, 8)]))
            given = [d.weight(d.floats(8)) for _ in range(d.choose([3, 2, 1]))]
            d.outputs = [
                d.several(op, 4, x, z, *given, **MS)[n] for n in d.choose([[0], [0, 3], [0, 1]])
            ]


def _ints(d: Draft, numbers: Sequence[int]) -> str:
    return d.weight(np.array(numbers, np.int64))


def cast_integers(d: Draft) -> None:
    """Constant integers that are cast, shifted and scaled, then multiplied by or gathered from."""
    kind = d.choose([np.int8, np.uint8, np.int16])
    numbers = np.arange(12).reshape(3, 4) * 7 % 11
    w = d.add("Cast", d.weight((numbers + 3).astype(kind)), to=1)
    shape = d.choose([(4,), (3, 1), (), (3, 4)])
    scale = (np.arange(int(np.prod(shape))).reshape(shape) + 1).astype(np.float32) / 8
    if zero := d.choose([0, 3, 2.5]):
        w = d.add("Sub", w, d.weight(np.full(shape, zero, np.float32)))
    w = d.both("Mul", w, d.weight(scale))
    if d.choose([True, False]):
        d.add("MatMul", d.input("x", 2, 3), w)
    else:
        d.add("Gather", w, _ints(d, d.choose([[1, 0], [-1]])), axis=d.choose([0, 1]))
    d.outputs = d.choose([[], [w]])


ROWS = {
    "redundant-nodes": redundant,
    "redundant-nodes, reshaped": reshaped_twice,
    "redundant-nodes, squeezed": squeezed,
    "redundant-nodes, expanded": expanded,
    "cast-chains": casts,
    "common-subexpressions": repeated,
    "cancel-transposes": transposes,
    "widen-fp16": widen_fp16,
    "classical-models, powers": log_sum_exp,
    "classical-models, column": column,
    "free-loop-invariants": invariants,
    "fold-constants": constants,
    "fuse-dequantize-matmul": quantized,
    "move-codes": moved,
    "dequantize-casts": cast_integers,
    "microsoft-operators": microsoft,
}
