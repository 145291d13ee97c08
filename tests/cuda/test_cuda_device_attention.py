"""Attention by cuDNN on a device; skipped where there is no device, or no cuDNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from kernel_calls import BFLOAT16, draw
from test_cuda_attention import attended
from test_cuda_attention_cudnn import KEYS, MASKS, QUERIES, heads

import tenonnx
from models import model, node, value
from tenonnx.provider import why_unusable
from tenonnx_cuda.cudnn.plans import Cudnn
from tenonnx_cuda.provider import CUDAExecutionProvider

MISSING = why_unusable(CUDAExecutionProvider)

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

ERRORS = {np.dtype(np.float16): 3e-3, BFLOAT16: 2e-2}
"""Of all results together, by what factors are rounded to."""

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "all": {},
    "causal": {"is_causal": 1},
    "capped": {"softcap": 3.0, "is_causal": 1},
    "around": {"left_window_size": 5, "right_window_size": 3},
    "behind": {"left_window_size": 9, "is_causal": 1},
}


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The plans that cuDNN started."""
    from tenonnx_cuda.cupy_platform import connect

    if connect(0).cudnn is None:
        pytest.skip("cuDNN is not installed")
    plans: list[Any] = []
    start = Cudnn._again

    def counted(self: Cudnn, plan: Any, *addresses: int) -> None:
        plans.append(plan)
        start(self, plan, *addresses)

    monkeypatch.setattr(Cudnn, "_again", counted)
    yield plans
    assert plans, "cuDNN did it"


def opened(
    op: str, feeds: dict[str, Any], *, version: int = 25, inputs: str = "", domain: str = "",
    options: dict[str, Any] | None = None, **attributes: Any,
) -> tenonnx.InferenceSession:  # fmt: skip
    """A session of one node, and another one, so that what it makes is read on the device."""
    kinds = {k: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for k, a in feeds.items()}
    nodes = [
        node(op, inputs or " ".join(feeds), "a", domain=domain, **attributes),
        node("Neg", "a", "y"),
    ]
    given = [value(name, kinds[name], array.shape) for name, array in feeds.items()]
    domains = {domain: 1} if domain else {}
    made = model(nodes, given, [value("y", kinds["q"], None)], opset=version, domains=domains)
    own = {"sdpa_kernel": 8, **(options or {})}
    return tenonnx.InferenceSession(made, providers=[("cuda", own), "cpu"])


def near(actual: Any, expected: Any) -> None:
    limit, wide = ERRORS[np.dtype(actual.dtype)], actual.astype(np.float64)
    assert np.isfinite(wide).all()
    assert np.linalg.norm(wide + expected) <= limit * np.linalg.norm(expected)


@pytest.mark.parametrize("dtype", ERRORS, ids=str)
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attention(name: str, dtype: Any) -> None:
    """Of fewer queries than keys, and of as many; with the first runs' steps, and repeated."""
    attributes = ATTRIBUTES[name]
    window = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    for keys in (KEYS, QUERIES):
        q, k, v = heads(dtype, keys=keys)
        expected = attended(q, k, v, causal="is_causal" in attributes, window=window,
                            softcap=attributes.get("softcap", 0.0))  # fmt: skip
        session = opened("Attention", {"q": q, "k": k, "v": v}, **attributes)
        for _ in range(3):
            near(session.run(None, {"q": q, "k": k, "v": v})[0], expected)


@pytest.mark.parametrize("size", [64, 80, 128, 256])
def test_heads_of_several_sizes_behind_a_cache(size: int) -> None:
    q, k, v = (draw(i, 2, h, 128, size, dtype=np.float16) for i, h in enumerate((8, 2, 2)))
    past = [draw(i, 2, 2, 200, size, dtype=np.float16) for i in (3, 4)]
    feeds = {"q": q, "k": k, "v": v, "pk": past[0], "pv": past[1]}
    whole = [np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True)]
    expected = attended(q, *whole, before=200, causal=True)
    session = opened("Attention", feeds, inputs="q k v _ pk pv", is_causal=1)
    near(session.run(None, feeds)[0], expected)


@pytest.mark.parametrize("dtype", ERRORS, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str, dtype: Any) -> None:
    (q, k, v), mask = heads(dtype), MASKS[name](dtype)
    feeds = {"q": q, "k": k, "v": v, "m": mask}
    for causal in (0, 1):
        session = opened("Attention", feeds, is_causal=causal)
        expected = attended(q, k, v, mask=mask, causal=bool(causal))
        near(session.run(None, feeds)[0], expected)


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_of_several_lengths(causal: int) -> None:
    q, k, v = heads(np.float16)
    lengths = np.array([KEYS, 40])
    feeds = {"q": q, "k": k, "v": v, "n": lengths}
    before = (lengths - QUERIES).reshape(-1, 1, 1, 1)
    expected = attended(q, k, v, before=before, causal=bool(causal), lengths=lengths)
    session = opened("Attention", feeds, inputs="q k v _ _ _ n", is_causal=causal)
    near(session.run(None, feeds)[0], expected)


@pytest.mark.parametrize("beyond", [0.0, np.nan])
@pytest.mark.parametrize("graphed", [False, True])
def test_prompts_of_several_lengths(graphed: bool, beyond: float) -> None:
    """Behind a cache with room, of which nothing is known beyond its sequences' ends."""
    steps, room, size = 80, 448, 64
    session = None
    for seed, totals in enumerate([(150, 90), (120, 160), (80, 81), (192, 80)]):
        ends = np.array(totals)
        draws = [draw(seed + 9 * i, 2, steps, h * size, dtype=np.float16)
                 for i, h in enumerate((8, 2, 2))]  # fmt: skip
        feeds = dict(zip("qkv", draws, strict=True))
        feeds |= {n: draw(seed + 50 + i, 2, 2, room, size, dtype=np.float16)
                  for i, n in enumerate(("pk", "pv"))}  # fmt: skip
        for i, end in enumerate(totals):
            feeds["pk"][i, :, end:] = feeds["pv"][i, :, end:] = beyond
        feeds |= {"s": (ends - 1).astype(np.int32), "t": np.array(max(totals), np.int32)}
        if session is None:
            session = opened(
                "GroupQueryAttention", feeds, domain="com.microsoft", num_heads=8, kv_num_heads=2,
                options={"enable_cuda_graph": graphed},
            )  # fmt: skip
        caches = [feeds[n].copy() for n in ("pk", "pv")]
        for cache, new in zip(caches, draws[1:], strict=True):
            apart = new.reshape(2, steps, 2, size).swapaxes(1, 2)
            for i, end in enumerate(totals):
                cache[i, :, end - steps : end] = apart[i]
        q = draws[0].reshape(2, steps, 8, size).swapaxes(1, 2)
        whole = [np.nan_to_num(cache) for cache in caches]
        expected = attended(q, *whole, before=(ends - steps).reshape(-1, 1, 1, 1), causal=True,
                            lengths=ends)  # fmt: skip
        actual = session.run(None, feeds)[0]
        near(actual, expected.swapaxes(1, 2).reshape(2, steps, -1))


def test_a_graph_attends() -> None:
    session = None
    for seed in range(5):
        q, k, v = (draw(seed + 10 * i, 2, 8, 160, 64, dtype=np.float16) for i in range(3))
        feeds = {"q": q, "k": k, "v": v}
        if session is None:
            session = opened("Attention", feeds, is_causal=1, options={"enable_cuda_graph": True})
        near(session.run(None, feeds)[0], attended(q, k, v, causal=True))
