"""``com.microsoft::GroupQueryAttention`` as one kernel that writes caches where they lie."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.attention.attention import NO_MASK, NO_SINKS, Rule, adjacent, shares
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.kv_cache_step import KvCacheStep
from tenonnx_cpu.capture.launch import Launch, done
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import pieces, worker_shares
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

GROUP_QUERY = JitKernel("attention.group_query", "group_query")

# Attributes at which the kernel can do.
SUPPORTED_ATTRIBUTES = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "qk_output": 0,
}

NO_ANGLES = np.empty((1, 0), np.float32)
NO_POSITIONS = np.empty((0, 0), np.int64)
NO_PAST = np.empty((0, 0, 0, 0), np.float32)

Caches: TypeAlias = tuple[NDArray, NDArray]


class Taken(NamedTuple):
    """The operator's inputs as ``jit.attention.group_query`` takes them, and the caches' shape."""

    tokens: tuple[NDArray, NDArray, NDArray]
    pasts: Caches
    angles: tuple[NDArray, NDArray]
    positions: NDArray
    filled: tuple[NDArray, NDArray]
    extras: tuple[NDArray, NDArray]
    cache: tuple[int, int, int, int]


@cacheable
@dataclass(frozen=True)
class GroupQueryAttributes:
    """A node's attributes.

    Attributes:
        heads: Of queries.
        groups: Heads of keys and values.
        rotary: Whether heads are turned.
        interleaved: Whether pairs are neighbors.
        rule: How scores come about; its ``scale`` is 0 for one over the root of a head's size.
        window: How many tokens a query sees of caches that keep the last ones alone, or 0.
        sinks: Whether each head has one more score, of 0 if none are given.
        threads: How many to use at most.
    """

    heads: int
    groups: int
    rotary: int
    interleaved: int
    rule: Rule
    window: int
    sinks: bool
    threads: int

    @classmethod
    def of(cls, site: Site) -> GroupQueryAttributes:
        """Return it."""
        window = site.attribute("local_window_size", -1)
        rule = Rule(
            site.attribute("scale", 0.0),
            site.attribute("softcap", 0.0),
            left=window - 1 if window > 0 else -1,
            right=0 if site.attribute("causal", 1) else -1,
            nothing=0.0,
            narrows=site.narrows,
        )
        return cls(
            site.attribute("num_heads", 0),
            site.attribute("kv_num_heads", 0),
            site.attribute("do_rotary", 0),
            site.attribute("rotary_interleaved", 0),
            rule,
            window if site.attribute("sliding_window_cache", 0) else 0,
            site.attribute("smooth_softmax", -1) == 1,
            site.threads,
        )

    def launch(self, inputs: Sequence[Any], caches: Caches | None = None) -> Launch | None:
        """Return what attends, and writes caches; ``None`` for numpy.

        Args:
            inputs: The operator's.
            caches: Where to, of the shape that they get; ``None`` for new ones.
        """
        run, found = GROUP_QUERY.run, self._taken(inputs, grows=caches is None)
        if run is None or found is None:
            return None
        batch, length, width = found.tokens[0].shape
        size = width // self.heads
        keys, values = caches or (empty(found.cache), empty(found.cache))
        y = empty((batch, length, self.heads, size))
        results = y.transpose(0, 2, 1, 3), y
        rows, share = shares(results[0].shape, found.cache, self.threads, self.rule)
        refusal, spans, memory = pieces(
            ((1,), np.int32), ((batch, 4), np.int64), worker_shares(share, self.threads)
        )
        scale = self.rule.scale or 1 / math.sqrt(size)
        arguments = (
            *found.tokens, *found.pasts, *found.angles, found.positions, *found.filled,
            *found.extras, scale, *self.rule.arguments[1:], self.window, self.interleaved, *results,
            keys, values, spans, rows, memory, share, self.threads, refusal,
        )  # fmt: skip
        return Launch(run, arguments, (y.reshape(batch, length, -1), keys, values, None), refusal)

    def _taken(self, inputs: Sequence[Any], *, grows: bool) -> Taken | None:
        query, key, value, past_k, past_v, lengths, total = inputs[:7]
        cos, sin, ids, bias, sinks, *_ = (*inputs[7:], *(None,) * 5)
        tokens = self._tokens(query, key, value)
        if tokens is None:
            return None
        batch, length, width = tokens[0].shape
        size = width // self.heads
        angles = _angles(cos, sin, size) if self.rotary else (NO_ANGLES, NO_ANGLES)
        positions = _positions(ids, (batch, length))
        extras = self._extras(bias, sinks, (batch, self.heads, length))
        held = 0 if past_k is None or past_k.ndim != 4 else past_k.shape[2]
        capacity = max(held, int(total.item())) if grows and not self.window else held
        cache = batch, self.groups, capacity, size
        if angles is None or positions is None or extras is None:
            return None
        if not _are_caches(past_k, past_v, cache):
            return None
        if self.window and not (bias is None and self.window <= capacity):
            return None
        if lengths.size != batch or not lengths.dtype == total.dtype == np.int32:
            return None
        pasts = (NO_PAST, NO_PAST) if past_k is None else (adjacent(past_k), adjacent(past_v))
        filled = contiguous(lengths).reshape(-1), total.reshape(-1)
        return Taken(tokens, pasts, angles, positions, filled, extras, cache)

    def beyond_window(
        self, query: NDArray, key: Any, value: Any, past_k: NDArray, past_v: NDArray,
        lengths: NDArray, total: NDArray, cos: Any = None, sin: Any = None, ids: Any = None,
        bias: Any = None, sinks: Any = None,
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """Return results for tokens that do not fit a window's caches beside what is there."""
        capacity, (batch, length) = past_k.shape[2], query.shape[:2]
        after = int(total.item())
        before, stride = after - length, capacity - self.window + 1
        if (lengths != after - 1).any():
            return None
        held, kept = (n - stride * max(0, -(-(n - capacity) // stride)) for n in (before, after))
        if ids is None:
            ids = np.broadcast_to(np.arange(before, after), (batch, length))
        counts = lengths - (before - held), total - (before - held)
        parts = past_k[:, :, :held], past_v[:, :, :held]
        given = (query, key, value, *parts, *counts, cos, sin, ids, bias, sinks)
        made = replace(self, window=0).launch(given)
        results = None if made is None else done(made._replace(otherwise=_nothing), given)
        if results is None:
            return None
        y, *caches, _ = results
        return y, *(_last(cache, kept, past_k.shape) for cache in caches), None

    def _tokens(
        self, query: NDArray, key: NDArray | None, value: NDArray | None
    ) -> tuple[NDArray, NDArray, NDArray] | None:
        """Return queries, keys and values of shape ``(batch, length, heads * size)``."""
        heads, groups = self.heads, self.groups
        if key is None or value is None:
            size, rest = divmod(query.shape[-1], heads + 2 * groups)
            if rest:
                return None
            first, second, last = heads * size, (heads + groups) * size, (heads + 2 * groups) * size
            query, key, value = (
                query[..., :first], query[..., first:second], query[..., second:last],
            )  # fmt: skip
        if query.ndim != 3 or not query.size or heads % groups or query.shape[2] % heads:
            return None
        if not key.shape == value.shape == (*query.shape[:2], query.shape[2] // heads * groups):
            return None
        for x in (query, key, value):
            if x.dtype != F32 or x.strides[2] != 4 or not x.flags.aligned:
                return None
        return query, key, value

    def _extras(self, bias: Any, sinks: Any, queries: tuple[int, ...]) -> tuple[Any, Any] | None:
        """Return what is added to scores, and each head's score more."""
        if bias is None:
            mask = NO_MASK
        elif (
            bias.dtype == F32
            and bias.ndim == 4
            and all(own in (1, n) for own, n in zip(bias.shape[:3], queries, strict=True))
        ):
            mask = np.broadcast_to(adjacent(bias), (*queries, bias.shape[3]))
        else:
            return None
        if self.sinks:
            sinks = _zeros(self.heads)
        elif sinks is None:
            sinks = NO_SINKS
        elif sinks.dtype != F32 or sinks.size != self.heads:
            return None
        return mask, contiguous(sinks).reshape(-1)


def _nothing(*_: Any) -> None:
    """Stand for the results of numpy."""


def _positions(ids: Any, shape: tuple[int, int]) -> NDArray | None:
    """Return positions of so many entries and tokens, or none to count them."""
    if ids is None:
        return NO_POSITIONS
    fits = ids.dtype == np.int64 and ids.ndim == 2
    broad = fits and all(own in (1, wanted) for own, wanted in zip(ids.shape, shape, strict=True))
    return np.broadcast_to(ids, shape) if broad else None


def _angles(cos: Any, sin: Any, size: int) -> tuple[NDArray, NDArray] | None:
    if cos is None or sin is None or not cos.dtype == sin.dtype == F32 or cos.shape != sin.shape:
        return None
    if cos.ndim != 2 or 2 * cos.shape[1] > size or not cos.size:
        return None
    return contiguous(cos), contiguous(sin)


def _last(cache: NDArray, count: int, shape: tuple[int, ...]) -> NDArray:
    """Return a cache of a shape that begins with another one's last tokens."""
    kept = np.zeros(shape, np.float32)
    kept[:, :, :count] = cache[:, :, cache.shape[2] - count :]
    return kept


@functools.cache
def _zeros(count: int) -> NDArray:
    return frozen(np.zeros(count, np.float32))


def _are_caches(past_k: Any, past_v: Any, shape: tuple[int, ...]) -> bool:
    """Return whether both caches or none are there, and but for their length of a shape."""
    if past_k is None or past_v is None:
        return past_k is past_v
    return past_k.shape == past_v.shape and all(
        x.dtype == F32 and x.ndim == 4 and x.shape[:2] == shape[:2] and x.shape[3] == shape[3]
        for x in (past_k, past_v)
    )


@specialize("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(site: Site, plain: Call) -> Call | None:
    """Take float32, unless the cache is quantized or scores are an output."""
    if any(site.attribute(name, kept) != kept for name, kept in SUPPORTED_ATTRIBUTES.items()):
        return None
    if any(value is not None for value in site.node.inputs[12:]):
        return None
    if site.attribute("sliding_window_cache", 0) and site.attribute("local_window_size", -1) < 1:
        return None
    form = GroupQueryAttributes.of(site)
    if form.heads < 1 or form.groups < 1:
        return None
    GROUP_QUERY.request()
    call = GroupQueryCall(form, plain)
    return KvCacheStep(call, in_place=call.in_place, joins=not form.window)


@cacheable
@dataclass(frozen=True, eq=False)
class GroupQueryCall:
    """Attends, and makes new caches.

    Attributes:
        form: The node's attributes.
        plain: Computes the same from the same inputs.
    """

    form: GroupQueryAttributes
    plain: Call

    def __call__(self, *inputs: Any) -> Any:
        """Return a launch, or the results."""
        made = self.form.launch(inputs)
        return self.plain(*inputs) if made is None else made._replace(otherwise=self.refused)

    def refused(self, *inputs: Any) -> Any:
        """Return the results for inputs that the kernel refuses."""
        made = self.form.beyond_window(*inputs) if self.form.window else None
        return self.plain(*inputs) if made is None else made

    def in_place(self, *inputs: Any) -> Any:
        """Return a launch that writes to the inputs' caches; all results where none does."""
        made = self.form.launch(inputs, (inputs[3], inputs[4]))
        if made is None:
            return self(*inputs)
        return made._replace(result=made.result[0], otherwise=self)
