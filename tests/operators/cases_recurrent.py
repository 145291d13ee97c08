"""RNN, GRU and LSTM against their equations, one item of a batch and one step at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from case import Case
from formula import RNG

LENGTH, BATCH, INPUT, HIDDEN = 5, 3, 4, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def hard(alpha: float, beta: float) -> Callable[[Any], Any]:
    return lambda x: np.clip(alpha * x + beta, 0, 1)


def leaky(alpha: float) -> Callable[[Any], Any]:
    return lambda x: np.where(x < 0, alpha * x, x)


def rnn_step(f: Any) -> Any:
    def step(x: Any, h: Any, c: Any, W: Any, R: Any, b: Any, _: Any) -> tuple[Any, Any]:
        return f(W @ x + R @ h + b[:HIDDEN] + b[HIDDEN:]), c

    return step


def gru_step(f: Any, g: Any, after: bool = False) -> Any:
    def step(x: Any, h: Any, c: Any, W: Any, R: Any, b: Any, _: Any) -> tuple[Any, Any]:
        (wz, wr, wh), (rz, rr, rh), (a, d) = np.split(W, 3), np.split(R, 3), np.split(b, 2)
        (az, ar, ah), (dz, dr, dh) = np.split(a, 3), np.split(d, 3)
        z, r = f(wz @ x + rz @ h + az + dz), f(wr @ x + rr @ h + ar + dr)
        inner = r * (rh @ h + dh) if after else rh @ (r * h) + dh
        return (1 - z) * g(wh @ x + inner + ah) + z * h, c

    return step


def lstm_step(f: Any, g: Any, k: Any, coupled: bool = False) -> Any:
    def step(x: Any, h: Any, c: Any, W: Any, R: Any, b: Any, p: Any) -> tuple[Any, Any]:
        (wi, wo, wf, wc), (ri, ro, rf, rc) = np.split(W, 4), np.split(R, 4)
        bi, bo, bf, bc = np.split(np.add(*np.split(b, 2)), 4)
        pi, po, pf = np.split(p, 3)
        i = f(wi @ x + ri @ h + pi * c + bi)
        forget = 1 - i if coupled else f(wf @ x + rf @ h + pf * c + bf)
        c = forget * c + i * g(wc @ x + rc @ h + bc)
        return f(wo @ x + ro @ h + po * c + bo) * k(c), c

    return step


def unroll(steps: list[Any], lstm: bool, backwards: list[bool], layout: int, *inputs: Any) -> Any:
    X, W, R, B, lengths, h0, c0, P = [*inputs, *[None] * (8 - len(inputs))]
    dtype = X.dtype
    X, W, R = (v.astype(float) for v in (X, W, R))
    B = np.zeros((len(W), 2 * W.shape[1])) if B is None else B.astype(float)
    P = np.zeros((len(W), 3 * HIDDEN)) if P is None else P.astype(float)
    if layout:
        X, h0 = X.swapaxes(0, 1), None if h0 is None else h0.swapaxes(0, 1)
        c0 = None if c0 is None else c0.swapaxes(0, 1)
    zeros = np.zeros((len(W), BATCH, HIDDEN))
    Y, Y_h = np.zeros((LENGTH, *zeros.shape)), zeros.copy()
    Y_c = zeros.copy()
    for d, item in np.ndindex(len(W), BATCH):
        h, c = ((zeros if s is None else s.astype(float))[d, item] for s in (h0, c0))
        times = list(range(LENGTH if lengths is None else lengths[item]))
        for t in reversed(times) if backwards[d] else times:
            h, c = steps[d](X[t, item], h, c, W[d], R[d], B[d], P[d])
            Y[t, d, item] = h
        Y_h[d, item], Y_c[d, item] = h, c
    if layout:
        Y, Y_h, Y_c = Y.transpose(2, 0, 1, 3), Y_h.swapaxes(0, 1), Y_c.swapaxes(0, 1)
    return tuple(y.astype(dtype) for y in (Y, Y_h, Y_c)[: 2 + lstm])


def oracle(*steps: Any, lstm: bool = False, reverse: bool = False, layout: int = 0) -> Any:
    backwards = [reverse, True]
    return lambda *inputs: unroll(list(steps), lstm, backwards, layout, *inputs)


def inputs(op: str, directions: int = 1, parts: str = "B", layout: int = 0) -> list[Any]:
    rows = GATES[op] * HIDDEN
    shapes = {
        "B": (directions, 2 * rows),
        "h": (directions, BATCH, HIDDEN),
        "c": (directions, BATCH, HIDDEN),
        "P": (directions, 3 * HIDDEN),
    }
    given = [(LENGTH, BATCH, INPUT), (directions, rows, INPUT), (directions, rows, HIDDEN)]
    arrays: list[Any] = [RNG.standard_normal(shape).astype(np.float32) for shape in given]
    for name in "BshcP":
        if name == "s":
            arrays.append(np.int32([LENGTH, 1, 3]) if "s" in parts else None)
        else:
            part = RNG.standard_normal(shapes[name]).astype(np.float32)
            arrays.append(part if name in parts else None)
    if layout:
        for i in (0, 5, 6):
            arrays[i] = None if arrays[i] is None else arrays[i].swapaxes(0, 1)
    while arrays[-1] is None:
        arrays.pop()
    return arrays


def clipped(f: Any) -> Any:
    return lambda x: f(np.clip(x, -0.3, 0.3))


RNN, GRU = rnn_step(np.tanh), gru_step(sigmoid, np.tanh)
GRU_AFTER = gru_step(sigmoid, np.tanh, after=True)
LSTM = lstm_step(sigmoid, np.tanh, np.tanh)
COUPLED = lstm_step(clipped(sigmoid), clipped(np.tanh), clipped(np.tanh), coupled=True)
BOTH = {"direction": "bidirectional"}
BATCHWISE = {"layout": 1, "hidden_size": HIDDEN}

CASES = [
    Case("RNN", 1, inputs("RNN"), oracle(RNN), {"output_sequence": 1}),
    Case("RNN", 7, inputs("RNN", 1, "sh"), oracle(RNN, reverse=True), {"direction": "reverse"}),
    Case(
        "RNN",
        14,
        inputs("RNN", 2, "Bh", layout=1),
        oracle(rnn_step(leaky(0.1)), rnn_step(hard(0.3, 0.5)), layout=1),
        BOTH
        | BATCHWISE
        | {"activations": ("LeakyRelu", "HardSigmoid"), "activation_alpha": (0.1, 0.3)},
    ),
    Case(
        "RNN",
        22,
        inputs("RNN"),
        oracle(rnn_step(clipped(lambda x: 2 * np.tanh(0.5 * x)))),
        {
            "clip": 0.3,
            "activations": ("scaledtanh",),
            "activation_alpha": (2.0,),
            "activation_beta": (0.5,),
        },
        name="clip",
    ),
    Case("GRU", 1, inputs("GRU"), oracle(GRU), {"output_sequence": 1}),
    Case("GRU", 3, inputs("GRU", 2), oracle(GRU, GRU), BOTH),
    Case(
        "GRU",
        7,
        inputs("GRU", 2, "Bsh"),
        oracle(GRU_AFTER, GRU_AFTER),
        BOTH | {"linear_before_reset": 1},
    ),
    Case("GRU", 14, inputs("GRU", 1, "sh", layout=1), oracle(GRU, layout=1), BATCHWISE),
    Case(
        "GRU",
        22,
        inputs("GRU", 2, ""),
        oracle(gru_step(hard(0.2, 0.5), np.tanh), gru_step(sigmoid, lambda x: np.maximum(x, 0))),
        BOTH | {"activations": ("HardSigmoid", "Tanh", "Sigmoid", "Relu")},
        name="activations",
    ),
    Case("LSTM", 1, inputs("LSTM"), oracle(LSTM, lstm=True)),
    Case("LSTM", 7, inputs("LSTM", 2, "BshcP"), oracle(LSTM, LSTM, lstm=True), BOTH),
    Case(
        "LSTM",
        14,
        inputs("LSTM", 1, "Bshc", layout=1),
        oracle(LSTM, lstm=True, reverse=True, layout=1),
        BATCHWISE | {"direction": "reverse"},
    ),
    Case(
        "LSTM",
        22,
        inputs("LSTM", 1, "BcP"),
        oracle(COUPLED, lstm=True),
        {"clip": 0.3, "input_forget": 1},
        name="coupled",
    ),
    Case(
        "LSTM",
        22,
        [x.astype(ml_dtypes.bfloat16) for x in inputs("LSTM")],
        oracle(LSTM, lstm=True),
        rtol=2**-7,
        name="bfloat16",
    ),
    Case(
        "LSTM",
        22,
        [np.zeros((0, 1, INPUT)), np.ones((1, 8, INPUT)), np.ones((1, 8, 2)), None, None],
        (np.zeros((0, 1, 1, 2)), np.zeros((1, 1, 2)), np.zeros((1, 1, 2))),
        name="no-steps",
    ),
] + [
    Case("RNN", 22, inputs("RNN"), oracle(rnn_step(f)), {"activations": (name,)}, name=name)
    for name, f in {
        "Affine": lambda x: x,
        "Elu": lambda x: np.where(x < 0, np.expm1(x), x),
        "ScaledTanh": np.tanh,
        "Sigmoid": sigmoid,
        "Softplus": lambda x: np.log1p(np.exp(x)),
        "Softsign": lambda x: x / (1 + np.abs(x)),
        "ThresholdedRelu": lambda x: np.where(x >= 1, x, 0),
    }.items()
]
