"""LSTM and GRU with their usual activations, in one kernel after the product with the input."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import aligned, scratch
from tenonnx_cpu.products.product import product, request
from tenonnx_cpu.specialise import Call, Site, specialise

NDArray: TypeAlias = np.ndarray[Any, Any]

RUN = JitKernel("recurrent", "run_steps")
LSTM, GRU, GRU_RESET_AFTER = 0, 1, 2

BACKWARDS = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
USUAL = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
COLUMNS = 64
"""Columns of a packed panel at most; what is reserved is rounded up to them."""

LEAST = 32
"""Hidden units that a thread takes at least; every number of them is a multiple, but the last."""

ENOUGH = 1 << 16
"""Products of a step that are worth a second thread."""


@specialise("LSTM", "GRU")
def specialise_recurrent(site: Site, plain: Call) -> Call | None:
    """Takes float32 without clipping, peepholes, coupled gates or lengths of sequences."""
    operator = site.node.op_type
    direction = site.attribute("direction", "forward")
    if direction not in BACKWARDS or site.attribute("clip", None) is not None:
        return None
    backwards = np.array(BACKWARDS[direction], np.intp)
    usual = USUAL[operator]
    named = list(site.attribute("activations", ())) or usual * len(backwards)
    if [name.lower() for name in named] != [name.lower() for name in usual * len(backwards)]:
        return None
    if site.attribute("input_forget", 0):
        return None
    after = site.attribute("linear_before_reset", 0)
    kind = LSTM if operator == "LSTM" else GRU_RESET_AFTER if after else GRU
    layer = _Layer(kind, backwards, site.attribute("layout", 0), site.threads)

    def call(*arguments: Any) -> Any:
        given = [*arguments, *[None] * (8 - len(arguments))]
        x, w, r, b, lengths, h, c, p = given
        results = None if lengths is not None or p is not None else layer.run(x, w, r, b, h, c)
        return plain(*arguments) if results is None else results

    return call


class _Layer:
    """A recurrent layer of one kind."""

    def __init__(self, kind: int, backwards: NDArray, layout: int, threads: int) -> None:
        self._kind = kind
        self._gates = 4 if kind == LSTM else 3
        self._backwards = backwards
        self._layout = layout
        self._threads = threads
        request("f32")
        RUN.request()

    def run(self, x: Any, w: Any, r: Any, b: Any, h: Any, c: Any) -> tuple[NDArray, ...] | None:
        """Returns the operator's outputs, or ``None`` where numpy must compute them."""
        given = [array for array in (x, w, r, b, h, c) if array is not None]
        if RUN.run is None or any(array.dtype != F32 or not array.size for array in given):
            return None
        x = x.swapaxes(0, 1) if self._layout else x
        (steps, batch, _), (ways, width, n) = x.shape, r.shape
        shape = (batch, ways, n) if self._layout else (ways, batch, n)
        if any(state is not None and state.shape != shape for state in (h, c)):
            return None
        if width != self._gates * n or ways != len(self._backwards) or w.shape[:2] != (ways, width):
            return None
        gates = self._project(x, w, b, n)
        if gates is None:
            return None
        hidden, cell = self._state(h, ways, batch, n), self._state(c, ways, batch, n)
        inner = np.zeros((ways, n), np.float32)
        if self._kind == GRU_RESET_AFTER and b is not None:
            inner = np.ascontiguousarray(b[:, width + 2 * n :])
        y = empty((steps, ways, batch, n))
        team = self._threads if batch * width * n * ways >= ENOUGH else 1
        parts = max(1, min(team // ways, n // LEAST))
        units = -(-n // (parts * LEAST)) * LEAST if parts > 1 else n
        parts = -(-n // units)
        packed = empty((ways, parts, n * (-(-units // COLUMNS) * self._gates + 1) * COLUMNS))
        share = 1024 + batch * (4 * units + 16)
        reset = separate(ways, batch, n if self._kind == GRU else 0)
        RUN.run(
            self._kind, gates, contiguous(r), inner, hidden, cell, y, reset, self._backwards,
            units, packed, scratch(4 * share * team).view(F32), share, team,
        )  # fmt: skip
        states = (hidden,) if self._kind != LSTM else (hidden, cell)
        if self._layout:
            return y.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in states)
        return y, *states

    def _project(self, x: Any, w: Any, b: Any, n: int) -> NDArray | None:
        """Returns what the inputs add to the gates, ``(steps, batch, ways, gates * n)``."""
        ways, width = w.shape[:2]
        bias = None
        if b is not None:
            # What the reset gate scales is added later.
            recurrent = b[:, width:]
            if self._kind == GRU_RESET_AFTER:
                recurrent = np.concatenate([recurrent[:, : 2 * n], np.zeros_like(b[:, :n])], 1)
            bias = (b[:, :width] + recurrent).reshape(-1)
        rows = contiguous(x).reshape(-1, x.shape[2])
        sums = product(rows, w.reshape(ways * width, -1).T, self._threads, bias)
        return None if sums is None else sums.reshape(*x.shape[:2], ways, width)

    def _state(self, given: Any, ways: int, batch: int, n: int) -> NDArray:
        state = separate(ways, batch, n)
        state[:] = 0 if given is None else given.swapaxes(0, 1) if self._layout else given
        return state


def separate(*shape: int) -> NDArray:
    """Returns memory whose cache lines no other array shares: threads write to it in turn."""
    count = math.prod(shape)
    return aligned(4 * count).view(F32)[:count].reshape(shape)
