"""The common part of RNN, GRU and LSTM: the loop over time.

All time steps are projected by the input weights in one product before the loop, and both
directions advance in the same step, on a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tenonnx.operators import Array, Namespace
from tenonnx.process import interruption
from tenonnx_array.dtypes import accumulator
from tenonnx_array.linalg import product

# The hidden state, and the LSTM's cell, of shape (directions, batch, hidden size).
States: TypeAlias = tuple[Array, ...]

# From a time step's projected input and the states before it to the states after it.
Step: TypeAlias = Callable[[Array, States], States]

# Whether time runs backwards, per direction.
BACKWARDS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _check_lengths(lengths: Array | None, steps: int, batch: int) -> None:
    """Raise ValueError for lengths that do not fit; those that are being traced have no values."""
    if lengths is None:
        return
    if lengths.shape != (batch,):
        raise ValueError(f"expected sequence_lens of shape ({batch},), found {lengths.shape}")
    if isinstance(lengths, np.ndarray) and batch:
        least, most = int(lengths.min()), int(lengths.max())
        if least < 0 or most > steps:
            raise ValueError(f"sequence_lens must be in [0, {steps}], found {least} to {most}")


class Recurrence:
    """The weights of a recurrent operator in the type to compute in, and the loop over time.

    Args:
        xp: The array namespace.
        X: Input of shape (time, batch, features), or (batch, time, features) in layout 1.
        W: Input weights of shape (directions, gates * hidden size, features).
        R: Recurrent weights of shape (directions, gates * hidden size, hidden size).
        B: Biases of shape (directions, 2 * gates * hidden size): the input's, the recurrent ones.
        lengths: How many time steps every item of the batch has; None for all.
        direction: A key of ``BACKWARDS``.
        hidden_size: The node's attribute.
        layout: 1 for inputs and outputs with the batch first.

    Raises:
        ValueError: An unknown direction, or weights that contradict it or the hidden size;
            lengths that are not one for every item, or of more steps than there are.
    """

    def __init__(
        self,
        xp: Namespace,
        X: Array,
        W: Array,
        R: Array,
        B: Array | None,
        lengths: Array | None,
        direction: str,
        hidden_size: int | None,
        layout: int,
    ) -> None:
        if direction not in BACKWARDS:
            raise ValueError(f"expected a direction of {', '.join(BACKWARDS)}, found {direction!r}")
        self.backwards = BACKWARDS[direction]
        self.directions = len(self.backwards)
        self.hidden_size = R.shape[-1]
        if len(R) != self.directions or hidden_size not in (None, self.hidden_size):
            raise ValueError(
                f"expected R of shape (directions, gates * hidden_size, hidden_size) for direction "
                f"{direction!r} and hidden_size {hidden_size}, found {R.shape}"
            )
        self.xp, self.dtype, self.layout, self.lengths = xp, X.dtype, layout, lengths
        self.X = self.wide(X.swapaxes(0, 1) if layout else X)
        _check_lengths(lengths, *self.X.shape[:2])
        self.W, self.R = self.wide(W), self.wide(R).swapaxes(1, 2)
        width = W.shape[1]
        biases = xp.zeros((len(W), 2 * width), self.X.dtype) if B is None else self.wide(B)
        self.input_bias, self.recurrent_bias = biases[:, :width], biases[:, width:]

    def wide(self, x: Array) -> Array:
        """Return x in the type to compute in."""
        return x.astype(accumulator(self.dtype), copy=False)

    def run(self, step: Step, bias: Array, *initial: Array | None) -> tuple[Array, ...]:
        """Return the hidden states of all steps, and the states after every item's last step.

        Args:
            step: One step of all directions.
            bias: Biases of shape (directions, gates * hidden size), added to the projection.
            *initial: States before the first step; None for zeros.
        """
        xp, (steps, batch, _) = self.xp, self.X.shape
        # One product for all steps: a matrix by a matrix instead of by a vector in each step.
        projected = [product(xp, self.X, self.W[d].T) + bias[d] for d in range(self.directions)]
        x = self.turn(projected)
        shape = (self.directions, batch, self.hidden_size)
        states: tuple[Array, ...] = tuple(
            xp.zeros(shape, x.dtype)
            if state is None
            else self.wide(state.swapaxes(0, 1) if self.layout else state)
            for state in initial
        )
        inside = None
        if self.lengths is not None:
            inside = (xp.arange(steps)[:, None] < self.lengths)[:, None, :, None]
        hidden = []
        for t in range(steps):
            interruption.check()
            after = step(x[t], states)
            out = after[0]
            if inside is not None:
                pairs = zip(after, states, strict=True)
                # An item that has ended keeps its last states, and outputs zeros.
                after = tuple(xp.where(inside[t], new, old) for new, old in pairs)
                out = xp.where(inside[t], out, 0)
            states = after
            hidden.append(out)
        Y = xp.stack(hidden) if hidden else xp.zeros((0, *shape), x.dtype)
        Y = self.turn([Y[:, d] for d in range(self.directions)])
        if self.layout:
            Y, states = Y.transpose(2, 0, 1, 3), tuple(s.swapaxes(0, 1) for s in states)
        return tuple(y.astype(self.dtype, copy=False) for y in (Y, *states))

    def turn(self, parts: list[Array]) -> Array:
        """Return (time, batch, ...) per direction on an axis 1, backward ones reversed in time.

        Every item of the batch is reversed within its own length.
        """
        turned = [
            self.reverse(x) if backward else x
            for x, backward in zip(parts, self.backwards, strict=True)
        ]
        return turned[0][:, None] if len(turned) == 1 else self.xp.stack(turned, axis=1)

    def reverse(self, x: Array) -> Array:
        """Return (time, batch, ...) with the time of every item reversed within its length."""
        if self.lengths is None:
            return x[::-1]
        xp, time = self.xp, self.xp.arange(len(x))[:, None]
        index = xp.where(time < self.lengths, self.lengths - 1 - time, time)
        return xp.take_along_axis(x, index[..., None], axis=0)
