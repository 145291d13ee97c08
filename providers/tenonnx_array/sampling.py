"""Random tensors: RandomNormal, RandomUniform, their Like forms, Bernoulli, Multinomial, Dropout.

Draws come from the Mersenne Twister of ``RandomState``. A node's seed gives the same draws at every
run; without one they differ, unless ``tenonnx.set_seed`` was called: then they follow from that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenonnx.operators import Array, Namespace, OperatorTable
from tenonnx.process.seeds import next_seed
from tenonnx_array.allocation import check_allocation
from tenonnx_array.dtypes import dtype_of
from tenonnx_array.legacy import consuming

table = OperatorTable()
op = table.op


# Return random numbers, of a `size`.
Draw: TypeAlias = Callable[..., Array]


def generator(xp: Namespace, seed: float | None) -> Any:
    """Return a generator; a fractional seed, which ONNX allows, counts by its float32 bits."""
    # As ONNX's reference does: its test cases have these numbers, which numpy keeps for good.
    if seed is None:
        return xp.random.RandomState(next_seed())
    if seed == int(seed):
        return xp.random.RandomState(int(seed) % 2**32)
    return xp.random.RandomState(int(np.float32(seed).view(np.uint32)))


def drawn(draw: Draw, xp: Namespace, shape: Sequence[int], dtype: Any) -> Array:
    """Return ``draw(size=shape)`` in a dtype."""
    return xp.asarray(draw(size=tuple(shape))).astype(dtype)


def normal(
    xp: Namespace, *, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Draw:
    """Return what draws from a normal distribution."""
    return functools.partial(generator(xp, seed).normal, mean, scale)


def uniform(
    xp: Namespace, *, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> Draw:
    """Return what draws from an interval."""
    return functools.partial(generator(xp, seed).uniform, low, high)


def of_shape(distribution: Callable[..., Draw]) -> Callable[..., Array]:
    """Return the kernel that draws an array of a shape."""
    return functools.partial(_of_shape, distribution)


def _of_shape(
    distribution: Callable[..., Draw],
    xp: Namespace,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    **parameters: Any,
) -> Array:
    check_allocation(xp, shape, np.float64)
    return drawn(distribution(xp, **parameters), xp, shape, dtype_of(dtype))


def of_array(distribution: Callable[..., Draw]) -> Callable[..., Array]:
    """Return the kernel that draws an array of another one's shape."""
    return functools.partial(_of_array, distribution)


def _of_array(
    distribution: Callable[..., Draw],
    xp: Namespace,
    x: Array,
    *,
    dtype: int | None = None,
    **parameters: Any,
) -> Array:
    draw = distribution(xp, **parameters)
    return drawn(draw, xp, x.shape, x.dtype if dtype is None else dtype_of(dtype))


random_normal = op("RandomNormal", like=[normal])(of_shape(normal))
random_normal_like = op("RandomNormalLike", like=[normal])(of_array(normal))
random_uniform = op("RandomUniform", like=[uniform])(of_shape(uniform))
random_uniform_like = op("RandomUniformLike", like=[uniform])(of_array(uniform))


@op("Bernoulli", since=15)
def bernoulli(
    xp: Namespace, p: Array, *, dtype: int | None = None, seed: float | None = None
) -> Array:
    """Draw 1 with the probability that each element says, else 0."""
    draw, to = generator(xp, seed).uniform, p.dtype if dtype is None else dtype_of(dtype)
    draws = xp.asarray(draw(size=p.shape))
    return (draws < p.astype(draws.dtype)).astype(to)


@op("Multinomial", since=7, shapes="x: N C")
def multinomial(
    xp: Namespace, x: Array, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Array:
    """Draw classes from rows of unnormalized log-probabilities, by inverting the cumulative sum.

    Row b's cumulative probabilities are moved to [b, b+1), so that one sorted search serves all.
    """
    batch, classes = x.shape
    check_allocation(xp, (batch, sample_size), np.float64)
    log = x.astype(xp.float64)
    cumulative = xp.cumsum(xp.exp(log - log.max(1, keepdims=True)), 1)
    rows = xp.arange(batch)[:, None]
    draws = generator(xp, seed).uniform(size=(batch, sample_size)) + rows
    edges = (cumulative / cumulative[:, -1:] + rows).reshape(-1)
    found = xp.searchsorted(edges, draws, side="right") - rows * classes
    return xp.minimum(found, classes - 1).astype(dtype_of(dtype))


@op("Dropout", since=12, host=(1, 2), multiple=True)
def dropout(
    xp: Namespace,
    data: Array,
    ratio: Array | None = None,
    training_mode: Array | None = None,
    *,
    seed: int | None = None,
    _outputs: int,
) -> tuple[Array, ...]:
    """Drop and rescale in training; else pass the input through, with a mask of ones."""
    if training_mode is None or not training_mode.item():
        return _pass_through(xp, data, bool, _outputs)
    return _drop(xp, data, 0.5 if ratio is None else float(ratio.item()), seed)


@op("Dropout", since=10, multiple=True)
def dropout_10(
    xp: Namespace,
    data: Array,
    *,
    ratio: float = 0.5,  # noqa: ARG001 - nothing is dropped outside training
    _outputs: int,
) -> tuple[Array, ...]:
    return _pass_through(xp, data, bool, _outputs)


@op("Dropout", since=7, multiple=True)
def dropout_7(
    xp: Namespace,
    data: Array,
    *,
    ratio: float = 0.5,  # noqa: ARG001 - nothing is dropped outside training
    _outputs: int,
) -> tuple[Array, ...]:
    return _pass_through(xp, data, data.dtype, _outputs)


@op("Dropout", since=6, multiple=True)
def dropout_6(
    xp: Namespace, data: Array, *, is_test: int = 0, ratio: float = 0.5
) -> tuple[Array, ...]:
    """Until opset 6 training is the default, and in test mode the mask is not filled."""
    if is_test:
        return data, None
    output, mask = _drop(xp, data, ratio, None)
    return output, mask.astype(data.dtype)


op("Dropout", multiple=True)(consuming(dropout_6))


def _pass_through(xp: Namespace, data: Array, mask_dtype: Any, outputs: int) -> tuple[Array, ...]:
    return (data,) if outputs == 1 else (data, xp.ones(data.shape, mask_dtype))


def _drop(xp: Namespace, data: Array, ratio: float, seed: float | None) -> tuple[Array, Array]:
    if not 0 <= ratio < 1:
        raise ValueError(f"expected a ratio in [0, 1), found {ratio}")
    if ratio == 0:
        return data, xp.ones(data.shape, bool)
    draw = generator(xp, seed).uniform
    mask = drawn(lambda size: draw(size=size) >= ratio, xp, data.shape, bool)
    wide = data.astype(xp.float64 if data.dtype == xp.float64 else xp.float32)
    return (wide * mask * (1 / (1 - ratio))).astype(data.dtype), mask
