"""Gated norms and hyper-connections: streams of features that are mixed and normalized apart."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.axes import split_last
from tenonnx_array.dtypes import accumulator
from tenonnx_array.nonlinear import sigmoid, swish
from tenonnx_contrib.skip_norm import by_root_mean_square

table = OperatorTable("com.microsoft")
op = table.op


def wide(x: Array) -> Array:
    """Return an array in float32 at least."""
    return x.astype(accumulator(x.dtype), copy=False)


def grouped(x: Array, branches: int) -> Array:
    """Return (..., C * H) as (..., C, H); without ``branches`` it is so already."""
    return split_last(x, branches) if branches else x


@op("GatedRMSNorm", shapes="gate: *X; scale: N; X[-1] % scale[0] == 0")
def gated_rms_norm(
    xp: Namespace,
    X: Array,
    scale: Array,
    gate: Array,
    *,
    activation: str = "silu",
    epsilon: float = 1e-5,
) -> Array:
    """Return the RMS norm of every group as long as ``scale``, times the gate's activation.

    Raises:
        ValueError: An unknown activation.
    """
    gates = {"sigmoid": sigmoid, "silu": swish, "swish": swish}
    if activation not in gates:
        raise ValueError(f"expected activation of {', '.join(gates)}, found {activation!r}")
    x = wide(X).reshape(-1, scale.shape[0])
    y = by_root_mean_square(xp, x, epsilon)[0] * wide(scale)
    return (y.reshape(X.shape) * gates[activation](xp, wide(gate))).astype(X.dtype)


# The sizes of streams that are (..., C, H), or (..., C * H) if told C.
OF_BRANCHES = (
    "C = num_branches or streams[-2]; H = streams[-1] / (num_branches or 1); "
    "rows = streams[:-1] if num_branches else streams[:-2]"
)


@op("BranchwiseRMSNorm", shapes=f"scale: H | C*H | C H; {OF_BRANCHES.replace('streams', 'X')}")
def branchwise_rms_norm(
    xp: Namespace,
    X: Array,
    scale: Array | None = None,
    *,
    epsilon: float = 1e-5,
    num_branches: int = 0,
) -> Array:
    """Return the RMS norm of every branch of (..., C, H), or of (..., C * H) if told C."""
    x = grouped(wide(X), num_branches)
    y = by_root_mean_square(xp, x, epsilon)[0]
    if scale is not None:
        y *= wide(scale).reshape((-1, x.shape[-1]) if scale.size > x.shape[-1] else (-1,))
    return y.reshape(X.shape).astype(X.dtype)


@op(
    "EngramGate",
    multiple=True,
    shapes=(
        "key query: B T C H; value: B T H; key_norm_scale query_norm_scale conv_norm_scale: C H"
    ),
)
def engram_gate(
    xp: Namespace,
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float = 1e-5,
) -> tuple[Array, Array | None]:
    """Return the value times a gate per hyper-connection, and the RMS norm of that.

    The gate is the sigmoid of the signed root of how alike the normed key and query are.
    """
    k, q = (
        by_root_mean_square(xp, wide(x), epsilon)[0] * wide(weight)
        for x, weight in ((key, key_norm_scale), (query, query_norm_scale))
    )
    dot = xp.sum(k * q, axis=-1, keepdims=True) * k.dtype.type(1 / math.sqrt(key.shape[-1]))
    root = xp.sqrt(xp.maximum(xp.abs(dot), k.dtype.type(1e-6)))
    y = sigmoid(xp, xp.sign(dot) * root) * wide(value)[..., None, :]
    normed = None
    if conv_norm_scale is not None:
        normed = by_root_mean_square(xp, y, epsilon)[0] * wide(conv_norm_scale)
        normed = normed.astype(key.dtype)
    return y.astype(key.dtype), normed


@op(
    "HyperConnectionPreMix",
    shapes=f"pre_mix: *rows C | *rows C 1 | *rows C H | *rows C*H; {OF_BRANCHES}",
)
def hyper_connection_pre_mix(
    xp: Namespace,
    streams: Array,
    pre_mix: Array,
    *,
    num_branches: int = 0,
    reduction_scale: float = 1.0,
) -> Array:
    """Return ``reduction_scale`` times the sum over C of (..., C, H) times the mix."""
    x = grouped(wide(streams), num_branches)
    y = xp.sum(x * mix_like(wide(pre_mix), x), axis=-2)
    return (y * y.dtype.type(reduction_scale)).astype(streams.dtype)


@op(
    "HyperConnectionPostMix",
    shapes=(
        "block_output: *rows H; stream_mix: *rows C C; "
        f"post_mix: *rows C | *rows C 1 | *rows C H | *rows C*H; {OF_BRANCHES}"
    ),
)
def hyper_connection_post_mix(
    xp: Namespace,
    streams: Array,
    block_output: Array,
    post_mix: Array,
    stream_mix: Array | None = None,
    *,
    num_branches: int = 0,
) -> Array:
    """Return the streams (..., C, H), mixed by (..., C, C), plus a share of one output in each."""
    x = grouped(wide(streams), num_branches)
    y = x
    if stream_mix is not None:
        y = xp.matmul(wide(stream_mix).swapaxes(-1, -2), x)
    y = y + mix_like(wide(post_mix), x) * wide(block_output)[..., None, :]
    return y.reshape(streams.shape).astype(streams.dtype)


def mix_like(mix: Array, x: Array) -> Array:
    """Return (..., C), (..., C, 1), (..., C, H) or (..., C * H) so that it broadcasts to x."""
    if mix.size == x.size:
        return mix.reshape(x.shape)
    return mix.reshape(*x.shape[:-1], 1)
