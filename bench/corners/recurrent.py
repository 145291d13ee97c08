"""Recurrent layers in both directions, and loops."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from bench.builder import FLOAT, Builder
from bench.cpu.table import ROWS as CPU
from bench.cpu.table import Row
from bench.models import Built, gru, gru_layers, lstm


def loop(turns: int = 200) -> Built:
    """A Loop of four nodes over four elements."""
    b = Builder()
    body = Builder(prefix="body_")
    x = body("Tanh", body("Add", "state", body.small(4)))
    body("Identity", body("Mul", x, body.small(4)), out="next")
    _loop(b, body, turns, "y")
    return b.model({"x": (FLOAT, [4])}, {"y": (FLOAT, [4])}), {"x": np.ones(4, np.float32)}


def loop_over_rows(turns: int = 200, width: int = 16) -> Built:
    """A Loop that is a recurrent layer: it takes a row by the turn's number, and gathers states."""
    b = Builder()
    body = Builder(prefix="body_")
    row = body("Unsqueeze", body("Gather", "rows", "turn", axis=0), body.ints(0))
    body("Tanh", body("Add", row, body("MatMul", "state", body.normal(width, width))), out="next")
    body("Squeeze", "next", body.ints(0), out="told")
    _loop(b, body, turns, "last", "y")
    shape, states = (FLOAT, [1, width]), (FLOAT, [turns, width])
    proto = b.model({"x": shape, "rows": states}, {"last": shape, "y": states})
    random = np.random.default_rng(1)
    rows = random.standard_normal((turns, width), dtype=np.float32)
    return proto, {"x": np.zeros((1, width), np.float32), "rows": rows}


def _loop(b: Builder, body: Builder, turns: int, *outputs: str) -> None:
    """Add a Loop of x to ``next`` of its body, and of what else that tells in every turn."""
    body("Identity", "going", out="goes_on")
    value = helper.make_tensor_value_info
    told = ["next", "told"][: len(outputs)]
    graph = helper.make_graph(
        body.nodes,
        "body",
        [
            value("turn", TensorProto.INT64, []),
            value("going", TensorProto.BOOL, []),
            value("state", TensorProto.FLOAT, None),
        ],
        [
            value("goes_on", TensorProto.BOOL, []),
            *(value(name, TensorProto.FLOAT, None) for name in told),
        ],
        body.weights,
    )
    most, going = b.weight(np.array(turns, np.int64)), b.weight(np.array(True))
    b.many("Loop", most, going, "x", outputs=outputs, body=graph)


ROWS = {
    "lstm-both-ways": Row("LSTM of 128, both ways, 8 x 100", lstm, lambda: lstm(5, 16)),
    "gru-both-ways": Row("GRU of 128, both ways, 8 x 100", gru, lambda: gru(5, 16)),
    "lstm": CPU["lstm"],
    "gru": Row("GRU 2 x 256, 100 steps", gru_layers, lambda: gru_layers(5, 1, 16)),
    "loop": Row("Loop of 4 tiny nodes, 200 turns", loop, lambda: loop(3)),
    "loop-rows": Row("Loop over 200 rows of 16", loop_over_rows, lambda: loop_over_rows(3, 4)),
}
