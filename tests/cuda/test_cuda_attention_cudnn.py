"""Attention by cuDNN: what it is given, and when it is not asked."""

from __future__ import annotations

import logging
from typing import Any

import emulated
import numpy as np
import onnx
import pytest
from cudnn_stand_in import Engine, Library, cudnn
from kernel_calls import BFLOAT16, chosen, close, draw, needs_compiler
from test_cuda_attention import attended

from models import model, node, value
from tenonnx_cuda.capture.graph import GraphedSteps

pytestmark = needs_compiler  # of kernels around cuDNN's

HALVES = [np.float16, BFLOAT16]

QUERIES, KEYS = 70, 93

MASKS: dict[str, Any] = {
    "added": lambda dtype: draw(5, QUERIES, KEYS, dtype=dtype),
    "hidden": lambda _: draw(6, 2, 1, QUERIES, KEYS) > 0,
    "of heads": lambda dtype: draw(7, 1, 4, QUERIES, KEYS, dtype=dtype),
    "of keys": lambda _: draw(8, 2, 1, 1, KEYS) > 1,
    "nothing seen": lambda _: draw(9, 2, 1, QUERIES, 1) + np.zeros(KEYS) > 0,
    "hardly": lambda dtype: np.where(draw(10, QUERIES, KEYS) > 0, 0, limit(dtype)).astype(dtype),
}


def limit(dtype: Any) -> float:
    """The least number, by which exporters hide keys."""
    return -65504.0 if dtype == np.float16 else -3.38e38


def heads(dtype: Any, queries: int = QUERIES, keys: int = KEYS) -> list[Any]:
    shapes = ((2, 4, queries, 64), (2, 2, keys, 64), (2, 2, keys, 72))
    return [draw(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    "attributes",
    [{}, {"is_causal": 1}, {"softcap": 3.0, "scale": 0.5},
     {"left_window_size": 5, "right_window_size": 3}, {"left_window_size": 9, "is_causal": 1}],
    ids=str,
)  # fmt: skip
def test_cudnn_is_told_what_is_meant(attributes: dict[str, Any], dtype: Any) -> None:
    q, k, v = heads(dtype)
    library = Library()
    run = chosen("Attention", 25, cudnn=cudnn(library), **attributes)
    window = attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)
    scale = attributes.get("scale", 0.125) * 8
    expected = attended(
        q * np.asarray(scale, dtype), k, v, causal="is_causal" in attributes, window=window,
        softcap=attributes.get("softcap", 0.0),
    )  # fmt: skip
    close(run(q, k, v)[0], expected, dtype)
    assert len(library.started) == 3
    past = draw(3, 2, 2, 20, 64, dtype=dtype), draw(4, 2, 2, 20, 72, dtype=dtype)
    run = chosen("Attention", 25, cudnn=cudnn(library), **attributes)
    new = k[:, :, :QUERIES], v[:, :, :QUERIES]
    whole = [np.concatenate(pair, 2) for pair in zip(past, new, strict=True)]
    expected = attended(
        q * np.asarray(scale, dtype), *whole, before=20, causal="is_causal" in attributes,
        window=window, softcap=attributes.get("softcap", 0.0),
    )  # fmt: skip
    close(run(q, *new, None, *past)[0], expected, dtype)
    assert len(library.started) == 6


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", MASKS)
def test_masks_are_added_and_who_sees_nothing_gets_zeros(name: str, dtype: Any) -> None:
    (q, k, v), mask = heads(dtype), MASKS[name](dtype)
    library = Library()
    for causal in (0, 1):
        run = chosen("Attention", 25, cudnn=cudnn(library), is_causal=causal)
        close(run(q, k, v, mask)[0], attended(q, k, v, mask=mask, causal=bool(causal)), dtype)
    assert len(library.started) == 6


@pytest.mark.parametrize("causal", [0, 1])
def test_keys_of_several_lengths_and_heads_that_are_packed(causal: int) -> None:
    q, k, v = heads(np.float16)
    lengths = np.array([KEYS, 40])
    packed = [x.swapaxes(1, 2).reshape(2, x.shape[2], -1) for x in (q, k, v)]
    library = Library()
    run = chosen("Attention", 24, cudnn=cudnn(library), q_num_heads=4, kv_num_heads=2,
                 is_causal=causal)  # fmt: skip
    y = run(*packed, None, None, None, lengths)[0]
    before = (lengths - QUERIES).reshape(-1, 1, 1, 1)
    expected = attended(q, k, v, before=before, causal=bool(causal), lengths=lengths)
    close(y, expected.swapaxes(1, 2).reshape(2, QUERIES, -1), np.float16)
    assert library.started


@pytest.mark.parametrize("totals", [(120, 80), (80, 31)], ids=str)
def test_prompts_of_several_lengths(totals: tuple[int, int]) -> None:
    """Of a cache that goes on, and of a first prompt; what is beyond a length may be anything."""
    steps, size, dtype = 80, 32, np.float16
    room = 128 if totals[0] > steps else 80
    q, k, v = (draw(i, 2, steps, h * size, dtype=dtype) for i, h in enumerate((4, 2, 2)))
    library, ends = Library(), np.array(totals)
    run = chosen(
        "GroupQueryAttention", 1, domain="com.microsoft", outputs=3, num_heads=4, kv_num_heads=2,
        cudnn=cudnn(library),
    )  # fmt: skip
    past: list[Any] = [None, None]
    if room > steps:
        past = [draw(i, 2, 2, room, size, dtype=dtype) for i in (3, 4)]
        for cache, end in zip(past[1], totals, strict=True):
            cache[:, end:] = np.nan
    host = (ends - 1).astype(np.int32), np.array(totals[0], np.int32)
    y, keys, values, _ = run(q, k, v, *past, *host, host=(6,))
    before = np.maximum(ends - steps, 0).reshape(-1, 1, 1, 1)
    apart = q.reshape(2, steps, 4, size).swapaxes(1, 2)
    values = np.nan_to_num(values)
    expected = attended(apart, keys, values, before=before, causal=True, lengths=ends)
    for i, end in enumerate(totals):
        expected[i, :, min(end, steps) :] = 0
    close(y, expected.swapaxes(1, 2).reshape(2, steps, -1), dtype)
    assert library.started


