"""LSTM, GRU and RNN with their usual activations, in one kernel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import floats
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import NO_RESIDUAL, ONE_BATCH
from tenonnx_cpu.recurrent.kernels import GRU, GRU_RESET_AFTER, LSTM, RNN
from tenonnx_cpu.recurrent.layout import GATE_COUNTS, Sizes, layout

RUN_LAYER = JitKernel("recurrent.layer", "run_layer")

# The number of directions, and whether the first one runs backwards.
DIRECTIONS = {"forward": (1, 0), "reverse": (1, 1), "bidirectional": (2, 0)}

USUAL = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
ABSENT = np.zeros(0, np.float32)
NO_LENGTHS = np.zeros(0, np.int32)


@specialize("LSTM", "GRU", "RNN")
def specialize_recurrent(site: Site, plain: Call) -> Call | None:
    """Take float32 without clipping, peepholes or coupled gates."""
    layer = layer_of(site, site.node.op_type)
    return None if layer is None else Capturable(functools.partial(_computed, layer, plain))


@cacheable
def _computed(layer: RecurrentLayer, plain: Call, *arguments: Any) -> Any:
    given: list[Any] = [*arguments, *[None] * (8 - len(arguments))]
    made = None if given[7] is not None else layer.launch(*given[:7])
    return plain(*arguments) if made is None else made._replace(otherwise=plain)


def layer_of(site: Site, operator: str) -> RecurrentLayer | None:
    """Return the layer that a node is, if the kernel does what its attributes say."""
    direction = DIRECTIONS.get(site.attribute("direction", "forward"))
    if direction is None or site.attribute("clip", None) is not None:
        return None
    usual = USUAL[operator] * direction[0]
    named = list(site.attribute("activations", ())) or usual
    if [name.lower() for name in named] != usual or site.attribute("input_forget", 0):
        return None
    kind = {"LSTM": LSTM, "GRU": GRU, "RNN": RNN}[operator]
    if kind == GRU and site.attribute("linear_before_reset", 0):
        kind = GRU_RESET_AFTER
    ways, reverse = direction
    hidden = site.attribute("hidden_size", None)
    return RecurrentLayer(kind, ways, reverse, hidden, site.attribute("layout", 0), site.threads)


@cacheable
class RecurrentLayer:
    """A recurrent layer of one kind."""

    def __init__(
        self,
        kind: int,
        ways: int,
        reverse: int,
        hidden: int | None,
        batch_first: int,
        threads: int,
    ) -> None:
        self._kind = kind
        self._hidden = hidden
        self._ways = ways
        self._reverse = reverse
        self._batch_first = batch_first
        self._threads = threads
        RUN_LAYER.request()

    def _takes_weights(self, w: Any, r: Any, b: Any, inputs: int) -> bool:
        """Return whether the kernel multiplies by weights of these shapes."""
        ways, width, n = r.shape
        if self._hidden not in (None, n) or ways != self._ways:
            return False
        if width != GATE_COUNTS[self._kind] * n or w.shape != (ways, width, inputs):
            return False
        return b is None or b.shape == (ways, 2 * width)

    def launch(self, x: Any, w: Any, r: Any, b: Any, lengths: Any, h: Any, c: Any) -> Launch | None:
        """Return what computes the operator's outputs; ``None`` where numpy must.

        The launch is refused if lengths are not of the steps that there are.
        """
        given = [array for array in (x, w, r, b, h, c) if array is not None]
        if RUN_LAYER.run is None or any(array.dtype != F32 or not array.size for array in given):
            return None
        first, second, inputs = x.shape
        steps, batch = (second, first) if self._batch_first else (first, second)
        ways, width, n = r.shape
        shape = (batch, ways, n) if self._batch_first else (ways, batch, n)
        if any(state is not None and state.shape != shape for state in (h, c)):
            return None
        if not self._takes_weights(w, r, b, inputs):
            return None
        if lengths is not None and (lengths.shape != (batch,) or lengths.dtype != np.int32):
            return None
        numbers, room = layout(
            Sizes(
                self._kind, steps, batch, inputs, n, ways, self._reverse, self._batch_first,
                self._threads,
            )
        )  # fmt: skip
        y = empty((batch, steps, ways, n) if self._batch_first else (steps, ways, batch, n))
        hidden = empty(shape)
        cell = empty(shape) if self._kind == LSTM else None
        scratch = floats(room + 1)
        memory, refusal = scratch[:room], scratch[room:].view(np.int32)
        arguments = (
            numbers, contiguous(x).reshape(-1, inputs),
            contiguous(w).reshape(ways * width, inputs).T, contiguous(r),
            *(ABSENT if array is None else contiguous(array).reshape(-1) for array in (h, c)),
            no_biases(ways, width) if b is None else contiguous(b),
            NO_LENGTHS if lengths is None else contiguous(lengths),
            y, hidden.reshape(-1), ABSENT if cell is None else cell.reshape(-1), memory,
            memory[: steps * batch * ways * width].reshape(steps * batch, ways * width),
            ONE_BATCH, NO_RESIDUAL, refusal,
        )  # fmt: skip
        results = (y, hidden, cell) if self._kind == LSTM else (y, hidden)
        return Launch(RUN_LAYER.run, arguments, results, refusal)


@functools.lru_cache(maxsize=64)
def no_biases(ways: int, width: int) -> NDArray:
    """Return what the kernel adds where the operator has no biases."""
    return frozen(np.zeros((ways, 2 * width), np.float32))
