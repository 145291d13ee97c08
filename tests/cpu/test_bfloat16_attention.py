"""Attention that rounds the factors of its products to bfloat16, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import BF16, floats, narrow, require_kernels, session, softmax

from models import node
from tenonnx_cpu.attention.kernels import QUERIES
from tenonnx_cpu.jit.code.cpu import cpu

require_kernels()

pytestmark = pytest.mark.skipif(
    not cpu().bf16, reason="kernels are for a processor without bfloat16"
)

SHAPES = {
    "one block": (1, 2, 40, 50, 64, 64),
    "blocks": (2, 3, 100, 300, 32, 48),
    "rests": (1, 2, 83, 257, 81, 21),
    "few keys": (1, 1, 9, 5, 16, 100),
    "large heads": (1, 1, 30, 520, 300, 256),
    "a whole task": (1, 2, QUERIES, 300, 64, 64),
    "tasks": (1, 1, 3 * QUERIES - 20, 260, 64, 64),
}


def attend(q: Any, k: Any, v: Any, bias: Any = 0.0, cap: float = 0.0) -> tuple[Any, Any]:
    """Return what rounded factors give, and how far weights of 8 bits may be from it."""
    scores = narrow(q) @ narrow(k).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = softmax((cap * np.tanh(scores / cap) if cap else scores) + bias)
    return weights @ narrow(v), 2.0**-8 * (weights @ np.abs(narrow(v))) + 1e-5


def check(y: Any, expected: tuple[Any, Any]) -> None:
    right, near = expected
    assert (np.abs(y - right) <= near).all()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", ["plain", "mask", "seen", "causal", "capped"])
def test_factors_are_rounded_and_sums_are_not(
    shape: tuple[int, ...], kind: str, threads: int
) -> None:
    batch, heads, queries, keys, size, width = shape
    q, k = floats(batch, heads, queries, size), floats(batch, heads, keys, size, seed=1)
    v = floats(batch, heads, keys, width, seed=2)
    feeds, more, bias, cap = {"q": q, "k": k, "v": v}, {}, np.zeros((queries, keys)), 0.0
    kinds = {}
    if kind == "mask":
        bias = floats(queries, keys, seed=3)
        bias[:, 1::3] = -np.inf
        feeds["mask"] = bias
    elif kind == "seen":
        feeds["mask"] = np.arange(keys) % 3 != 1
        bias = np.where(feeds["mask"], 0.0, -np.inf)
        feeds["mask"], kinds = np.broadcast_to(feeds["mask"], (queries, keys)).copy(), {"mask": 9}
    elif kind == "causal":
        more, bias = {"is_causal": 1}, np.where(np.tri(queries, keys, dtype=bool), 0.0, -np.inf)
    elif kind == "capped":
        more, cap = {"softcap": 2.0}, 2.0
    names = "q k v mask" if "mask" in feeds else "q k v"
    one = session(
        [node("Attention", names, "y", **more)], feeds, "y",
        opset=23, threads=threads, kinds=kinds, provider=BF16,
    )  # fmt: skip
    check(one.run(None, feeds)[0], attend(q, k, v, bias, cap))


def test_large_scores_and_rows_without_keys() -> None:
    q, k, v = floats(1, 1, 20, 64, scale=30), floats(1, 1, 600, 64, seed=1), floats(1, 1, 600, 64)
    mask = np.zeros((20, 600), np.float32)
    mask[3], mask[4, :256] = -np.inf, -np.inf
    feeds = {"q": q, "k": k, "v": v, "mask": mask}
    one = session([node("Attention", "q k v mask", "y")], feeds, "y", opset=23, provider=BF16)
    plain = session([node("Attention", "q k v mask", "y")], feeds, "y", opset=23)
    y, z = one.run(None, feeds)[0], plain.run(None, feeds)[0]
    assert np.abs(y - z)[:, :, 5:].max() > 1e-4
    right, near = attend(q, k, v, mask)
    rows = [n for n in range(20) if n != 3]
    check(y[:, :, rows], (right[:, :, rows], near[:, :, rows] + 1e-4))
    np.testing.assert_array_equal(y[:, :, 3], z[:, :, 3])


def test_group_query_attention_rounds_too() -> None:
    length, heads, size = 70, 4, 32
    q, k, v = (floats(1, length, n * size, seed=n) for n in (heads, 2, 2))
    feeds = {"q": q, "k": k, "v": v, "filled": np.array([length - 1], np.int32)}
    feeds["total"] = np.array(length, np.int32)
    one = session(
        [node("GroupQueryAttention", "q k v _ _ filled total", "y",
              domain="com.microsoft", num_heads=heads, kv_num_heads=2)],
        feeds, "y", kinds={"filled": 6, "total": 6}, domains={"com.microsoft": 1}, provider=BF16,
    )  # fmt: skip
    y = one.run(None, feeds)[0].reshape(1, length, heads, size).swapaxes(1, 2)
    q, k, v = (x.reshape(1, length, -1, size).swapaxes(1, 2) for x in (q, k, v))
    bias = np.where(np.tri(length, dtype=bool), 0.0, -np.inf)
    check(y, attend(q, *(x.repeat(2, 1) for x in (k, v)), bias))