@pytest.mark.parametrize("able", [True, False])
def test_what_has_not_run_is_not_captured(caplog: pytest.LogCaptureFixture, able: bool) -> None:
    """The first start of a plan does what a graph would not repeat."""
    kind, caches = onnx.TensorProto.FLOAT16, [(2, 2, "n", size) for size in (64, 72)]
    given = zip(("k", "v", "pk", "pv"), 2 * caches, strict=True)
    made = model(
        [node("Neg", "q", "a"), node("Attention", "a k v _ pk pv", "y nk nv", is_causal=1)],
        [value("q", kind, (2, 4, "s", 64)), *(value(name, kind, shape) for name, shape in given)],
        [value("y", kind, None), value("nk", kind, None), value("nv", kind, None)],
        opset=23,
    )  # fmt: skip
    platform, library = emulated.FakePlatform(), Library(Engine(serves_all=able))
    platform.cudnn = cudnn(library)
    provider = emulated.provider_on(platform)
    session = emulated.session(made, provider, provider_options={"enable_cuda_graph": True})
    q, k, v = heads(np.float16, keys=QUERIES)
    past = [draw(i, 2, 2, 200, size, dtype=np.float16) for i, size in enumerate((64, 72), 3)]
    whole = [np.concatenate(pair, 2) for pair in zip(past, (k, v), strict=True)]
    expected = attended(-q, *whole, before=200, causal=True)
    feeds = {"q": q, "k": k, "v": v, "pk": past[0], "pv": past[1]}
    with caplog.at_level(logging.WARNING, "tenonnx"):
        for _ in range(4):
            close(session.run(None, feeds)[0], expected, np.float16)
    said = "a run is not captured, and goes on without: cuDNN has not run attention"
    assert (said in caplog.text) == able
    assert len(library.started) == (4 if able else 0)
    calls = [step.call for step in session.plan.steps]
    replays = sum(call.replays for call in calls if isinstance(call, GraphedSteps))
    assert (replays > 0) != able


def test_one_kernel_serves_all_lengths() -> None:
    library = Library()
    connected = cudnn(library)
    for queries, keys in ((64, 64), (100, 131), (77, 205)):
        run = chosen("Attention", 23, cudnn=connected, is_causal=1)
        q, k, v = heads(np.float16, queries, keys)
        close(run(q, k, v)[0], attended(q, k, v, causal=True), np.float16)
    assert len(library.compiled) == 1
    assert len(library.started) == 9


def test_kernels_for_lengths_alone_are_compiled_where_they_are_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    library = Library(Engine(serves_all=False))
    q, k, v = heads(np.float16)
    with caplog.at_level(logging.WARNING, "tenonnx"):
        chosen("Attention", 23, cudnn=cudnn(library))(q, k, v)
    assert "no way for attention of (2, 4, 70, 64) to (2, 2, 93, 64)" in caplog.text
    assert not library.compiled
    run = chosen("Attention", 23, cudnn=cudnn(library), sdpa_kernel=8)
    close(run(q, k, v)[0], attended(q, k, v), np.float16)
    assert len(library.compiled) == 1


@pytest.mark.parametrize("steps", [QUERIES, "n"])
def test_where_a_model_has_no_other_lengths_a_kernel_is_compiled_for_them(steps: Any) -> None:
    given = [value(name, onnx.TensorProto.FLOAT16, (2, 4, steps, 64)) for name in "qkv"]
    made = model([node("Attention", "q k v", "y")], given,
                 [value("y", onnx.TensorProto.FLOAT16, None)], opset=23)  # fmt: skip
    platform, library = emulated.FakePlatform(), Library(Engine(serves_all=False))
    platform.cudnn = cudnn(library)
    session = emulated.session(made, emulated.provider_on(platform))
    q, k, v = (draw(i, 2, 4, QUERIES, 64, dtype=np.float16) for i in range(3))
    close(session.run(None, {"q": q, "k": k, "v": v})[0], attended(q, k, v), np.float16)
    assert len(library.compiled) == (steps == QUERIES)


def test_where_a_plan_fails_a_kernel_of_the_provider_does_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connected = cudnn(Library(Engine(fails=True)))
    with caplog.at_level(logging.WARNING, "tenonnx"):
        for keys in (KEYS, QUERIES):
            q, k, v = heads(np.float16, keys=keys)
            y = chosen("Attention", 23, cudnn=connected)(q, k, v)[0]
            close(y, attended(q, k, v), np.float16)
    assert [record.message.partition(" at ")[0] for record in caplog.records] == ["cuDNN failed"]


OTHERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "few queries": (heads(np.float16, queries=8), {}),
    "float32": (heads(np.float32), {}),
    "odd heads": ([x[..., :60] for x in heads(np.float16)], {}),
    "another kernel": (heads(np.float16), {"sdpa_kernel": 1}),
    "older devices": (heads(np.float16), {"capability": (7, 5)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_cudnn_is_not_asked(name: str) -> None:
    (q, k, v), options = OTHERS[name]
    library = Library()
    run = chosen("Attention", 23, cudnn=cudnn(library), is_causal=1, **options)
    close(run(q, k, v)[0], attended(q, k, v, causal=True), q.dtype)
    assert not library.alive or not library.started
