"""Layers, sums and norms that onnxruntime's CPU provider lacks, by formula."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from formulas import attended, close, gelu, real, rms, run, sigmoid, softmax

from tenonnx_array.nonlinear import hard_swish
from tenonnx_contrib.fused import activated


def test_sums_with_a_bias() -> None:
    x, bias, skip = real(2, 3, 8), real(8), real(2, 3, 8)
    close(run("BiasAdd", x, bias, skip)[0], x + bias + skip)
    left, right = np.split(x + bias, 2, axis=-1)
    close(run("BiasSplitGelu", x, bias)[0], left * gelu(right))


@pytest.mark.parametrize("inner", [0, 1])
def test_a_bias_before_softmax_repeats(inner: int) -> None:
    x = real(2, 3, 4, 5)
    bias = real(*((2, 1, 4, 5) if inner else (1, 3, 4, 5)))
    (y,) = run("BiasSoftmax", x, bias, axis=2, is_inner_broadcast=inner)
    close(y, softmax((x + bias).reshape(6, 20)).reshape(x.shape))


@pytest.mark.parametrize("last", [0, 1])
def test_norms_of_groups(last: int) -> None:
    shape = (2, 3, 4, 6) if last else (2, 6, 3, 4)
    x, gamma, beta, bias, skip = real(*shape), real(6), real(6), real(6), real(2, 6)
    first = np.moveaxis(x, -1, 1) if last else x
    total = first + (skip + bias)[:, :, None, None]

    def norm(values):
        groups = np.float64(values).reshape(2, 3, -1)
        groups = groups - groups.mean(-1, keepdims=True)
        groups = groups / np.sqrt((groups**2).mean(-1, keepdims=True) + 1e-5)
        y = groups.reshape(values.shape) * gamma[:, None, None] + beta[:, None, None]
        return np.moveaxis(y * sigmoid(y), 1, -1) if last else y * sigmoid(y)

    given = {"activation": 1, "channels_last": last, "groups": 3}
    close(run("GroupNorm", x, gamma, beta, **given)[0], norm(first))
    y, s = run("SkipGroupNorm", x, gamma, beta, skip, bias, outputs=(0, 1), **given)
    close(y, norm(total))
    close(s, np.moveaxis(total, 1, -1) if last else total)


def test_convolution_with_channels_last() -> None:
    x, w, b, z = real(1, 5, 5, 4), real(6, 3, 3, 2), real(6), real(1, 5, 5, 6)
    given = {"group": 2, "pads": [1, 1, 1, 1]}
    turned = [np.ascontiguousarray(np.moveaxis(a, -1, 1)) for a in (x, w, z)]
    (plain,) = run("FusedConv", *turned[:2], b, **given)
    (summed,) = run("FusedConv", *turned[:2], b, turned[2], activation="Relu", **given)
    close(run("NhwcConv", x, w, b, **given)[0], np.moveaxis(plain, 1, -1))
    (y,) = run("NhwcFusedConv", x, w, b, z, activation="Relu", **given)
    close(y, np.moveaxis(summed, 1, -1))


def test_activations_take_the_numbers_that_are_theirs() -> None:
    x, given = real(3, 4), {"alpha": None, "beta": 0.3, "gamma": 0.2}
    np.testing.assert_array_equal(activated(np, x, "Relu", given), np.maximum(x, 0))
    slope = activated(np, x, "LeakyRelu", given)
    np.testing.assert_array_equal(slope, activated(np, x, "LeakyRelu", [0.01]))
    np.testing.assert_array_equal(activated(np, x, "HardSwish", [0.1, 0.2]), hard_swish(np, x))


def test_padding_goes_and_comes_back() -> None:
    x, counts = real(3, 4, 5), np.array([1, 4, 2], np.int32)
    x[np.arange(4) >= counts[:, None]] = 0
    tokens, places, ends, longest = run("RemovePadding", x, counts, outputs=(0, 1, 2, 3))
    np.testing.assert_array_equal(ends, [0, 1, 5, 7])
    np.testing.assert_array_equal(longest, [4])
    np.testing.assert_array_equal(places.ravel(), [0, 4, 5, 6, 7, 8, 9, 1, 2, 3, 10, 11])
    np.testing.assert_array_equal(tokens[1:5], x[1])
    np.testing.assert_array_equal(run("RestorePadding", tokens, places)[0], x)


def test_attention_stays_within_its_sequence() -> None:
    x, w, b = real(7, 6), real(6, 48), real(48)
    ends, bias = np.array([0, 1, 5, 7], np.int32), real(1, 2, 4, 4)
    places = np.zeros((3, 4), np.int32)
    (y,) = run("PackedAttention", x, w, b, places, ends, bias, num_heads=2)
    rows = (x @ w + b).reshape(7, 3, 2, 8)
    for start, stop in itertools.pairwise(ends):
        for h in range(2):
            q, k, v = (rows[start:stop, i, h] for i in range(3))
            scores = q @ k.T / math.sqrt(8) + bias[0, h, : stop - start, : stop - start]
            close(y[start:stop, 8 * h : 8 * h + 8], softmax(scores) @ v, 1e-4)
    parts = [np.ascontiguousarray(rows[:, i]).reshape(7, 16) for i in range(3)]
    given = (places, ends, bias)
    (z,) = run("PackedMultiHeadAttention", *parts, None, *given, num_heads=2)
    close(z, y, 1e-4)
    merged = np.ascontiguousarray(np.stack(parts, 1).reshape(7, 3, 2, 8).swapaxes(1, 2))
    (z,) = run("PackedMultiHeadAttention", merged, None, None, None, *given, num_heads=2)
    close(z, y, 1e-4)
    start = b * 0 + 1
    (z,) = run("PackedMultiHeadAttention", *parts, start, places, ends, num_heads=2)
    q, k, v = (part[1:5, :8] + 1 for part in parts)
    close(z[1:5, :8], attended(q, k, v), 1e-4)


@pytest.mark.parametrize("both", [0, 1])
def test_buckets_of_distances(both: int) -> None:
    table = np.arange(8, dtype=np.float32)[:, None] + np.array([0, 100], np.float32)
    length = np.array([12], np.int64)
    (y,) = run(
        "RelativePositionBias", table, length, length, is_bidirectional=both, max_distance=10
    )
    # Of 4 buckets 2 are exact and one more begins at sqrt(2 * 10) = 4.5; of 8 half are exact.
    row = y[0, 0, 11] if both else y[0, 0, 11, ::-1]
    if both:
        np.testing.assert_array_equal(row[::-1], [0, 1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3])
        np.testing.assert_array_equal(y[0, 0, 0], [0, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7])
    else:
        np.testing.assert_array_equal(row, [0, 1, 2, 3, 4, 4, 5, 6, 7, 7, 7, 7])
        np.testing.assert_array_equal(y[0, 0, 0], [0] * 12)
    np.testing.assert_array_equal(y[0, 1], y[0, 0] + 100)


def test_gated_positions() -> None:
    x, bias, positions = real(2, 3, 8), real(8), real(1, 2, 3, 3)
    w, b, eco = real(4, 6), real(6), real(1, 2, 1, 1)
    (y,) = run("GatedRelativePositionBias", x, bias, positions, w, b, eco, num_heads=2)
    q = (x + bias).reshape(2, 3, 2, 4).swapaxes(1, 2)
    u, r = np.split(sigmoid((q @ w + b).reshape(2, 2, 3, 2, 3).sum(-1)), 2, axis=-1)
    close(y, (u * (r * eco - 1) + 2) * positions, 1e-4)


def test_states_of_the_last_tokens() -> None:
    q, k, v = (real(1, 5, 8) for _ in range(3))
    given = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    y, window = run("LinearAttention", q, k, v, outputs=(0, 1), state_window=7, **given)
    assert not window[:2].any()
    for length in range(1, 6):
        part = [x[:, :length] for x in (q, k, v)]
        z, state = run("LinearAttention", *part, outputs=(0, 1), **given)
        close(window[1 + length], state)
        close(y[:, :length], z)
    more = [real(1, 2, 8) for _ in range(3)]
    (a,) = run("LinearAttention", *more, window, state_window=7, **given)
    (b,) = run("LinearAttention", *more, window[-1], **given)
    np.testing.assert_array_equal(a, b)


def test_requests_have_states_of_their_own() -> None:
    q, k, v = real(6, 2, 8), real(6, 2, 8), real(6, 4, 5)
    decay, beta, state = real(6, 4), real(6, 4), real(2, 4, 5, 8)
    a_log, bias, ends = real(4), real(4), np.array([0, 2, 6], np.int32)
    y, last = run(
        "GatedDeltaNet", q, k, v, ends, decay, beta, state, a_log, bias, outputs=(0, 1),
        qk_l2_norm=1, gate_activation="qwen", beta_activation="sigmoid",
    )  # fmt: skip
    q, k = (np.float64(x) / np.sqrt((np.float64(x) ** 2).sum(-1, keepdims=True)) for x in (q, k))
    for request, (start, stop) in enumerate(itertools.pairwise(ends)):
        for h in range(4):
            s = np.float64(state[request, h]).T
            for t in range(start, stop):
                s = s * np.exp(-np.exp(a_log[h]) * np.log1p(np.exp(decay[t, h] + bias[h])))
                key = k[t, h // 2]
                s = s + np.outer(key, sigmoid(beta[t, h]) * (v[t, h] - key @ s))
                close(y[t, h], q[t, h // 2] @ s / math.sqrt(8), 1e-4)
            close(last[request, h], s.T, 1e-4)
    rows = np.concatenate([x.reshape(6, -1) for x in (q, k, v)], axis=1).astype(np.float32)
    parts = [x.astype(np.float32) for x in (q, k, v)]
    given = (decay * 0, beta, state)
    (merged,) = run("GatedDeltaNet", rows, None, None, None, *given)
    (apart,) = run("GatedDeltaNet", *parts, None, *given)
    np.testing.assert_array_equal(merged, apart)
    four = [x.reshape(2, 3, *x.shape[1:]) for x in (*parts, decay * 0, beta)]
    (y,) = run("GatedDeltaNet", *four[:3], None, *four[3:], state)
    np.testing.assert_array_equal(y.reshape(6, 4, 5), apart)


@pytest.mark.parametrize("last", [0, 1])
def test_states_of_the_last_positions(last: int) -> None:
    x, w = real(1, 4, 6) if last else real(1, 6, 4), real(6, 1, 3)
    given = {"channels_last": last}
    _, window = run("CausalConvWithState", x, w, outputs=(0, 1), state_window=6, **given)
    assert not window[:2].any()
    for length in range(1, 5):
        part = np.ascontiguousarray(x[:, :length] if last else x[:, :, :length])
        _, state = run("CausalConvWithState", part, w, outputs=(0, 1), **given)
        np.testing.assert_array_equal(window[1 + length], state)


def test_statistics_of_norms() -> None:
    x, skip, gamma = real(2, 3, 8), real(2, 3, 8), real(8)
    total = np.float64(x + skip)
    _, mean, factor, _ = run(
        "SkipLayerNormalization", x, skip, gamma, outputs=(0, 1, 2, 3), epsilon=1e-3
    )
    close(mean, total.mean(-1, keepdims=True))
    close(factor, 1 / np.sqrt(total.var(-1, keepdims=True) + 1e-3))
    y, factor, plain = run(
        "SkipSimplifiedLayerNormalization", x, skip, gamma, outputs=(0, 2, 3), epsilon=1e-3
    )
    close(factor, 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-3))
    close(plain, total)
    close(y, rms(total, 1e-3) * gamma)


def test_fourier_transforms_are_pairs() -> None:
    x = real(2, 4, 6)
    (y,) = run("Rfft", x, signal_ndim=2)
    expected = np.fft.rfft2(np.float64(x))
    close(y, np.stack((expected.real, expected.imag), -1))
    close(run("Irfft", y, signal_ndim=2)[0], x)
