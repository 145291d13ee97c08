"""LinearAttention on a kernel that keeps a head's state in the processor's cache."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.linear_attention import UPDATE_RULES
from tenonnx_cpu.attention.attention import adjacent
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces
from tenonnx_cpu.kernel_selection import Call, Site, specialize

ATTEND = JitKernel("attention.linear", "linear_attend")

NO_GATE = np.empty((0, 0, 0), np.float32)
NO_STATE = np.empty((0, 0, 0, 0), np.float32)

# Elements of states, times tokens, that are worth a second thread.
MIN_STATE_ELEMENTS_PER_THREAD = 1 << 14


@cacheable
@dataclass(frozen=True)
class LinearAttributes:
    """A node's attributes.

    Attributes:
        heads: Of queries.
        groups: Heads of values: states.
        decays: Whether states are scaled before a token is written.
        corrects: Whether what its key already reads is taken from what is written.
        scale: The factor of queries; 0 for one over the root of their size.
        threads: How many to use at most.
    """

    heads: int
    groups: int
    decays: bool
    corrects: bool
    scale: float
    threads: int

    def launch(self, q: Any, k: Any, v: Any, past: Any, decay: Any, beta: Any) -> Launch | None:
        """Return what attends; ``None`` for numpy."""
        run, given = ATTEND.run, (q, k, v, past, decay, beta)
        if run is None or any(x is not None and (x.dtype != F32 or not x.size) for x in given):
            return None
        if not q.ndim == k.ndim == v.ndim == 3 or not q.shape[:2] == k.shape[:2] == v.shape[:2]:
            return None
        batch, length = q.shape[:2]
        depth, width = q.shape[2] // self.heads, v.shape[2] // self.groups
        kept = batch, self.groups, depth, width
        if not self._divide(q, k, v, depth) or (past is not None and past.shape != kept):
            return None
        if not _is_gate(decay, q, self.decays, (self.groups, self.groups * depth)):
            return None
        if not _is_gate(beta, q, self.corrects, (1, self.groups)):
            return None
        y, states = empty((batch, length, max(self.heads, self.groups), width)), empty(kept)
        team = self.threads if states.size * length >= MIN_STATE_ELEMENTS_PER_THREAD else 1
        (memory,) = pieces(((team, -(-width // 16) * 16), np.float32))
        arguments = (
            adjacent(q), adjacent(k), adjacent(v),
            NO_GATE if decay is None else adjacent(decay),
            NO_GATE if beta is None else adjacent(beta),
            NO_STATE if past is None else contiguous(past),
            self.scale or 1 / math.sqrt(depth), self.corrects, y, states, memory, team,
        )  # fmt: skip
        return Launch(run, arguments, (y.reshape(batch, length, -1), states))

    def _divide(self, q: Any, k: Any, v: Any, depth: int) -> bool:
        """Return whether tokens are whole heads, of which there are as many as can be shared."""
        if not depth or q.shape[2] % self.heads or v.shape[2] % self.groups or k.shape[2] % depth:
            return False
        every = max(self.heads, self.groups)
        shared = every % self.heads or every % self.groups or self.groups % (k.shape[2] // depth)
        return not shared


@specialize("LinearAttention")
@specialize("LinearAttention", domain="com.microsoft")
def linear_attention(site: Site, plain: Call) -> Call | None:
    """Take float32 by any rule, and the last state alone."""
    rule = site.attribute("update_rule", "gated_delta")
    heads, groups = site.attribute("q_num_heads", 0), site.attribute("kv_num_heads", 0)
    if rule not in UPDATE_RULES or site.attribute("state_window", 0) or heads < 1 or groups < 1:
        return None
    form = LinearAttributes(
        heads, groups, *UPDATE_RULES[rule], site.attribute("scale", 0.0), site.threads
    )
    ATTEND.request()
    return Capturable(functools.partial(_attended, form, plain))


@cacheable
def _attended(form: LinearAttributes, plain: Call, *inputs: Any) -> Any:
    made = form.launch(*inputs, *(None,) * (6 - len(inputs)))
    return plain(*inputs) if made is None else made


def _is_gate(x: Any, q: Any, wanted: bool, widths: tuple[int, int]) -> bool:
    """Return whether there is one of some widths if one is wanted, and else none."""
    if not wanted or x is None:
        return wanted == (x is not None)
    return x.ndim == 3 and x.shape[:2] == q.shape[:2] and x.shape[2] in widths
