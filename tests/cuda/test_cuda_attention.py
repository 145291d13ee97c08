"""The attention kernels, compiled for the host, against formulas in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import strict
from kernel_calls import BFLOAT16, FLOATS, chosen, close, draw, needs_compiler
from test_cuda_contract import EVERY

from tenonnx_cuda.attention import choosing
from tenonnx_cuda.attention.flash import Heads


def attended(
    q: Any, k: Any, v: Any, *, mask: Any = None, before: Any = 0, causal: bool = False,
    window: tuple[int, int] = (-1, -1), lengths: Any = None, softcap: float = 0.0,
    sinks: Any = None,
) -> Any:  # fmt: skip
    """Attention in float64, one score for each query and key."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = q @ np.repeat(k, group, 1).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    places, keys = np.arange(q.shape[2])[:, None] + before, np.arange(k.shape[2])
    left, right = window[0], 0 if causal else window[1]
    seen = np.ones(scores.shape, bool)
    if left >= 0:
        seen &= keys >= places - left
    if right >= 0:
        seen &= keys <= places + right
    if lengths is not None:
        seen &= keys < lengths.reshape(-1, 1, 1, 1)
    if mask is not None and mask.dtype == bool:
        seen &= mask
    elif mask is not None:
        scores = scores + mask.astype(np.float64)
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    top = np.where(np.isinf(top), 0, top)
    e = np.exp(scores - top)
    total = e.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks.astype(np.float64)[:, None, None] - top)
    return e / np.where(total == 0, 1, total) @ np.repeat(v, group, 1)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "queries"),
    [(FLOATS[0], 1), (FLOATS[0], 3), (FLOATS[0], 37), (FLOATS[1], 1), (FLOATS[2], 37)],
    ids=str,
)
def test_attention_of_grouped_heads(dtype: Any, queries: int) -> None:
    q, k, v = (draw(s, 2, h, n, 16, dtype=dtype) for s, h, n in
               ((0, 4, queries), (1, 2, 41), (2, 2, 41)))  # fmt: skip
    for causal in (0, 1):
        y, keys, values = chosen("Attention", 23, outputs=3, is_causal=causal)(q, k, v)
        close(y, attended(q, k, v, causal=bool(causal)), dtype)
        np.testing.assert_array_equal(keys, k)
        np.testing.assert_array_equal(values, v)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_heads_that_are_a_transposed_view_are_read_there(dtype: Any) -> None:
    lying = [draw(i, 2, 21, 4, 32, dtype=dtype) for i in range(3)]
    q, k, v = (x.swapaxes(1, 2) for x in lying)
    device = strict.wrap(q)
    assert Heads.of(strict.xp, device, 0).array is device
    close(chosen("Attention", 23, is_causal=1)(q, k, v)[0], attended(q, k, v, causal=True), dtype)


@needs_compiler
def test_attention_with_a_cache_a_window_a_cap_and_masks() -> None:
    q, k, v = (draw(s, 2, h, 5, 8) for s, h in ((0, 6), (1, 3), (2, 3)))
    past = draw(3, 2, 3, 9, 8), draw(4, 2, 3, 9, 8)
    whole = [np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True)]
    masks = [None, draw(5, 5, 14), draw(6, 2, 1, 5, 14), draw(7, 2, 6, 1, 14) > 0,
             np.zeros((5, 14), bool)]  # fmt: skip
    for mask, causal in itertools.product(masks, (0, 1)):
        run = chosen("Attention", 23, outputs=3, is_causal=causal, softcap=2.0)
        y, keys, values = run(q, k, v, mask, *past)
        expected = attended(q, *whole, mask=mask, before=9, causal=bool(causal), softcap=2.0)
        close(y, expected, np.float32)
        np.testing.assert_array_equal(keys, whole[0])
        np.testing.assert_array_equal(values, whole[1])
    run = chosen("Attention", 25, left_window_size=3, right_window_size=1)
    close(run(q, k, v, None, *past)[0], attended(q, *whole, before=9, window=(3, 1)), np.float32)


@needs_compiler
def test_attention_of_packed_heads_and_padded_sequences() -> None:
    q, k, v = draw(0, 3, 4, 24), draw(1, 3, 50, 16), draw(2, 3, 50, 12)
    lengths = np.array([50, 7, 4])
    apart = [a.reshape(*a.shape[:2], h, -1).swapaxes(1, 2) for a, h in ((q, 3), (k, 2), (v, 2))]
    apart[0] = draw(0, 3, 4, 32).reshape(3, 4, 4, 8).swapaxes(1, 2)
    q = apart[0].swapaxes(1, 2).reshape(3, 4, 32)
    run = chosen("Attention", 24, q_num_heads=4, kv_num_heads=2, is_causal=1)
    y, *_ = run(q, k, v, None, None, None, lengths)
    before = (lengths - 4).reshape(-1, 1, 1, 1)
    expected = attended(*apart, before=before, causal=True, lengths=lengths)
    close(y, expected.swapaxes(1, 2).reshape(3, 4, 24), np.float32)


