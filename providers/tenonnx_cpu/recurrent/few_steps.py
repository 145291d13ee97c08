"""LSTMs of a few steps, whose weights of bytes are read as they are stored.

A step of one item reads every weight once: its time is that of reading them, and floats are four
times as many bytes. Products are the quantized matrices' kernels, and numpy computes the gates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import MAX_GEMV_ROWS, matmul_q, request

# Bytes of both matrices from which on floats are in no core's second-level cache.
MIN_WEIGHT_BYTES = 1 << 20


@cacheable
@dataclass(frozen=True, eq=False)
class FewSteps:
    """An LSTM's weights for runs whose steps times items are ``MAX_GEMV_ROWS`` at most.

    Attributes:
        w: The inputs' weights by direction, ``(inputs, 4 * hidden)``.
        r: The recurrent weights by direction, ``(hidden, 4 * hidden)``.
        reverse: Whether the first direction runs backwards.
        threads: How many a product may use.
    """

    w: tuple[Quantized, ...]
    r: tuple[Quantized, ...]
    reverse: bool
    threads: int

    def run(
        self, x: NDArray, b: NDArray | None, h: NDArray | None, c: NDArray | None
    ) -> tuple[NDArray, NDArray, NDArray] | None:
        """Return all hidden states, the last ones and the last cells; ``None`` if others must.

        Args:
            x: ``(steps, items, inputs)``.
            b: Biases, ``(directions, 8 * hidden)``.
            h: The first hidden states, ``(directions, items, hidden)``; zeros if ``None``.
            c: The first cells, likewise.
        """
        steps, items, inputs = x.shape
        ways, n = len(self.w), self.r[0].depth
        shape = ways, items, n
        if not 0 < steps * items <= MAX_GEMV_ROWS or inputs != self.w[0].depth or x.dtype != F32:
            return None
        for array, wanted in ((b, (ways, 8 * n)), (h, shape), (c, shape)):
            if array is not None and (array.shape != wanted or array.dtype != F32):
                return None
        y = np.empty((steps, ways, items, n), F32)
        last, cells = (np.zeros(shape, F32) if a is None else a.copy() for a in (h, c))
        for way in range(ways):
            gates = self._times(x.reshape(-1, inputs), self.w[way])
            if gates is None:
                return None
            if b is not None:
                gates += b[way, : 4 * n] + b[way, 4 * n :]
            backwards = self.reverse != (way == 1)
            for step in range(steps)[:: -1 if backwards else 1]:
                added = self._times(last[way], self.r[way])
                if added is None:
                    return None
                added += gates[step * items : (step + 1) * items]
                _take_step(added, cells[way], last[way])
                y[step, way] = last[way]
        return y, last, cells

    def _times(self, x: NDArray, matrix: Quantized) -> Any:
        """Return a product; ``None`` if its kernel is not ready."""
        made = matmul_q(x, matrix, self.threads, activations="float32")
        return None if made is None else done(made, ())


def _take_step(gates: NDArray, cell: NDArray, hidden: NDArray) -> None:
    """Write the next cells and hidden states of sums for the gates i, o, f and c."""
    n = cell.shape[-1]
    opened = gates[:, : 3 * n]
    opened *= F32.type(0.5)  # 1 / (1 + exp(-x)) = (1 + tanh(x / 2)) / 2
    np.tanh(gates, gates)
    opened += F32.type(1)
    opened *= F32.type(0.5)
    i, o, f, new = (gates[:, k * n : (k + 1) * n] for k in range(4))
    cell *= f
    cell += i * new
    np.multiply(o, np.tanh(cell), hidden)


def few_steps(
    constants: Sequence[Sequence[Any]], hidden: int | None, reverse: int, threads: int
) -> FewSteps | None:
    """Return what runs few steps, if the weights are large, and the kernels read such matrices.

    Args:
        constants: Weights, scales and zero points of the inputs and of the states; weights are
            ``(directions, depth, 4 * hidden)``.
        hidden: What the node says; ``None`` if nothing.
        reverse: Whether the first direction runs backwards.
        threads: How many a product may use.
    """
    (w8, *_), (r8, *_) = constants
    if w8.nbytes + r8.nbytes < MIN_WEIGHT_BYTES * len(w8) or hidden not in (None, r8.shape[1]):
        return None
    if w8.shape[2] != 4 * r8.shape[1] or r8.shape[2] != w8.shape[2]:
        return None
    try:
        w, r = ([_matrix(values, way) for way in range(len(w8))] for values in constants)
    except ValueError:  # scales or zero points of other shapes
        return None
    for each in (*w, *r):
        request(each, "float32")
    return FewSteps(tuple(w), tuple(r), bool(reverse), threads)


def _matrix(constants: Sequence[Any], way: int) -> Quantized:
    """Return one direction's matrix of weights, scales and zero points.

    Raises:
        ValueError: They do not fit together.
    """
    weights, scale, zero = constants
    depth, width = weights.shape[1:]
    codes = np.ascontiguousarray(weights)[way].reshape(-1).view(np.uint8)
    scales, zeros = (each.reshape(len(weights), -1)[way] for each in (scale, zero))
    signed = weights.dtype == np.int8
    if zeros.dtype != weights.dtype or scales.dtype != F32:
        raise ValueError("zero points are of the weights' type, and scales are float32")
    spread = functools.partial(np.broadcast_to, shape=(1, width))
    alike = bool((zeros == zeros[0]).all())
    own = None if alike else np.ascontiguousarray(spread(zeros)).view(np.uint8)
    return Quantized(
        codes, np.ascontiguousarray(spread(scales)), own, 8, depth, width, depth,
        by_column=False, signed=signed, zero=int(zeros[0]) if alike else 0,
    )  # fmt: skip
