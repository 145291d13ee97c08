"""Models whose tail is moved into the body of an If, Loop or Scan: what is computed stays the same.

Rewrites follow values from their makers to their readers, and across the border of a body they must
not follow them as within a graph.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.corpus import Feeds

KINDS = ("If", "Loop", "Loop of states", "Scan", "Scan of a value")

MARK = "moved"
"""The beginning of names that models get for it."""

FIRST_OPSET = {"If": 11, "Loop": 11, "Scan": 11}
"""Bodies of older versions have other rules for the shapes of what they read."""


def tail_moved(
    model: onnx.ModelProto, feeds: Feeds, draw: random.Random, kind: str | None = None
) -> tuple[onnx.ModelProto, Feeds, str] | None:
    """Return a model with its last nodes in a body, its feeds, and which kind of body it is.

    ``None`` if its outputs cannot leave such a body: they are no tensors, or its opset is too old.
    """
    kind = kind or draw.choice(KINDS)
    operator = kind.split()[0]
    opset = max((each.version for each in model.opset_import if not each.domain), default=0)
    graph = model.graph
    if not graph.node or opset < FIRST_OPSET[operator] or not _leaves(model, operator):
        return None
    made = onnx.ModelProto()
    made.CopyFrom(model)
    first = draw.randrange(len(graph.node))
    moving = _Moving(made, first, draw)
    if not moving.outputs:
        return None
    extra: Feeds = {}
    match kind:
        case "If":
            extra[f"{MARK}_which"] = np.array(draw.random() < 0.5)
            moving.into_if()
        case "Loop" | "Loop of states":
            moving.into_loop(states=kind != "Loop")
        case _:
            moving.into_scan(of_value=kind != "Scan", opset=opset)
    return made, {**feeds, **extra}, kind


def _leaves(model: onnx.ModelProto, operator: str) -> bool:
    """Return whether a body may give back all that a model does."""
    outputs = model.graph.output
    if any(not output.HasField("type") for output in outputs):
        return False
    tensors = all(
        output.type.HasField("tensor_type") and output.type.tensor_type.elem_type
        for output in outputs
    )
    return tensors or operator == "If"


class _Moving:
    """Moves the nodes of a model from some on into a body.

    Attributes:
        nodes: Those that are moved.
        outputs: What they make of the model's outputs.
    """

    def __init__(self, model: onnx.ModelProto, first: int, draw: random.Random) -> None:
        self.graph, self.draw = model.graph, draw
        self.nodes = [_copy(node) for node in self.graph.node[first:]]
        del self.graph.node[first:]
        makes = {name for node in self.nodes for name in node.output if name}
        known = {value.name: value for value in self.graph.output}
        self.outputs = [value for name, value in known.items() if name in makes]
        self.weights = [
            weight for weight in self.graph.initializer if draw.random() < 0.3
            and weight.name not in {value.name for value in self.graph.input}
            and weight.name not in known
            and not any(weight.name in read_by(node) for node in self.graph.node)
        ]  # fmt: skip
        kept = [value for value in self.graph.value_info if value.name not in makes]
        del self.graph.value_info[:]
        self.graph.value_info.extend(kept)

    def body(
        self, ending: str, inputs: Sequence[onnx.ValueInfoProto], renamed: dict[str, str],
        before: Sequence[onnx.NodeProto] = (), results: Sequence[onnx.ValueInfoProto] = (),
        *, holds_weights: bool = False,
    ) -> onnx.GraphProto:  # fmt: skip
        """Return a body of the nodes, in which all that they make has another name."""
        names = {
            name: f"{name}/{MARK}{ending}" for node in self.nodes for name in node.output if name
        }
        nodes = [_copy(node) for node in self.nodes]
        for node in nodes:
            _rename(node, {**renamed, **names})
            if node.name:
                node.name += ending
        outputs = []
        for value in self.outputs:
            inner = onnx.ValueInfoProto()
            inner.CopyFrom(value)
            inner.name = names[value.name]
            outputs.append(inner)
        weights = self.weights if holds_weights else ()
        return helper.make_graph(
            [*before, *nodes], f"{MARK}{ending}", inputs, [*results, *outputs], weights
        )

    def into_if(self) -> None:
        """Put them into both branches of an If, whose condition is fed."""
        which = f"{MARK}_which"
        self.graph.input.append(helper.make_tensor_value_info(which, onnx.TensorProto.BOOL, []))
        branches = {
            "then_branch": self.body("_then", [], {}),
            "else_branch": self.body("_else", [], {}),
        }
        self.graph.node.append(
            helper.make_node("If", [which], [value.name for value in self.outputs], **branches)
        )

    def into_loop(self, *, states: bool) -> None:
        """Put them into the body of a Loop of one turn; what they read may be states of it."""
        boolean, integer = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
        inputs = [
            helper.make_tensor_value_info(f"{MARK}_turn", integer, []),
            helper.make_tensor_value_info(f"{MARK}_going", boolean, []),
        ]
        results = [helper.make_tensor_value_info(f"{MARK}_on", boolean, [])]
        before = [helper.make_node("Identity", [f"{MARK}_going"], [f"{MARK}_on"])]
        given, renamed = [], {}
        for value in self._entering() if states else ():
            inside = _named(value, f"{value.name}/{MARK}_state")
            inputs.append(inside)
            results.append(_named(value, f"{value.name}/{MARK}_result"))
            before.append(helper.make_node("Identity", [inside.name], [results[-1].name]))
            given.append(value.name)
            renamed[value.name] = inside.name
        self._weight("turns", np.array(1))
        body = self.body("_loop", inputs, renamed, before, results, holds_weights=True)
        self._drop_weights()
        left = [f"{name}/{MARK}_left" for name in given]
        rows = self._rows()
        self.graph.node.append(
            helper.make_node("Loop", [f"{MARK}_turns", "", *given], [*left, *rows], body=body)
        )
        self._take_rows(rows)

    def into_scan(self, *, of_value: bool, opset: int) -> None:
        """Put them into the body of a Scan of one turn, over one of what they read or nothing."""
        entering = self._entering()
        renamed = {}
        if of_value and entering:
            value = self.draw.choice(entering)
            row, table = f"{value.name}/{MARK}_row", f"{value.name}/{MARK}_table"
            self._unsqueeze(value.name, table, opset)
            inside, renamed[value.name] = _named(value, row), row
        else:
            table = f"{MARK}_table"
            self._weight("table", np.zeros(1, np.float32))
            inside = helper.make_tensor_value_info(f"{MARK}_row", onnx.TensorProto.FLOAT, [])
        body = self.body("_scan", [inside], renamed, holds_weights=True)
        self._drop_weights()
        rows = self._rows()
        self.graph.node.append(
            helper.make_node("Scan", [table], rows, body=body, num_scan_inputs=1)
        )
        self._take_rows(rows)

    def _entering(self) -> list[onnx.ValueInfoProto]:
        """Return the fed tensors of known type that the nodes read."""
        weights = {weight.name for weight in self.graph.initializer}
        read = {name for node in self.nodes for name in read_by(node)}
        made = {name for node in self.nodes for name in node.output}
        return [
            value
            for value in (*self.graph.input, *self.graph.value_info)
            if value.name in read - made - weights
            and value.type.HasField("tensor_type")
            and value.type.tensor_type.elem_type
        ]

    def _rows(self) -> list[str]:
        return [f"{value.name}/{MARK}_rows" for value in self.outputs]

    def _take_rows(self, rows: Sequence[str]) -> None:
        """Take the outputs of the one turn."""
        self._weight("zero", np.array(0))
        for value, name in zip(self.outputs, rows, strict=True):
            taken = helper.make_node("Gather", [name, f"{MARK}_zero"], [value.name], axis=0)
            self.graph.node.append(taken)

    def _unsqueeze(self, name: str, result: str, opset: int) -> None:
        if opset < 13:
            made = helper.make_node("Unsqueeze", [name], [result], axes=[0])
        else:
            self._weight("axes", np.array([0]))
            made = helper.make_node("Unsqueeze", [name, f"{MARK}_axes"], [result])
        self.graph.node.append(made)

    def _weight(self, name: str, array: np.ndarray) -> None:  # type: ignore[type-arg] # of any dtype
        self.graph.initializer.append(numpy_helper.from_array(array, f"{MARK}_{name}"))

    def _drop_weights(self) -> None:
        names = {weight.name for weight in self.weights}
        kept = [weight for weight in self.graph.initializer if weight.name not in names]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node and the bodies in it read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            for inner in graph.node:
                yield from read_by(inner)
            yield from (value.name for value in graph.output)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _named(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    copy = onnx.ValueInfoProto()
    copy.CopyFrom(value)
    copy.name = name
    return copy


def _rename(node: onnx.NodeProto, names: dict[str, str]) -> None:
    """Give what a node and the bodies in it read and make other names."""
    for some in (node.input, node.output):
        some[:] = [names.get(name, name) for name in some]
    for attribute in node.attribute:
        for graph in (*((attribute.g,) if attribute.HasField("g") else ()), *attribute.graphs):
            own = {value.name for value in (*graph.input, *graph.initializer)}
            left = {name: new for name, new in names.items() if name not in own}
            for inner in graph.node:
                _rename(inner, left)
            for value in (*graph.output, *graph.value_info):
                value.name = left.get(value.name, value.name)
