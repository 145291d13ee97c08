"""Mixtures of experts: each token goes through the networks that its router ranks highest."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import TypeAlias

from tenonnx import Array, Namespace
from tenonnx_array.dtypes import accumulator
from tenonnx_array.nonlinear import gelu, sigmoid, swish

# One layer of every expert: its outputs of rows, by the expert's number.
Layer: TypeAlias = Callable[[Array, int], Array]

EXPERT_ACTIVATIONS: dict[str, Callable[[Namespace, Array], Array]] = {
    "gelu": lambda xp, x: gelu(xp, x, approximate="tanh"),
    "identity": lambda _, x: x,
    "relu": lambda xp, x: xp.maximum(x, 0),
    "silu": lambda xp, x: swish(xp, x),
}


@dataclasses.dataclass(frozen=True)
class Activation:
    """The activation between the layers of an expert.

    ``fusion`` says where SwiGLU's gate and value lie: 0 in two layers, 1 interleaved, 2 side by
    side. ``after`` bounds SwiGLU's activated gate, where else the gate is bounded.
    """

    kind: str
    alpha: float
    beta: float
    limit: float | None
    fusion: int
    after: bool = False

    def __call__(self, xp: Namespace, first: Array, third: Array | None) -> Array:
        """Return the second layer's input.

        Raises:
            ValueError: An unknown kind, or SwiGLU lacks its value.
        """
        if self.kind != "swiglu":
            if self.kind not in EXPERT_ACTIVATIONS:
                known = ", ".join([*EXPERT_ACTIVATIONS, "swiglu"])
                raise ValueError(f"expected activation_type of {known}, found {self.kind!r}")
            y = EXPERT_ACTIVATIONS[self.kind](xp, first)
            return y if third is None else y * third
        if self.fusion == 1:
            gate, value = first[..., ::2], first[..., 1::2]
        elif self.fusion == 2:
            gate, value = first[..., : first.shape[-1] // 2], first[..., first.shape[-1] // 2 :]
        elif third is not None:
            gate, value = first, third
        else:
            raise ValueError("expected fc3_experts_weights with swiglu_fusion=0, found none")
        if self.limit is not None:
            gate = gate if self.after else xp.minimum(gate, self.limit)
            value = xp.clip(value, -self.limit, self.limit)
        active = gate * sigmoid(xp, gate * self.alpha)
        if self.after and self.limit is not None:
            active = xp.minimum(active, self.limit)
        return active * (value + self.beta)


def mixture(
    xp: Namespace,
    tokens: Array,
    experts: Array,
    shares: Array,
    layers: tuple[Layer, Layer, Layer | None],
    activation: Activation,
) -> Array:
    """Return each token's sum over its experts, in float32 at least.

    Args:
        xp: The array namespace.
        tokens: (..., width).
        experts: Numbers of each token's experts (tokens, k).
        shares: The weight of each, (tokens, k).
        layers: The first, the second and, if there is one, the third layer.
        activation: The activation between them.

    Raises:
        ValueError: The scores are of more tokens, or of fewer.
    """
    x = tokens.reshape(-1, tokens.shape[-1])
    if len(experts) != len(x):
        raise ValueError(f"expected scores of {len(x)} tokens, found those of {len(experts)}")
    x = x.astype(accumulator(x.dtype), copy=False)
    first, second, third = layers
    y = xp.zeros_like(x)
    # By experts, not by tokens: the weights of one that no token chose are never read, and those of
    # the others are dequantized once. A token chooses an expert once, so `+=` by rows adds all.
    for expert in xp.unique(experts).tolist():
        rows, places = xp.nonzero(experts == expert)
        taken = x[rows]
        hidden = activation(
            xp, first(taken, expert), None if third is None else third(taken, expert)
        )
        y[rows] += second(hidden, expert) * shares[rows, places][:, None].astype(x.dtype)
    return y.reshape(tokens.shape).astype(tokens.dtype, copy=False)


def route(
    xp: Namespace,
    scores: Array,
    k: int,
    *,
    normalize: bool,
    sparse: bool = False,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return each token's k highest experts and their shares (tokens, k).

    Shares are the softmax over all experts or, to ``normalize``, over those that are chosen;
    those of ``weights``, if given, as they are or over their sum. ``sparse`` chooses two, each
    by a softmax over the experts whose scores are within 2 % of the best's.
    """
    scores = scores.reshape(-1, scores.shape[-1]).astype(xp.float32)
    if sparse:
        return sparse_mixer(xp, scores)
    order = xp.argsort(-scores, axis=-1, kind="stable")[:, :k]
    pick = functools.partial(xp.take_along_axis, indices=order, axis=-1)
    if weights is not None:
        shares = pick(weights.astype(xp.float32))
        return order, shares / xp.sum(shares, axis=-1, keepdims=True) if normalize else shares
    powers = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    shares = pick(powers)
    base = shares if normalize else powers
    return order, shares / xp.sum(base, axis=-1, keepdims=True)


def sparse_mixer(xp: Namespace, scores: Array, jitter: float = 0.01) -> tuple[Array, Array]:
    """Return two experts per token and their shares, as SparseMixer-2 infers (arXiv:2409.12136)."""
    experts, shares, left = [], [], scores
    for _ in range(2):
        best = xp.argmax(left, axis=-1)[:, None]
        top = xp.take_along_axis(left, best, axis=-1)
        spread = xp.maximum(xp.abs(scores), top)
        near = (top - scores) <= 2 * jitter * spread
        powers = xp.where(near & xp.isfinite(left), xp.exp(left - top), 0)
        shares.append(xp.take_along_axis(powers, best, axis=-1) / xp.sum(powers, -1, keepdims=True))
        experts.append(best)
        left = xp.where(xp.arange(scores.shape[-1]) == best, -math.inf, left)
    return xp.concatenate(experts, axis=-1), xp.concatenate(shares, axis=-1)
