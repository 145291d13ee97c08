"""The RotaryEmbedding operators, whose angles come from caches."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, Site, specialize

EMBED = JitKernel("attention.rotary", "embed")

# Elements that are worth a second thread.
MIN_ROTATED_ELEMENTS_PER_THREAD = 1 << 15

EACH_ITS_OWN = np.empty((0, 0), np.int64)


@cacheable
@dataclass(frozen=True)
class Turn:
    """The turning of heads.

    Attributes:
        heads: How many there are in inputs of three axes; 0 if that is not said.
        width: Elements of a head that are turned; 0 for all.
        interleaved: Whether pairs are neighbors.
        threads: How many threads to use at most.
    """

    heads: int
    width: int
    interleaved: int
    threads: int

    @classmethod
    def of(cls, site: Site) -> Turn:
        """Return what a node's attributes say."""
        heads, width = site.attribute("num_heads", 0), site.attribute("rotary_embedding_dim", 0)
        return cls(heads, width, site.attribute("interleaved", 0), site.threads)

    def __call__(self, x: Any, cos: Any, sin: Any, positions: Any) -> Launch | None:
        """Return what turns heads, or ``None`` where numpy must do it.

        Args:
            x: ``(batch, heads, length, size)`` or ``(batch, length, heads * size)``.
            cos: ``(rows, pairs)``, or ``(batch, length, pairs)`` without positions.
            sin: Of the shape of ``cos``.
            positions: int64 ``(batch, length)``, or ``None``.
        """
        run = EMBED.run
        if run is None or not (x.dtype == cos.dtype == sin.dtype == F32):
            return None
        tokens_first = x.ndim == 3
        if tokens_first:
            if not self.heads or x.shape[2] % self.heads:
                return None
            x = x.reshape(*x.shape[:2], self.heads, x.shape[2] // self.heads).swapaxes(1, 2)
        if x.ndim != 4 or not x.size or x.strides[3] != 4 or not x.flags.aligned:
            return None
        batch, heads, length, size = x.shape
        pairs = (self.width or size) // 2
        rows = (len(cos),) if positions is not None else (batch, length)
        if cos.shape != (*rows, pairs) or sin.shape != cos.shape or not 0 < 2 * pairs <= size:
            return None
        if positions is None:
            positions = EACH_ITS_OWN
        elif positions.shape != (batch, length) or positions.dtype != np.int64:
            return None
        cos, sin = (contiguous(angles).reshape(-1, pairs) for angles in (cos, sin))
        y = empty((batch, length, heads, size) if tokens_first else x.shape)
        threads = self.threads if x.size >= MIN_ROTATED_ELEMENTS_PER_THREAD else 1
        (refusal,) = pieces(((1,), np.int32))
        arguments = (
            x, cos, sin, contiguous(positions), self.interleaved, int(tokens_first), y, refusal,
            threads,
        )  # fmt: skip
        return Launch(run, arguments, y.reshape(batch, length, -1) if tokens_first else y, refusal)


@specialize("RotaryEmbedding")
def rotary_embedding(site: Site, plain: Call) -> Call | None:
    """Take float32, with positions or with angles for every token."""
    EMBED.request()
    return Capturable(functools.partial(_turned, Turn.of(site), plain))


@cacheable
def _turned(turn: Turn, plain: Call, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
    made = turn(x, cos, sin, positions)
    if made is None:
        return plain(x, cos, sin, positions)
    return made._replace(otherwise=plain)


@specialize("RotaryEmbedding", domain="com.microsoft")
def microsoft_rotary_embedding(site: Site, plain: Call) -> Call | None:
    """Take float32, with the first token's position or one per token."""
    EMBED.request()
    return Capturable(functools.partial(_turned_from, Turn.of(site), plain))


def _turned_from(turn: Turn, plain: Call, x: Any, positions: Any, cos: Any, sin: Any) -> Any:
    each, found = positions, turn
    if positions.shape == (1,):
        length = x.shape[1 if x.ndim == 3 else 2]
        each = np.broadcast_to(positions + np.arange(length), (len(x), length))
    if x.ndim == 3 and not (turn.heads or turn.width) and cos.size:
        found = replace(turn, heads=x.shape[2] // (2 * cos.shape[-1]))
    made = found(x, cos, sin, each)
    if made is None:
        return plain(x, positions, cos, sin)
    return made._replace(otherwise=plain)
