"""Rows for transforms of attention: its heads, masks and embeddings of places."""

from __future__ import annotations

from typing import Any

import numpy as np
from drafts import Draft

from models import FLOAT

MOST = np.finfo(np.float32).min


def attention(d: Draft) -> None:
    """Queries times keys, scaled and masked, their softmax, and the product of that with values."""
    batch, heads, queries, keys, size = 2, 2, 3, 5, 8
    kind = d.choose([np.float32, np.float16, np.float64])
    scores, v = scores_of(d, kind)
    factor = d.choose([size**-0.5, 0.0, -0.5, 1e30])
    number = d.number(factor, 0, 1, 4, dtype=kind)
    scores = d.both("Mul", scores, number) if d.choose([1, 0]) else d.add("Div", scores, number)
    shape = d.choose(
        [(batch, 1, queries, keys), (1, 1, queries, keys), (queries, keys), (keys,), (1,), (),
         (3, 1, queries, keys), (batch, 4, queries, keys), (batch, heads, queries, 1),
         (batch, heads, 1, keys), (queries, 1), (1, batch, heads, queries, keys)]
    )  # fmt: skip
    scores = d.both("Add", scores, d.feed("m", d.floats(*shape, dtype=kind)))
    if d.choose([False, True]):
        scores = d.both("Add", scores, d.feed("n", d.floats(*shape[-1:], dtype=kind)))
    d.add("MatMul", d.add("Softmax", scores, axis=d.choose([-1, 3, 2, 1, -2])), v)


def bare_attention(d: Draft) -> None:
    """The same of scores as they are, by a softmax of any version."""
    d.opset = d.choose([21, 12])
    scores, v = scores_of(d, np.float32)
    shares = d.add("Softmax", scores, axis=d.choose([3, -1, 2, 1]))
    if d.choose([False, True]):
        zero = d.number(0, 0, 1, 5)
        shares = d.add("Where", d.add("IsNaN", shares), zero, shares)
    d.add("MatMul", shares, v)


def capped_attention(d: Draft) -> None:
    """Score that are capped by a tangent."""
    scores, v = scores_of(d, np.float32)
    cap = d.choose([10.0, -10.0, 0.0])
    scores = d.add("Div", scores, d.number(cap, 0, 1, 5))
    scores = d.both("Mul", d.add("Tanh", scores), d.number(cap, 0, 5))
    d.add("MatMul", d.add("Softmax", scores, axis=-1), v)


def chosen_attention(d: Draft) -> None:
    """Score of hidden keys replaced by a number."""
    scores, v = scores_of(d, np.float32)
    shape = d.choose([(2, 1, 3, 5), (1, 1, 3, 5), (3, 5), (5,), (3, 1), (1,), (3, 1, 1, 1)])
    hides = d.random.random(shape) < 0.4
    hides = np.asarray(d.choose([hides, np.ones_like(hides), np.zeros_like(hides)]))
    low = d.number(d.choose([MOST, -1e4, -1e9, -np.inf, -1.0, 1e5]), 0, 1, 5)
    if d.choose([False, True]):
        scores = d.add("Where", d.feed("m", hides), low, scores)
    else:
        scores = d.add("Where", d.feed("m", ~hides), scores, low)
    d.add("MatMul", d.add("Softmax", scores, axis=-1), v)


def unturned_attention(d: Draft) -> None:
    """Heads without a batch, or keys that lie as they are multiplied."""
    rows = d.choose([(4,), (2, 4), (1,), (1, 1), (), (2, 1, 4)])
    q = d.input("q", *rows, 3, 8)
    if d.choose([True, False]):
        k = d.input("k", *d.choose([rows, (4,), (2, 4), (1,)]), 8, 5)
    else:
        k = d.input("k", *d.choose([(4,), (1,)]), 5, 8)
        k = d.add("Transpose", k, perm=[0, 2, 1])
    scores = d.both("Mul", d.add("MatMul", q, k), d.number(d.choose([0.3, 0.0]), 0, 1))
    if d.choose([True, False]):
        shapes = [(3, 5), (1, 3, 5), (4, 1, 5), (4, 3, 5), (5,), (1,), (2, 1, 3, 5), (3, 1)]
        scores = d.both("Add", scores, d.feed("m", d.floats(*d.choose(shapes))))
    v = d.input("v", *d.choose([rows, (4,), (1,), (2, 4)]), 5, 6)
    d.add("MatMul", d.add("Softmax", scores, axis=d.choose([-1, 2, 3, 1])), v)


