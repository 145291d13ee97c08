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
    body = Builder()
    x = body("Tanh", body("Add", "state", body.small(4)))
    body("Identity", body("Mul", x, body.small(4)), out="next")
    body("Identity", "going", out="goes_on")
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        body.nodes,
        "body",
        [
            value("turn", TensorProto.INT64, []),
            value("going", TensorProto.BOOL, []),
            value("state", TensorProto.FLOAT, [4]),
        ],
        [value("goes_on", TensorProto.BOOL, []), value("next", TensorProto.FLOAT, [4])],
        body.weights,
    )
    b = Builder()
    most, going = b.weight(np.array(turns, np.int64)), b.weight(np.array(True))
    b("Loop", most, going, "x", out="y", body=graph)
    proto = b.model({"x": (FLOAT, [4])}, {"y": (FLOAT, [4])})
    return proto, {"x": np.array([-1, 0, 1, 2], np.float32)}


ROWS = {
    "lstm-both-ways": Row("LSTM of 128, both ways, 8 x 100", lstm, lambda: lstm(5, 16)),
    "gru-both-ways": Row("GRU of 128, both ways, 8 x 100", gru, lambda: gru(5, 16)),
    "lstm": CPU["lstm"],
    "gru": Row("GRU 2 x 256, 100 steps", gru_layers, lambda: gru_layers(5, 1, 16)),
    "loop": Row("Loop of 4 tiny nodes, 200 turns", loop, lambda: loop(3)),
}
