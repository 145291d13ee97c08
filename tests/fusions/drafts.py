"""Drafts of models, written by rows of a table that say which choices a rule of fusion allows.

A row draws what may vary from lists whose first entry is what exporters write. All first entries
are the base form, which must be fused; every other entry breaks an assumption that a rule may make.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from models import node, value

Arrays = dict[str, np.ndarray[Any, Any]]

DECLARED = (
    *("symbols", "sizes", "own symbols", "one symbol", "ranks", "nothing"),
    *("other sizes", "other symbols", "others' shapes"),
)
"""Shapes that a model declares: those of inputs, and those between that inference finds.

``symbols`` names the first two axes as exporters do, ``own symbols`` gives each axis a name of its
own, ``one symbol`` all the same one. ``nothing`` says only what inputs are. The others lie about
what is between: ``others' shapes`` gives each value the shape of the one behind it.
"""


class Draft:
    """A model in the making.

    Args:
        choose: Returns one of a list, the first for the base form.
        opset: The version of ONNX's own operators.
    """

    def __init__(self, choose: Callable[[Sequence[Any]], Any]) -> None:
        self.choose = choose
        self.opset = 21
        self.random = np.random.default_rng(7)
        self.feeds: Arrays = {}
        self.weights: Arrays = {}
        self.nodes: list[onnx.NodeProto] = []
        self.domains = {"com.microsoft": 1, "ai.onnx.ml": 3}
        self.outputs: list[str] = []
        self.rounding = 0.0

    def floats(self, *shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
        """Return random numbers."""
        return np.asarray(self.random.standard_normal(shape)).astype(dtype)

    def input(self, name: str, *shape: int, dtype: Any = np.float32) -> str:
        """Add an input of random numbers."""
        self.feeds[name] = self.floats(*shape, dtype=dtype)
        return name

    def feed(self, name: str, array: Any) -> str:
        """Add an input."""
        self.feeds[name] = np.asarray(array)
        return name

    def weight(self, array: Any, name: str = "") -> str:
        """Add a constant; return its name."""
        name = name or f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def number(self, number: float, *ranks: int, dtype: Any = np.float32) -> str:
        """Add a constant of one element, of no axes or of as many as is chosen."""
        rank = self.choose(ranks or (0,))
        return self.weight(np.full((1,) * rank, number, dtype))

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of one result; return the result's name."""
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node of several results."""
        first = len(self.nodes)
        names = [f"v{first}" if n == 0 else f"v{first}.{n}" for n in range(count)]
        given = " ".join(name or "_" for name in inputs)
        self.nodes.append(node(op, given, " ".join(names), **attributes))
        return names

    def both(self, op: str, first: str, second: str) -> str:
        """Add a node of two operands, in either order."""
        return self.add(op, *self.choose([(first, second), (second, first)]))

    def wide(self, rank: int) -> str:
        """Add integers: an axis, counted from the end or from the beginning."""
        return self.weight(np.array(self.choose([[-1], [rank - 1]])))


@dataclass
class Case:
    """A model, and its inputs."""

    model: onnx.ModelProto
    feeds: Arrays
    rounding: float = 0.0


Row = Callable[[Draft], None]


def drawn(row: Row, choose: Callable[[Sequence[Any]], Any], *, between: bool = True) -> Case:
    """Return the model that a row writes, with choices of declarations and of other readers."""
    draft = Draft(choose)
    with np.errstate(all="ignore"):
        row(draft)
    outputs = draft.outputs or list(draft.nodes[-1].output)
    declared = choose(DECLARED)
    inner = [name for each in draft.nodes for name in each.output if name not in outputs]
    readers = [("", "")]
    if between and inner:
        readers += [("output", name) for name in inner]
        readers += [("captured", inner[0]), ("captured", inner[-1])]
    kind, name = choose(readers)
    if kind == "output":
        outputs = [*outputs, name]
    if kind == "captured":
        draft.nodes.append(_capturing(name))
        draft.weights["yes"] = np.array(True)
        outputs = [*outputs, "captured"]
    return Case(_model(draft, outputs, declared), draft.feeds, draft.rounding)


def _capturing(name: str) -> onnx.NodeProto:
    branches = [
        helper.make_graph([node("Identity", name, made)], made, [], [value(made, 0, None)])
        for made in ("a", "b")
    ]
    return node("If", "yes", "captured", then_branch=branches[0], else_branch=branches[1])


def _model(draft: Draft, outputs: list[str], declared: str) -> onnx.ModelProto:
    inputs = [_declared(name, array, declared) for name, array in draft.feeds.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in draft.weights.items()]
    results = [value(name, 0, None) for name in outputs]
    read = {name for each in draft.nodes for name in each.input}
    kept = [t for t in tensors if t.name in read]
    graph = helper.make_graph(draft.nodes, "test", inputs, results, kept)
    used = {each.domain for each in draft.nodes}
    imports = [helper.make_opsetid("", draft.opset)]
    imports += [helper.make_opsetid(d, v) for d, v in draft.domains.items() if d in used]
    made = helper.make_model(graph, opset_imports=imports, ir_version=10)
    if declared == "nothing":
        return made
    typed = onnx.shape_inference.infer_shapes(made)
    if declared == "others' shapes":
        shapes = [copy.deepcopy(each.type.tensor_type.shape) for each in typed.graph.output]
        for told in reversed(typed.graph.value_info):
            shapes.append(copy.deepcopy(told.type.tensor_type.shape))
            told.type.tensor_type.shape.CopyFrom(shapes[-2])
    elif declared.startswith("other"):
        for told in typed.graph.value_info:
            _lie(told.type.tensor_type.shape, declared)
    return typed


def _declared(name: str, array: Any, declared: str) -> onnx.ValueInfoProto:
    dims: list[Any] = [None] * array.ndim
    if declared in ("sizes", "other sizes", "others' shapes"):
        dims = list(array.shape)
    elif declared == "one symbol":
        dims = ["n"] * array.ndim
    elif declared == "own symbols":
        dims = [f"{name}{axis}" for axis in range(array.ndim)]
    elif declared in ("symbols", "other symbols"):
        # Features are a number, as converters of classical models have them.
        named = [
            size > 1 and axis < max(1, min(2, array.ndim - 1))
            for axis, size in enumerate(array.shape)
        ]
        dims = [f"s{n}" if far else n for n, far in zip(array.shape, named, strict=True)]
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return value(name, kind, dims)


def _lie(shape: Any, declared: str) -> None:
    for dim in shape.dim:
        if declared == "other symbols":
            dim.dim_param = "n"
        elif dim.HasField("dim_value"):
            dim.dim_value += 1