def scores_of(d: Draft, kind: Any) -> tuple[str, str]:
    """Add queries times keys; return that, and the values."""
    batch, heads, queries, keys, size = 2, 2, 3, 5, 8
    shapes = [(batch, heads), (1, heads), (batch, 1), (1, 1), (batch, 4), (3, heads), (heads,), ()]
    q = d.input("q", *d.choose(shapes), queries, size, dtype=kind)
    rows = d.choose(shapes[:6])
    if d.choose([False, True]):
        k = d.input("k", rows[0], keys, rows[1], size, dtype=kind)
        turned = d.add("Transpose", k, perm=[0, 2, 3, 1])
    else:
        turned = d.add("Transpose", d.input("k", *rows, keys, size, dtype=kind), perm=[0, 1, 3, 2])
    v = d.input("v", *d.choose(shapes), keys, d.choose([size, 1, 7]), dtype=kind)
    return d.add("MatMul", q, turned), v


def cast_attention(d: Draft) -> None:
    """Attention whose softmax is in float32, of keys whose heads are repeated."""
    batch, heads, groups, length, size = 2, 4, 2, 3, 8
    q = d.input("q", batch, d.choose([heads, 2, 8]), length, size)
    k, v = (
        _repeated(d, d.input(name, batch, groups, length, size), heads // groups) for name in "kv"
    )
    scores = d.add("MatMul", q, d.add("Transpose", k, perm=[0, 1, 3, 2]))
    shares = d.add("Softmax", d.add("Cast", scores, to=FLOAT), axis=-1)
    d.add("MatMul", d.add("Cast", shares, to=FLOAT), v)


def _repeated(d: Draft, x: str, times: int) -> str:
    batch, heads, length, size = d.feeds[x].shape
    wide = d.add("Unsqueeze", x, d.weight(np.array([d.choose([2, 1])])))
    sizes = np.array([batch, heads, times, length, size])
    wide = d.add("Expand", wide, d.weight(sizes)) if d.choose([1, 0]) else wide
    flat = [batch, heads * times, length, size], [batch, -1, length, size], [0, -1, length, size]
    return d.add("Reshape", wide, d.weight(np.array(d.choose(flat))))


def packed_heads(d: Draft) -> None:
    """Attention of what a Reshape splits into heads, joined again."""
    batch, heads, size = 2, 2, 8
    lengths = d.choose([(3, 5), (5, 5), (3, 1)])
    batches = d.choose([(2, 2, 2), (1, 2, 2), (2, 1, 1), (2, 2, 1), (1, 1, 1)])
    counts = d.choose([(heads, heads), (heads, 1), (4, 2), (1, 2)])
    parts = []
    for place, name in enumerate("qkv"):
        length, count = lengths[min(place, 1)], counts[min(place, 1)]
        x = d.input(name, batches[place], length, count * size)
        apart = [0, 0, count, size], [0, -1, count, size], [batches[place], length, count, size]
        view = d.add("Reshape", x, d.weight(np.array(d.choose(apart))))
        parts.append(d.add("Transpose", view, perm=[0, 2, 1, 3]))
    scores = d.add("MatMul", parts[0], d.add("Transpose", parts[1], perm=[0, 1, 3, 2]))
    scores = d.add("Mul", scores, d.number(size**-0.5, 0, 1))
    joined = d.add("MatMul", d.add("Softmax", scores, axis=-1), parts[2])
    turned = d.add("Transpose", joined, perm=[0, 2, 1, 3])
    d.add("Reshape", turned, d.weight(np.array(d.choose([[0, 0, heads * size], [batch, -1, 16]]))))


ROWS = {
    "attention": attention,
    "attention, bare": bare_attention,
    "attention, capped": capped_attention,
    "attention, chosen": chosen_attention,
    "attention, heads repeated": cast_attention,
    "attention, keys as they are": unturned_attention,
    "packed-heads": packed_heads,
}
