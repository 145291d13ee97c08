"""A mixture of experts of codes as one launch: which experts, their layers, and their sum."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tenonnx_array.experts import Activation
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import NDArray
from tenonnx_cpu.matmul.product import NO_BIAS
from tenonnx_cpu.quantized.kernels import BESIDE, INTERLEAVED
from tenonnx_cpu.quantized.matrix import Quantized

MIXTURE = {bits: JitKernel("quantized.mixture", f"q_mixture_{bits}") for bits in (4, 8)}

# Rows that an expert gets on average at most: for more, codes are packed.
MAX_ROWS_PER_EXPERT = 12

ACTIVATION_OPCODES = {
    "identity": opcodes.NONE,
    "relu": opcodes.RELU,
    "gelu": opcodes.GELU_TANH,
    "silu": opcodes.SILU,
}
GATE_LAYOUTS = {1: INTERLEAVED, 2: BESIDE}


class ExpertLayer(NamedTuple):
    """A layer of every expert: their matrices side by side as one, and their biases."""

    matrix: Quantized
    biases: NDArray | None

    @property
    def bias(self) -> NDArray:
        """All biases one after the other; none if there are none."""
        return NO_BIAS if self.biases is None else self.biases.reshape(-1)


class Mixture(NamedTuple):
    """Two layers of every expert, and what is between and around them.

    Attributes:
        first: The layer that reads rows.
        second: The layer that reads what is made of its results.
        experts: How many there are.
        chosen: How many a row goes through.
        normalize: Whether their shares are of one another, and not of all experts.
        kind: The activation between the layers, for the kernel.
        numbers: Its parameters.
    """

    first: ExpertLayer
    second: ExpertLayer
    experts: int
    chosen: int
    normalize: bool
    kind: int
    numbers: tuple[float, float, float, int]

    def launch(self, x: NDArray, scores: NDArray, threads: int) -> Launch | None:
        """Return what computes it for rows and scores of experts, if the kernel takes them."""
        one, two = self.first.matrix, self.second.matrix
        run = MIXTURE[one.bits].run
        rows = math.prod(x.shape[:-1])
        if run is None or x.dtype != F32 or scores.dtype != F32 or not x.size:
            return None
        if x.shape[-1] != one.depth or scores.shape != (rows, self.experts):
            return None
        if rows * self.chosen > MAX_ROWS_PER_EXPERT * self.experts:
            return None
        y = empty(x.shape)
        arguments = (
            contiguous(x).reshape(rows, -1), contiguous(scores), int(self.normalize),
            *one.arguments, self.first.bias, *two.arguments, self.second.bias, self.kind,
            *self.numbers, y.reshape(rows, -1), *self._room(rows, threads), threads,
        )  # fmt: skip
        return Launch(run, arguments, y)

    def _room(self, rows: int, threads: int) -> tuple[NDArray, ...]:
        one, two = self.first.matrix, self.second.matrix
        places = rows * self.chosen
        padded = places + 3
        return pieces(
            ((rows, self.chosen), np.float32), ((rows, self.chosen), np.int64),
            ((places,), np.int64), ((places, 3), np.int64), ((padded, one.depth), np.float32),
            ((padded, one.sums), np.float32), ((places, one.columns // self.experts), np.float32),
            ((padded, two.depth), np.float32), ((padded, two.sums), np.float32),
            ((places, two.columns // self.experts), np.float32), ((threads, 32), np.float32),
        )  # fmt: skip


def joined(
    layers: tuple[ExpertLayer, ExpertLayer],
    experts: int,
    chosen: int,
    *,
    normalize: bool,
    between: Activation,
) -> Mixture | None:
    """Return a mixture that the kernel computes, and have it compiled; ``None`` if it cannot.

    Args:
        layers: The first and the second.
        experts: How many there are.
        chosen: How many a row goes through.
        normalize: Whether their shares are of one another.
        between: The activation between the layers.
    """
    one, two = layers[0].matrix, layers[1].matrix
    is_gated = between.kind == "swiglu"
    kind = GATE_LAYOUTS.get(between.fusion) if is_gated else ACTIVATION_OPCODES.get(between.kind)
    if kind is None or one.bits not in MIXTURE or one.bits != two.bits:
        return None
    hidden = one.columns // experts
    if hidden != (2 if is_gated else 1) * two.depth or two.columns != experts * one.depth:
        return None
    if not 0 < chosen <= experts or not (one.fits_reals and two.fits_reals):
        return None
    limit = math.inf if between.limit is None else between.limit
    MIXTURE[one.bits].request()
    numbers = between.alpha, between.beta, limit, int(between.after)
    return Mixture(*layers, experts, chosen, normalize, kind, numbers)