@needs_compiler
def test_attention_of_large_heads() -> None:
    q, k, v = draw(0, 1, 1, 20, 160), draw(1, 1, 1, 35, 160), draw(2, 1, 1, 35, 200)
    close(chosen("Attention", 23, is_causal=1)(q, k, v)[0], attended(q, k, v, causal=True),
          np.float32)  # fmt: skip


SIZES = [(np.float16, 32, 64), (BFLOAT16, 64, 32), (np.float16, 96, 96), (np.float32, 24, 40)]
QUERIES = [1, 3, 21]
SHARED = list(
    itertools.product(SIZES, QUERIES) if EVERY else zip(SIZES, [1, 3, 21, 1], strict=True)
)
"""All of them; else each size and each number of queries once, as they take long."""


@needs_compiler
@pytest.mark.parametrize(("sizes", "queries"), SHARED, ids=str)
def test_attention_that_shares_keys_out(sizes: tuple[Any, int, int], queries: int) -> None:
    """With so many keys that a few queries' go to several warps, on tensor cores or without."""
    dtype, size, values = sizes
    q = draw(0, 2, 6, queries, size, dtype=dtype)
    k, v = draw(1, 2, 2, 150, size, dtype=dtype), draw(2, 2, 2, 150, values, dtype=dtype)
    past = draw(3, 2, 2, 77, size, dtype=dtype), draw(4, 2, 2, 77, values, dtype=dtype)
    whole = [np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True)]
    run = chosen("Attention", 23, outputs=3, is_causal=1, softcap=3.0)
    y = run(q, k, v, None, *past)[0]
    close(y, attended(q, *whole, before=77, causal=True, softcap=3.0), dtype)
    for mask in (draw(5, queries, 227, dtype=dtype), draw(6, 2, 1, queries, 227) > 0.5):
        run = chosen("Attention", 23, outputs=3)
        close(run(q, k, v, mask, *past)[0], attended(q, *whole, mask=mask), dtype)
    run = chosen("Attention", 25, left_window_size=40, right_window_size=2)
    y = run(q, k, v, None, *past)[0]
    close(y, attended(q, *whole, before=77, window=(40, 2)), dtype)
    if queries <= 3:
        lengths = np.array([140, queries])
        run = chosen("Attention", 24, is_causal=1)
        y = run(q, k, v, None, None, None, lengths)[0]
        before = (lengths - queries).reshape(-1, 1, 1, 1)
        close(y, attended(q, k, v, before=before, causal=True, lengths=lengths), dtype)


@needs_compiler
@pytest.mark.parametrize(("dtype", "size", "values"), [
    (np.float16, 128, 32), (BFLOAT16, 32, 64),
], ids=str)  # fmt: skip
def test_attention_of_many_queries(dtype: Any, size: int, values: int) -> None:
    """Warps that go through the keys together: of two blocks, one has rows for some of them."""
    q = draw(0, 2, 2, 37, size, dtype=dtype)
    k, v = draw(1, 2, 1, 70, size, dtype=dtype), draw(2, 2, 1, 70, values, dtype=dtype)
    run = chosen("Attention", 23, is_causal=1, softcap=3.0)
    close(run(q, k, v)[0], attended(q, k, v, causal=True, softcap=3.0), dtype)
    run = chosen("Attention", 25, left_window_size=3, right_window_size=30)
    close(run(q, k, v)[0], attended(q, k, v, window=(3, 30)), dtype)
    run = chosen("Attention", 25, left_window_size=2**40, right_window_size=2**31 - 1)
    close(run(q, k, v)[0], attended(q, k, v), dtype)
    mask = draw(5, 37, 70, dtype=dtype) if dtype == BFLOAT16 else draw(6, 2, 1, 37, 70) > 0.5
    close(chosen("Attention", 23)(q, k, v, mask)[0], attended(q, k, v, mask=mask), dtype)
    lengths = np.array([70, 50])
    y = chosen("Attention", 24, is_causal=1)(q, k, v, None, None, None, lengths)[0]
    before = (lengths - 37).reshape(-1, 1, 1, 1)
    close(y, attended(q, k, v, before=before, causal=True, lengths=lengths), dtype)


