"""Nodes that random graphs are put together of: single ones, and patterns that transforms know."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.corpus import Feeds

Shape = tuple[int, ...]
OPSET = 21


@dataclass(frozen=True)
class Known:
    """A value of a graph: its name, dtype and shape."""

    name: str
    dtype: np.dtype[Any]
    shape: Shape


class Growing:
    """A graph that gets nodes one after the other, each of values that are there.

    Attributes:
        draw: Where choices come from.
        dtype: Of floats that are computed with.
        values: Those that there are.
        feeds: Of the model.
    """

    def __init__(self, draw: random.Random, dtype: Any) -> None:
        self.draw = draw
        self.dtype = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        self.numbers = np.random.default_rng(draw.randrange(1 << 30))
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[Known] = []
        self.values: list[Known] = []
        self.feeds: Feeds = {}
        sizes = [2, 3, 4, 5, 8, 16]
        shapes = [(2, 8), (3, 16), (2, 4, 8), (1, 3, 9, 9), (2, 4, 6, 6), (1, 2, 5, 8)]
        shapes.append(tuple(draw.choice(sizes) for _ in range(draw.randint(1, 3))))
        for _ in range(draw.randint(1, 3)):
            self.feed(draw.choice(shapes))

    def feed(self, shape: Shape) -> None:
        """Add an input."""
        known = Known(f"x{len(self.inputs)}", self.dtype, shape)
        self.inputs.append(known)
        self.values.append(known)
        self.feeds[known.name] = self.floats(shape)

    def floats(self, shape: Shape) -> Any:
        return self.numbers.standard_normal(shape).astype(self.dtype)

    def weight(self, array: Any) -> Known:
        """Add an initializer, or a Constant."""
        array = np.asarray(array)
        name = f"w{len(self.weights)}"
        if self.draw.random() < 0.15:
            tensor = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [f"{name}c"], value=tensor))
            name = f"{name}c"
            self.weights.append(numpy_helper.from_array(np.zeros(1, np.float32), name[:-1]))
        else:
            self.weights.append(numpy_helper.from_array(array, name))
        return Known(name, array.dtype, array.shape)

    def pick(self, fits: Callable[[Known], bool] = lambda _: True) -> Known | None:
        """Return a float value that fits, rather a late one."""
        found = [v for v in self.values if v.dtype == self.dtype and fits(v)]
        if not found:
            return None
        return found[-1] if self.draw.random() < 0.6 else self.draw.choice(found)

    def add(
        self,
        op: str,
        inputs: list[Known | None],
        shape: Shape,
        dtype: Any = None,
        **attributes: Any,
    ) -> Known:
        """Add a node of one output."""
        made = Known(f"v{len(self.nodes)}", np.dtype(dtype or self.dtype), shape)
        names = [each.name if each else "" for each in inputs]
        self.nodes.append(helper.make_node(op, names, [made.name], **attributes))
        self.values.append(made)
        return made

    def number(self, value: float) -> Known:
        return self.weight(np.array(value, self.dtype))

    def model(self) -> onnx.ModelProto:
        """Return the model, whose outputs are what nobody reads, and some of the others."""
        read = {name for node in self.nodes for name in node.input}
        made = [v for v in self.values if v not in self.inputs]
        outputs = [v for v in made if v.name not in read or self.draw.random() < 0.1]
        if not made:
            outputs = [self.add("Neg", [self.values[0]], self.values[0].shape)]
        imports = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph(
            self.nodes, "random", [_info(v) for v in self.inputs], [_info(v) for v in outputs],
            self.weights, value_info=[_info(v) for v in made if v not in outputs],
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _info(value: Known) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(value.name, kind, value.shape)


UNARY: list[tuple[str, dict[str, Any]]] = [
    *[(op, {}) for op in ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "HardSwish",
                          "Identity", "Softsign", "Mish", "Ceil", "Sin")],
    ("LeakyRelu", {"alpha": 0.2}), ("Elu", {"alpha": 0.5}), ("HardSigmoid", {"alpha": 0.3}),
    ("Gelu", {}), ("Gelu", {"approximate": "tanh"}),
]  # fmt: skip
NO_BFLOAT16 = {"Softplus", "HardSwish", "Softsign", "Mish", "Ceil", "Sin", "Elu", "HardSigmoid"}


def unary(g: Growing) -> None:
    x = g.pick()
    op, attributes = g.draw.choice(UNARY)
    if x is None or (g.dtype.name == "bfloat16" and op in NO_BFLOAT16):
        return
    if op == "Ceil" and g.dtype != np.float32:  # one rounding decides
        return
    g.add(op, [x], x.shape, **attributes)


def clip(g: Growing) -> None:
    if (x := g.pick()) is not None:
        low = g.number(-0.5) if g.draw.random() < 0.7 else None
        g.add("Clip", [x, low, g.number(2.0)], x.shape)


def binary(g: Growing) -> None:
    x = g.pick()
    if x is None:
        return
    op = g.draw.choice(["Add", "Add", "Sub", "Mul", "Max", "Min", "Div"])
    same = g.pick(lambda v: v.shape == x.shape) if op != "Div" and g.draw.random() < 0.5 else None
    y = same
    if y is None:
        shape = g.draw.choice([(), (1,), x.shape, x.shape[-1:], (1,) * len(x.shape)])
        values = g.floats(shape)
        y = g.weight(np.sign(values) * (np.abs(values) + 1) if op == "Div" else values)
    g.add(op, [y, x] if op != "Div" and g.draw.random() < 0.3 else [x, y], x.shape)


def matmul(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 2 and 0 not in v.shape)
    if x is None:
        return
    depth, columns = x.shape[-1], g.draw.choice([3, 8, 16])
    w = g.weight(g.floats((depth, columns)) / np.array(math.sqrt(depth), g.dtype))
    if len(x.shape) == 2 and g.draw.random() < 0.3:
        bias = g.weight(g.floats((columns,))) if g.draw.random() < 0.6 else None
        g.add("Gemm", [x, w, bias], (*x.shape[:-1], columns), alpha=g.draw.choice([1.0, 0.5]))
        return
    y = g.add("MatMul", [x, w], (*x.shape[:-1], columns))
    if g.draw.random() < 0.5:
        y = g.add("Add", [y, g.weight(g.floats((columns,)))], y.shape)
    if g.draw.random() < 0.3:
        g.add("Relu", [y], y.shape)


def conv(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) == 4 and min(v.shape[2:]) >= 3)
    if x is None or g.dtype.name == "bfloat16":
        return
    batch, channels, height, width = x.shape
    rows = g.draw.choice([2, 4, 8])
    w = g.weight(g.floats((rows, channels, 3, 3)) / np.array(3 * math.sqrt(channels), g.dtype))
    bias = g.weight(g.floats((rows,))) if g.draw.random() < 0.5 else None
    same = g.draw.random() < 0.6
    size = (height, width) if same else (height - 2, width - 2)
    y = g.add("Conv", [x, w, bias], (batch, rows, *size), pads=[int(same)] * 4)
    if g.draw.random() < 0.4:
        s, b, m = (g.weight(g.floats((rows,))) for _ in range(3))
        v = g.weight((g.floats((rows,)) ** 2 + np.array(1, g.dtype)).astype(g.dtype))
        y = g.add("BatchNormalization", [y, s, b, m, v], y.shape)
    if g.draw.random() < 0.4:
        y = g.add("Relu", [y], y.shape)
    if g.draw.random() < 0.3:
        other = g.pick(lambda v: v.shape == y.shape)
        g.add("Add", [y, other], y.shape)


def pooled(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) == 4 and min(v.shape[2:]) >= 2)
    if x is None or g.dtype.name == "bfloat16":
        return
    op = g.draw.choice(["MaxPool", "AveragePool", "GlobalAveragePool"])
    if op == "GlobalAveragePool":
        g.add(op, [x], (*x.shape[:2], 1, 1))
        return
    size = tuple(n // 2 for n in x.shape[2:])
    g.add(op, [x], (*x.shape[:2], *size), kernel_shape=[2, 2], strides=[2, 2])


def norm(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 2 and v.shape[-1] > 1)
    if x is None:
        return
    wide = x.shape[-1:]
    scale, bias = g.weight(g.floats(wide)), g.weight(g.floats(wide))
    if g.draw.random() < 0.4:
        g.add("LayerNormalization", [x, scale, bias], x.shape, axis=-1)
        return
    mean = g.add("ReduceMean", [x, g.weight(np.array([-1]))], (*x.shape[:-1], 1))
    d = g.add("Sub", [x, mean], x.shape)
    p = g.add("Pow", [d, g.number(2.0)], x.shape)
    v = g.add("ReduceMean", [p, g.weight(np.array([-1]))], mean.shape)
    s = g.add("Sqrt", [g.add("Add", [v, g.number(1e-2)], v.shape)], v.shape)
    n = g.add("Mul", [g.add("Div", [d, s], x.shape), scale], x.shape)
    if g.draw.random() < 0.7:
        g.add("Add", [n, bias], x.shape)


def gelu(g: Growing) -> None:
    x = g.pick()
    if x is None:
        return
    if g.draw.random() < 0.4:  # swish
        s = g.add("Sigmoid", [x], x.shape)
        g.add("Mul", [x, s], x.shape)
        return
    d = g.add("Div", [x, g.number(math.sqrt(2))], x.shape)
    e = g.add("Add", [g.add("Erf", [d], x.shape), g.number(1.0)], x.shape)
    g.add("Mul", [g.add("Mul", [x, e], x.shape), g.number(0.5)], x.shape)


def softmax(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 1)
    if x is not None:
        op = g.draw.choice(["Softmax", "Softmax", "LogSoftmax"])
        g.add(op, [x], x.shape, axis=-1)


def attention(g: Growing) -> None:
    q = g.pick(lambda v: len(v.shape) == 4)
    if q is None:
        return
    k = g.add("Transpose", [q], (*q.shape[:2], q.shape[3], q.shape[2]), perm=[0, 1, 3, 2])
    scores = (*q.shape[:3], q.shape[2])
    s = g.add("Mul", [g.add("MatMul", [q, k], scores), g.number(0.25)], scores)
    if g.draw.random() < 0.4:
        s = g.add("Add", [s, g.weight(g.floats(scores[-2:]))], scores)
    p = g.add("Softmax", [s], scores, axis=-1)
    g.add("MatMul", [p, q], q.shape)


def reduced(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return
    axis, keep = g.draw.randrange(len(x.shape)), g.draw.randint(0, 1)
    op = g.draw.choice(["ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum"])
    shape = x.shape[:axis] + ((1,) if keep else ()) + x.shape[axis + 1 :]
    g.add(op, [x, g.weight(np.array([axis]))], shape, keepdims=keep)


def transposed(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 2)
    if x is None:
        return
    order = list(range(len(x.shape)))
    g.draw.shuffle(order)
    y = g.add("Transpose", [x], tuple(x.shape[n] for n in order), perm=order)
    if g.draw.random() < 0.3:
        y = g.add("Relu", [y], y.shape)
    if g.draw.random() < 0.4:
        g.add("Transpose", [y], x.shape, perm=[order.index(n) for n in range(len(order))])


def reshaped(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 1)
    if x is None:
        return
    way = g.draw.choice(["Reshape", "Flatten", "Unsqueeze", "Computed"])
    if way == "Reshape":
        first = x.shape[0]
        shape = (first, math.prod(x.shape[1:]))
        g.add("Reshape", [x, g.weight(np.array([first, -1]))], shape)
    elif way == "Flatten":
        g.add("Flatten", [x], (x.shape[0], math.prod(x.shape[1:])))
    elif way == "Unsqueeze":
        y = g.add("Unsqueeze", [x, g.weight(np.array([0]))], (1, *x.shape))
        if g.draw.random() < 0.5:
            g.add("Squeeze", [y, g.weight(np.array([0]))], x.shape)
    else:
        s = g.add("Shape", [x], (len(x.shape),), np.int64)
        zero, one = g.weight(np.array([0])), g.weight(np.array([1]))
        first = g.add("Slice", [s, zero, one, zero], (1,), np.int64)
        to = g.add("Concat", [first, g.weight(np.array([-1]))], (2,), np.int64, axis=0)
        g.add("Reshape", [x, to], (x.shape[0], math.prod(x.shape[1:])))


def sliced(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 1 and max(v.shape) >= 2)
    if x is None:
        return
    axis = x.shape.index(max(x.shape))
    size, keep = x.shape[axis], max(1, x.shape[axis] - 1)
    shape = (*x.shape[:axis], keep, *x.shape[axis + 1 :])
    way = g.draw.choice(["Slice", "Gather", "Concat", "Pad", "Split"])
    if way == "Slice":
        starts, ends, axes = (g.weight(np.array([n])) for n in (0, keep, axis))
        g.add("Slice", [x, starts, ends, axes], shape)
    elif way == "Gather":
        g.add("Gather", [x, g.weight(np.arange(keep)[::-1].copy())], shape, axis=axis)
    elif way == "Concat":
        wide = (*x.shape[:axis], 2 * size, *x.shape[axis + 1 :])
        if math.prod(wide) < 5000:
            g.add("Concat", [x, x], wide, axis=axis)
    elif way == "Pad":
        pads = np.zeros((2, len(x.shape)), np.int64)
        pads[:, axis] = 1
        shape = (*x.shape[:axis], size + 2, *x.shape[axis + 1 :])
        g.add("Pad", [x, g.weight(pads.reshape(-1))], shape)
    else:
        halves = [size - size // 2, size // 2]
        made = [
            Known(f"v{len(g.nodes)}_{n}", g.dtype, (*x.shape[:axis], half, *x.shape[axis + 1 :]))
            for n, half in enumerate(halves)
        ]
        names = [x.name, g.weight(np.array(halves)).name]
        g.nodes.append(helper.make_node("Split", names, [v.name for v in made], axis=axis))
        g.values += made


def chosen(g: Growing) -> None:
    x = g.pick(lambda v: len(v.shape) >= 1)
    if x is not None:
        mask = g.numbers.random(x.shape[-1:]) < 0.5
        y = g.add("Where", [g.weight(mask), x, g.number(-1.0)], x.shape)
        g.add("Add", [y, x], x.shape)


def cast(g: Growing) -> None:
    """Go to another type of floats and comes back, with a few nodes between."""
    x = g.pick()
    if x is None:
        return
    other = np.dtype(g.draw.choice([np.float16, np.float32, np.float64]))
    to, back = (helper.np_dtype_to_tensor_dtype(t) for t in (other, g.dtype))
    y = g.add("Cast", [x], x.shape, other, to=to)
    if g.draw.random() < 0.6:
        y = g.add(g.draw.choice(["Relu", "Tanh", "Neg"]), [y], x.shape, other)
    g.add("Cast", [y], x.shape, to=back)


BLOCKS = {
    unary: 5, binary: 6, clip: 1, matmul: 4, conv: 4, pooled: 1, norm: 3, gelu: 2, softmax: 2,
    attention: 2, reduced: 2, transposed: 3, reshaped: 3, sliced: 3, chosen: 1, cast: 2,
}  # fmt: skip
"""The functions by which graphs grow, each with its share of draws."""
