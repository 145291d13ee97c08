"""Operators and attributes that onnxruntime's CPU provider lacks or differs in, by formula."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from formulas import RNG, attended, bytes_of, close, nibbles, real, rms, run, sigmoid, softmax

import tenonnx


@pytest.mark.parametrize("packed", [True, False])
def test_groups_of_columns_have_their_zero_points(packed: bool) -> None:
    codes, scales = bytes_of(6, 4, 8), np.abs(real(6, 4)) + 1
    groups = RNG.permutation(np.arange(64) // 16).astype(np.int32)
    zeros = bytes_of(6, 2)
    w = nibbles(codes).reshape(6, 64) - np.float64(nibbles(zeros))[:, groups]
    w *= scales[:, groups]
    x = real(3, 64)
    points = zeros if packed else nibbles(zeros).astype(np.float32)
    (y,) = run("MatMulNBits", x, codes, scales, points, groups, K=64, N=6, bits=4, block_size=16)
    close(y, x @ w.T, 1e-4)


def test_weights_are_dequantized_a_tile_at_a_time() -> None:
    n, k = 3000, 512
    codes, scales = bytes_of(n, k // 32, 16), np.abs(real(n, k // 32))
    x = real(2, k)
    w = (nibbles(codes).astype(np.float64) - 8) * scales[:, :, None]
    (y,) = run("MatMulNBits", x, codes, scales, K=k, N=n, bits=4, block_size=32)
    close(y, x @ w.reshape(n, k).T, 1e-3)


def test_weights_for_another_device_are_refused() -> None:
    with pytest.raises(tenonnx.RuntimeException, match="weight_prepacked=1"):
        run(
            "MatMulNBits", real(1, 32), bytes_of(2, 1, 16), real(2, 1),
            K=32, N=2, block_size=32, weight_prepacked=1,
        )  # fmt: skip


def test_queries_and_keys_are_normed() -> None:
    heads = [real(1, 3, 16) for _ in range(3)]
    weights = [real(8) for _ in range(2)]
    lengths = [np.array([2], np.int32), np.array(3, np.int32)]
    y, *_ = run(
        "GroupQueryAttention", *heads, None, None, *lengths, *[None] * 7, *weights,
        num_heads=2, kv_num_heads=2,
    )  # fmt: skip
    q, k, v = (x.reshape(3, 2, 8).swapaxes(0, 1) for x in heads)
    q, k = rms(q) * weights[0], rms(k) * weights[1]
    expected = [attended(q[h], k[h], v[h], np.tri(3, dtype=bool)) for h in range(2)]
    close(y, np.concatenate(expected, -1)[None])


@pytest.mark.parametrize("packing", ["all", "keys"])
def test_packed_heads_are_heads(packing: str) -> None:
    q, k, v = (real(2, 3, 2, 8) for _ in range(3))
    if packing == "all":
        inputs = [np.stack((q, k, v), axis=3)]
    else:
        inputs = [q.reshape(2, 3, 16), np.stack((k, v), axis=3)]
    actual = run("MultiHeadAttention", *inputs, num_heads=2, outputs=(0, 1, 2, 3))
    apart = [x.reshape(2, 3, 16) for x in (q, k, v)]
    for a, b in zip(
        actual, run("MultiHeadAttention", *apart, num_heads=2, outputs=(0, 1, 2, 3)), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8)
    close(actual[3], softmax(scores))


def test_rotary_of_the_merged_attention_has_base_10000() -> None:
    x, w = real(1, 5, 6), real(6, 3 * 16)
    places, rates = np.arange(5)[:, None], 10000.0 ** (-np.arange(0, 8, 2) / 8)
    caches = [f(places * rates).astype(np.float32) for f in (np.cos, np.sin)]
    q, k, v = np.split(x @ w, 3, axis=-1)
    at = np.arange(5)[None]
    q, k = (run("RotaryEmbedding", part, at, *caches)[0] for part in (q, k))
    (expected,) = run("MultiHeadAttention", q, k, v, num_heads=2, unidirectional=1)
    (y,) = run("Attention", x, w, num_heads=2, unidirectional=1, do_rotary=1)
    close(y, expected, 1e-4)


@pytest.mark.parametrize("layout", ["SEPARATE", "LATENT"])
def test_pages_are_a_cache(layout: str) -> None:
    latent, half = layout == "LATENT", np.float16
    past, ends, size = [5, 0, 3], [0, 1, 5, 7], 4
    blocks = np.array([[3, 1], [7, 8], [2, 9]], np.int32)
    groups = 1 if latent else 2
    q, k, v = real(7, 32, dtype=half), *(real(7, 8 * groups, dtype=half) for _ in range(2))
    caches = [real(12, size, groups, 8, dtype=half) for _ in range(2)]
    wide = 6 if latent else 8
    named = {"kv_cache_layout": layout, "v_head_size": wide} if latent else {}
    inputs = [np.array(values, np.int32) for values in (ends, past)]
    outputs = (0, 1) if latent else (0, 1, 2)
    given = (q, k, None, caches[0], None) if latent else (q, k, v, *caches)
    y, *after = run(
        "PagedAttention", *given, *inputs, blocks,
        num_heads=4, kv_num_heads=groups, scale=0.25, outputs=outputs, **named,
    )  # fmt: skip
    for request, (start, stop) in enumerate(itertools.pairwise(ends)):
        total = past[request] + stop - start
        held = [cache[blocks[request]].reshape(-1, groups, 8)[:total] for cache in after]
        np.testing.assert_array_equal(
            held[0][past[request] :], k[start:stop].reshape(-1, groups, 8)
        )
        seen = np.arange(total) <= np.arange(past[request], total)[:, None]
        for h in range(4):
            keys = held[0][:, h * groups // 4]
            values = keys[:, :6] if latent else held[1][:, h * groups // 4]
            query = q[start:stop, 8 * h : 8 * h + 8] * (0.25 * math.sqrt(8))
            expected = attended(query, keys, values, seen)
            close(y[start:stop, wide * h : wide * h + wide], expected, 2e-3)


@pytest.mark.parametrize("name", ["int4", "float4e2m1", "int8"])
def test_pages_of_small_numbers(name: str) -> None:
    half, size = np.float16, 8
    q, k, v = (real(3, size, dtype=half) for _ in range(3))
    scale = np.full(1, 0.5, np.float32)
    kind, width = (np.int8, size) if name == "int8" else (np.uint8, size // 2)
    caches = [np.zeros((1, 4, 1, width), kind) for _ in range(2)]
    y, *after = run(
        "PagedAttention", q, k, v, *caches, np.array([0, 3], np.int32), np.zeros(1, np.int32),
        np.zeros((1, 1), np.int32), *[None] * 6, scale, scale,
        num_heads=1, kv_num_heads=1, k_quant_type="PER_TENSOR", v_quant_type="PER_TENSOR",
        k_cache_dtype=name, v_cache_dtype=name, outputs=(0, 1, 2),
    )  # fmt: skip
    if name == "float4e2m1":
        rounded = [(x / 0.5).astype(ml_dtypes.float4_e2m1fn).astype(np.float64) / 2 for x in (k, v)]
    else:
        rounded = [np.clip(np.rint(np.float64(x) / 0.5), -8, 7) / 2 for x in (k, v)]
    close(y, attended(q, *rounded, np.tri(3, dtype=bool)), 2e-3)
    assert [cache.dtype for cache in after] == [kind, kind]


@pytest.mark.parametrize("fusion", [0, 1, 2])
def test_experts_with_gates(fusion: int) -> None:
    x, scores = real(3, 4), real(3, 2)
    gate, value, down = real(2, 5, 4), real(2, 5, 4), real(2, 4, 5)
    named = {"activation_type": "swiglu", "swiglu_fusion": fusion, "activation_alpha": 1.5}
    if fusion == 0:
        inputs = [gate, None, down, None, value]
    elif fusion == 1:
        inputs = [np.stack((gate, value), 2).reshape(2, 10, 4), None, down]
    else:
        inputs = [np.concatenate((gate, value), 1), None, down]
    (y,) = run("MoE", x, scores, *inputs, k=1, normalize_routing_weights=1, **named)
    for token, best in enumerate(scores.argmax(1)):
        g, v = gate[best] @ x[token], value[best] @ x[token]
        close(y[token], down[best] @ (g * sigmoid(1.5 * g) * v))


def test_blocks_of_bytes_keep_their_activations() -> None:
    x, scores = real(3, 16), np.zeros((3, 1), np.float32)
    codes, scales = bytes_of(1, 16, 16), np.abs(real(1, 16, 1))
    (y,) = run(
        "QMoE", x, scores, codes, scales, None, codes, scales,
        expert_weight_bits=8, block_size=16, activation_type="identity",
    )  # fmt: skip
    w = (np.float64(codes[0]) - 128) * scales[0]
    close(y, x @ w.T @ w.T, 1e-4)


def test_experts_of_small_floats() -> None:
    x, scores = real(3, 32), np.zeros((3, 1), np.float32)
    codes, everywhere = bytes_of(1, 32, 16), np.array([0.5], np.float32)
    scales = np.abs(real(1, 32, 1)).astype(ml_dtypes.float8_e8m0fnu)
    (y,) = run(
        "QMoE", x, scores, codes, scales, None, codes, scales, *[None] * 8, everywhere,
        everywhere, quant_type="fp4", activation_type="identity",
    )  # fmt: skip
    values = nibbles(codes).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    w = values[0] * scales[0].astype(np.float64) * 0.5
    close(y, x @ w.T @ w.T, 1e-4)


def test_two_experts_without_jitter() -> None:
    scores = np.array([[3.0, 2.99, 0, 1], [1, 5, 4.99, 4.95]], np.float32)
    weights = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
    (y,) = run(
        "MoE", np.ones((2, 1), np.float32), scores, weights, None, np.ones_like(weights),
        k=2, use_sparse_mixer=1,
    )  # fmt: skip
    first = 1 / (1 + math.exp(-0.01))
    second = [1 / (1 + math.exp(-0.01) + math.exp(-0.05)), 1 / (1 + math.exp(-0.04))]
    close(y[:, 0], [first * 1 + 1 * 2, second[0] * 2 + second[1] * 3])


@pytest.mark.parametrize("activations", [False, True])
def test_weights_of_eight_bit_floats(activations: bool) -> None:
    a = real(2, 20, dtype=np.float16)
    b = real(6, 20).astype(ml_dtypes.float8_e4m3fn)
    scales, unit = np.abs(real(6, 2)), np.array(0.25, np.float32)
    (y,) = run(
        "MatMulBlockQuantizedFp8Weight", a, b, scales, unit if activations else None,
        real(6, dtype=np.float16) * 0, block_size=16,
    )  # fmt: skip
    x = np.float64(a)
    if activations:
        x = (np.float32(a) / unit).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * unit
    w = b.astype(np.float64) * scales.repeat(16, axis=1)[:, :20]
    close(y, x @ w.T, 5e-3)


def test_weights_of_four_bit_floats() -> None:
    a, codes = real(2, 32, dtype=np.float16), bytes_of(6, 16)
    scales = np.abs(real(6, 2)).astype(ml_dtypes.float8_e4m3fn)
    (y,) = run(
        "MatMulBlockQuantizedFp4Weight",
        a,
        codes,
        scales.view(np.uint8),
        np.float32(0.5).reshape(()),
    )
    w = nibbles(codes).view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    w *= scales.astype(np.float64).repeat(16, axis=1) * 0.5
    close(y, np.float64(a) @ w.T, 5e-3)


def test_normal_floats_the_other_way_round() -> None:
    codes, scales = bytes_of(96), np.abs(real(12))
    given = {"K": 24, "N": 8, "block_size": 16, "quant_type": 1}
    (w,) = run("MatMulBnb4", np.eye(24, dtype=np.float32), codes, scales, **given)
    x = real(3, 8)
    (y,) = run("MatMulBnb4", x, codes, scales, transB=0, **given)
    close(y, x @ w.T, 1e-5)
