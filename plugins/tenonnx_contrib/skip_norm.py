"""Normalization of sums, as transformers have it: by layer and by root mean square."""

from __future__ import annotations

import math

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.dtypes import accumulator, dtype_of
from tenonnx_array.norm import mean_square, scale_and_shift, standardize, wide_scalar
from tenonnx_array.quant import dequantize_linear

default = OperatorTable()
table = OperatorTable("com.microsoft")
op = table.op


def by_root_mean_square(xp: Namespace, x: Array, epsilon: float) -> tuple[Array, Array]:
    """Return x over its root mean square along the last axis, and the factor."""
    factor = 1 / xp.sqrt(mean_square(xp, x) + wide_scalar(epsilon, x.dtype))
    return x * factor, factor


def weighted(y: Array, scale: Array, bias: Array | None, dtype: Array) -> Array:
    """Return ``y * scale + bias`` computed in y's type and rounded to ``dtype``; y is lost."""
    return scale_and_shift(y, scale, bias).astype(dtype, copy=False)


@default.op(
    "SimplifiedLayerNormalization",
    multiple=True,
    shapes="-len(X) <= axis < len(X); broadcasts(scale, X[axis:])",
)
def simplified_layer_normalization(
    xp: Namespace,
    X: Array,
    scale: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Array, Array]:
    """Divide by the root mean square over the axes from ``axis`` on, then scale.

    The result has the scale's type; also the factors, in ``stash_type``.
    """
    axis %= X.ndim
    stash = accumulator(dtype_of(stash_type))
    x = X.reshape(*X.shape[:axis], math.prod(X.shape[axis:]))
    y, factor = by_root_mean_square(xp, x.astype(stash, copy=False), epsilon)
    y = weighted(y, scale.reshape(-1), None, scale.dtype).reshape(X.shape)
    return y, factor.reshape(X.shape[:axis] + (1,) * (X.ndim - axis))


@op(
    "SkipLayerNormalization",
    multiple=True,
    shapes=(
        "input: ... H; skip: *input | 1 *input[1:] | *input[1:]; len(input) in (2, 3); "
        "gamma beta bias: H"
    ),
)
def skip_layer_normalization(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    skip: Array,
    gamma: Array,
    beta: Array | None = None,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, ...]:
    """Return the layer norm of ``input + skip + bias``, means, factors, and that sum.

    skip broadcasts over the batch. Sums are in float32 and not rounded before they are normalized.
    """
    total = added(input, skip, bias)
    y, mean, factor = standardize(xp, total, total.ndim - 1, epsilon)
    y = weighted(y, gamma, beta, input.dtype)
    return y, mean, factor, total.astype(input.dtype, copy=False)


@op(
    "SkipSimplifiedLayerNormalization",
    multiple=True,
    shapes=(
        "input: ... H; skip: *input | 1 *input[1:] | *input[1:]; len(input) in (2, 3); "
        "gamma bias: H"
    ),
)
def skip_simplified_layer_normalization(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    skip: Array,
    gamma: Array,
    bias: Array | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array | None, ...]:
    """Return the RMS norm of ``input + skip + bias``, no means, factors, and that sum."""
    total = added(input, skip, bias)
    y, factor = by_root_mean_square(xp, total, epsilon)
    y = weighted(y, gamma, None, input.dtype)
    return y, None, factor, total.astype(input.dtype, copy=False)


def added(x: Array, skip: Array, bias: Array | None) -> Array:
    """Return ``x + skip + bias`` in float32 at least, a new array."""
    wide = accumulator(x.dtype)
    total = x.astype(wide, copy=False) + skip.astype(wide, copy=False)
    if bias is not None:
        total += bias.astype(wide, copy=False)
    return total


@op(
    "EmbedLayerNormalization",
    multiple=True,
    shapes=(
        "input_ids segment_ids mask: B L; word_embedding: V H; position_embedding: P H; "
        "segment_embedding: S H; gamma beta: H; position_ids: 1|B L; "
        "position_ids is not None or L <= P"
    ),
)
def embed_layer_normalization(
    xp: Namespace,
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding: Array,
    position_embedding: Array,
    segment_embedding: Array | None,
    gamma: Array,
    beta: Array,
    mask: Array | None = None,
    position_ids: Array | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,  # noqa: ARG001 - says what the second output is named for
) -> tuple[Array, Array, Array]:
    """Return the layer norm of BERT's embeddings, the counts of words, and the embeddings' sum.

    Positions count from 0 unless given. The counts are how many entries of each row of ``mask``
    are 1, or 0 without a mask.
    """
    length = input_ids.shape[1]
    places = (
        position_embedding[:length] if position_ids is None else position_embedding[position_ids]
    )
    total = added(word_embedding[input_ids], places, None)
    if segment_ids is not None and segment_embedding is not None:
        total += segment_embedding[segment_ids].astype(total.dtype, copy=False)
    dtype = word_embedding.dtype
    y = weighted(standardize(xp, total, 2, epsilon)[0], gamma, beta, dtype)
    return y, words(xp, input_ids, mask), total.astype(dtype, copy=False)


@op("QEmbedLayerNormalization", multiple=True)
def q_embed_layer_normalization(
    xp: Namespace,
    input_ids: Array,
    segment_ids: Array | None,
    word_embedding_quant: Array,
    position_embedding_quant: Array,
    segment_embedding: Array | None,
    gamma_quant: Array,
    beta_quant: Array,
    mask: Array | None,
    word_embedding_scale: Array,
    position_embedding_scale: Array,
    segment_embedding_scale: Array | None,
    gamma_scale: Array,
    beta_scale: Array,
    word_embedding_zero_point: Array,
    position_embedding_zero_point: Array,
    segment_embedding_zero_point: Array | None,
    gamma_zero_point: Array,
    beta_zero_point: Array,
    *,
    epsilon: float = 1e-12,
) -> tuple[Array, Array]:
    """Return EmbedLayerNormalization of quantized tables: only rows in use are dequantized."""
    total = dequantize_linear(
        xp, word_embedding_quant[input_ids], word_embedding_scale, word_embedding_zero_point
    )
    total = total + dequantize_linear(
        xp,
        position_embedding_quant[: input_ids.shape[1]],
        position_embedding_scale,
        position_embedding_zero_point,
    )
    if segment_ids is not None and segment_embedding is not None:
        total += dequantize_linear(
            xp,
            segment_embedding[segment_ids],
            segment_embedding_scale,
            segment_embedding_zero_point,
        )
    gamma = dequantize_linear(xp, gamma_quant, gamma_scale, gamma_zero_point)
    beta = dequantize_linear(xp, beta_quant, beta_scale, beta_zero_point)
    y = weighted(standardize(xp, total, 2, epsilon)[0], gamma, beta, total.dtype)
    return y, words(xp, input_ids, mask)


def words(xp: Namespace, input_ids: Array, mask: Array | None) -> Array:
    """Return how many entries of each row of a mask are 1; 0 without one."""
    if mask is None:
        return xp.zeros(input_ids.shape[0], xp.int32)
    return xp.sum(mask == 1, axis=1, dtype=xp.int32)


table.update(default)