@needs_compiler
def test_tensor_cores_take_what_suits_them(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for name in ("on_tensor_cores", "by_tiles"):
        monkeypatch.setattr(choosing, name, lambda *_, name=name: taken.append(name))
    for dtype, size, capability in (
        (np.float16, 64, (8, 0)), (np.float16, 64, (7, 5)), (np.float32, 64, (9, 0)),
        (BFLOAT16, 48, (9, 0)), (BFLOAT16, 128, (10, 0)),
    ):  # fmt: skip
        heads = [draw(i, 1, 1, 2, size, dtype=dtype) for i in range(3)]
        chosen("Attention", 23, capability=capability, times=1)(*heads)
    assert taken == ["on_tensor_cores", "by_tiles", "by_tiles", "by_tiles", "on_tensor_cores"]


def rotated(x: Any, angles: Any, *, interleaved: bool) -> Any:
    """Heads (batch, heads, length, size) whose first pairs turned, in float64."""
    half = angles.shape[-1]
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    wide = x.astype(np.float64)
    pairs = wide[..., : 2 * half]
    a, b = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else np.split(pairs, 2, -1)
    parts = [a * c - b * s, a * s + b * c]
    joined = np.stack(parts, -1).reshape(pairs.shape) if interleaved else np.concatenate(parts, -1)
    return np.concatenate([joined, wide[..., 2 * half :]], -1)


def unpacked(x: Any, heads: int) -> Any:
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


@needs_compiler
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("dtype", "size", "steps", "room"), [
    (np.float32, 8, 1, 40), (np.float16, 32, 1, 0), (BFLOAT16, 64, 3, 200), (np.float32, 16, 5, 0),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("interleaved", [0, 1])
def test_group_query_attention(
    dtype: Any, size: int, steps: int, room: int, packed: bool, interleaved: int
) -> None:
    """Sequences of several lengths, or of one, go on, with a cache that has room or grows."""
    alike = bool(interleaved)
    if room == 0 and interleaved:
        packed = not packed
    heads, groups, batch = 4, 2, 2
    lengths = np.array([150 if room == 200 else 21, 21 if alike else 17])
    totals = lengths + steps
    total = int(totals.max())
    capacity = max(room, total)
    held = room or int(lengths.max())
    past = [draw(i, batch, groups, held, size, dtype=dtype) for i in (0, 1)]
    q = draw(2, batch, steps, heads * size, dtype=dtype)
    k, v = (draw(i, batch, steps, groups * size, dtype=dtype) for i in (3, 4))
    angles = draw(5, capacity, size // 4)
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    angles = np.arctan2(sin.astype(np.float64), cos.astype(np.float64))
    radius = np.hypot(sin.astype(np.float64), cos.astype(np.float64))
    np.testing.assert_allclose(radius, 1, atol=1e-2)
    sinks, bias = draw(6, heads, dtype=dtype), draw(7, batch, 1, steps, total, dtype=dtype)
    places = lengths[:, None] + np.arange(steps)
    turned = [rotated(unpacked(x, n), angles[places], interleaved=bool(interleaved))
              for x, n in ((q, heads), (k, groups))]  # fmt: skip
    turned = [x.astype(dtype) for x in turned]
    keys, values = (np.zeros((batch, groups, capacity, size), dtype) for _ in "kv")
    for b, n in enumerate(lengths):
        for cache, before, new in zip(
            (keys, values), past, (turned[1], unpacked(v, groups)), strict=True
        ):
            cache[b, :, :held] = before[b]
            cache[b, :, n : n + steps] = new[b]
    run = chosen(
        "GroupQueryAttention", 1, domain="com.microsoft", outputs=3, num_heads=heads,
        kv_num_heads=groups, do_rotary=1, rotary_interleaved=interleaved, local_window_size=19,
        softcap=4.0, scale=0.3,
    )  # fmt: skip
    new = (np.concatenate((q, k, v), -1), None, None) if packed else (q, k, v)
    host = (totals - 1).astype(np.int32), np.array(total, np.int32)
    y, *present, _ = run(*new, *past, *host, cos, sin, None, bias, sinks, host=(6,))
    expected = attended(
        turned[0] * np.asarray(0.3 * size**0.5), keys[:, :, :total], values[:, :, :total],
        before=lengths.reshape(-1, 1, 1, 1), causal=True, window=(18, -1),
        lengths=totals, softcap=4.0, mask=bias, sinks=sinks,
    )  # fmt: skip
    close(y, expected.swapaxes(1, 2).reshape(batch, steps, -1), dtype)
    for got, cache in zip(present, (keys, values), strict=True):
        close(got, cache.astype(np.float64), dtype)


@needs_compiler
def test_a_first_prompt_of_several_lengths() -> None:
    heads, size, steps = 3, 32, 9
    totals = np.array([9, 4])
    q, k, v = (draw(i, 2, steps, heads * size, dtype=np.float16) for i in range(3))
    run = chosen("GroupQueryAttention", 1, domain="com.microsoft", outputs=3, num_heads=heads,
                 kv_num_heads=heads, smooth_softmax=1)  # fmt: skip
    host = (totals - 1).astype(np.int32), np.array(steps, np.int32)
    y, keys, values, _ = run(q, k, v, None, None, *host, host=(6,))
    apart = [unpacked(x, heads) for x in (q, k, v)]
    expected = attended(*apart, causal=True, lengths=totals, sinks=np.zeros(heads))
    close(y, expected.swapaxes(1, 2).reshape(2, steps, -1), np.float16)
    np.testing.assert_array_equal(keys, apart[1])
    np.testing.assert_array_equal(values, apart[2])
