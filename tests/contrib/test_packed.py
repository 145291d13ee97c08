"""Operators that onnxruntime 1.32 has on CUDA alone, against formulas; and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from draw import real
from formulas import run, sigmoid
from rows import Row, feeds_of, model_of

import tenonnx


def test_a_gate_that_is_projected() -> None:
    x, y = (real(2, 3, 4, dtype=ml_dtypes.bfloat16) for _ in range(2))
    rows, weight = (
        real(*shape, dtype=ml_dtypes.bfloat16, scale=0.25) for shape in ((2, 3, 8), (8, 1))
    )
    (z,) = run("GatedAdd", x, y, rows, weight)
    gate = np.float32(rows) @ np.float32(weight)
    for step in (lambda v: v, sigmoid, lambda v: v * np.float32(y), lambda v: v + np.float32(x)):
        gate = np.float32(step(gate).astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(np.float32(z), gate)


def test_a_limit_behind_the_activation() -> None:
    tokens, scores = real(4, 6), np.zeros((4, 1), np.float32)
    first, second = real(1, 16, 6), real(1, 6, 8)
    given = {"activation_type": "swiglu", "swiglu_fusion": 2, "swiglu_limit": 0.5, "k": 1}
    (y,) = run(
        "MoE", tokens, scores, first, None, second,
        activation_alpha=1.5, activation_beta=1.0, swiglu_limit_after_activation=1, **given,
    )  # fmt: skip
    hidden = np.float64(tokens) @ np.float64(first[0]).T
    gate, value = hidden[:, :8], np.clip(hidden[:, 8:], -0.5, 0.5)
    active = np.minimum(gate * sigmoid(1.5 * gate), 0.5) * (value + 1)
    np.testing.assert_allclose(y, active @ np.float64(second[0]).T, rtol=1e-4, atol=1e-5)


def test_epsilons_of_queries_and_keys() -> None:
    q, k, v = real(1, 3, 32), real(1, 3, 16), real(1, 3, 16)
    ones = np.ones(16, np.float32)
    counts = np.array([2], np.int32), np.array([3], np.int32)
    rest: list[Any] = [None, None, *counts, *[None] * 7, ones, ones]
    heads = {"num_heads": 2, "kv_num_heads": 1}
    (y,) = run(
        "GroupQueryAttention", q, k, v, *rest, **heads, q_norm_epsilon=0.5, k_norm_epsilon=0.25
    )

    def normed(x: Any, epsilon: float) -> Any:
        heads = x.reshape(1, 3, -1, 16)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + epsilon)).reshape(x.shape)

    plain = [None, None, *counts]
    (z,) = run("GroupQueryAttention", normed(q, 0.5), normed(k, 0.25), v, *plain, **heads)
    np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("totals", "valid"), [([5, 4], [3, 2]), ([12, 7], [3, 2]), ([12, 7], [1, 3]), ([3, 9], [0, 3])]
)
def test_caches_of_the_last_tokens_with_padding(totals: list[int], valid: list[int]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    q, k, v, keys, values = real(2, 3, 16), *(real(2, 3, 8) for _ in "kv"), *[real(2, 1, 8, 8)] * 2
    lengths = np.array(totals, np.int32) - 1, np.array([max(totals)], np.int32)
    row = Row(
        "GroupQueryAttention",
        [q, k, v, keys, values, *lengths, *[None] * 9, np.array(valid, np.int32)],
        {
            "num_heads": 2,
            "kv_num_heads": 1,
            "local_window_size": 4,
            "sliding_window_cache": 1,
        },
        (0, 1, 2),
    )
    ours, theirs = (
        runtime.InferenceSession(
            model_of(row).SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, feeds_of(row))
        for runtime in (tenonnx, onnxruntime)
    )
    for entry, (total, count) in enumerate(zip(totals, valid, strict=True)):
        held = total if total <= 8 else total - 5 * -(-(total - 8) // 5)
        np.testing.assert_allclose(ours[0][entry, :count], theirs[0][entry, :count], atol=1e-6)
        for mine, other in zip(ours[1:], theirs[1:], strict=True):
            assert np.array_equal(mine[entry, :, :held], other[entry, :, :held])


@pytest.mark.parametrize(
    ("operator", "inputs", "given", "said"),
    [
        (
            "CausalConvWithState",
            [real(1, 6, 5), real(6, 1, 4)],
            {"state_length": 5},
            "state_update_capacity of 0",
        ),
        (
            "VarlenCausalConvWithState",
            [real(3, 6), real(6, 1, 4), np.array([0, 2, 2, 3], np.int32), None, real(3, 6, 3)],
            {},
            "to go up from 0 to 3",
        ),
        (
            "VarlenCausalConvWithState",
            [real(3, 6), real(6, 1, 4), np.array([0, 9], np.int32), None, real(1, 6, 3)],
            {},
            "to go up from 0 to 3",
        ),
        ("MoEGroupRouter", [real(2, 5), real(5)], {"top_k": 1, "n_group": 2}, "5 experts"),
        (
            "GroupQueryAttention",
            [
                real(1, 3, 16), real(1, 3, 16), real(1, 3, 16), real(1, 1, 8, 16),
                real(1, 1, 8, 16), np.array([4], np.int32), np.array([5], np.int32),
                *[None] * 9, np.array([4], np.int32),
            ],
            {"num_heads": 1, "kv_num_heads": 1},
            "query_seqlens of 0 to",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    operator: str, inputs: list[Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(tenonnx.TenonnxError, match=said):
        run(operator, *inputs, outputs=(0, 1), **given)
