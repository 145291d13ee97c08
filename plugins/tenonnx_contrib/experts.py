"""Mixtures of experts, whose weights are numbers or codes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tenonnx import Array, Namespace, OperatorTable
from tenonnx_array.experts import Activation, mixture, route
from tenonnx_contrib.expert_weights import Quantized

table = OperatorTable("com.microsoft")
op = table.op

# The matrix (outputs, inputs) of an expert, by its number.
Weights = Callable[[int], Array]


@dataclasses.dataclass(frozen=True)
class Dense:
    """One layer of every expert."""

    weights: Weights
    bias: Array | None

    def __call__(self, x: Array, expert: int) -> Array:
        """Return the layer's outputs of rows x."""
        y = x @ self.weights(expert).astype(x.dtype, copy=False).T
        return y if self.bias is None else y + self.bias[expert].astype(x.dtype, copy=False)


def routed(
    xp: Namespace,
    tokens: Array,
    router_probs: Array,
    layers: tuple[Dense, Dense, Dense | None],
    router_weights: Array | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
) -> Array:
    """Return each token's sum over its k best experts; ``router_probs`` are unnormalized."""
    experts, shares = route(
        xp,
        router_probs,
        k,
        normalize=bool(normalize_routing_weights),
        sparse=bool(use_sparse_mixer),
        weights=router_weights,
    )
    activation = Activation(
        activation_type,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        swiglu_fusion,
        bool(swiglu_limit_after_activation),
    )
    return mixture(xp, tokens, experts, shares, layers, activation)


@op(
    "MoE",
    like=[routed],
    shapes=(
        "router_probs: R E; fc1_experts_weights: E F H; fc1_experts_bias: E F; "
        "fc2_experts_weights: E H I; fc2_experts_bias: E H; fc3_experts_weights: E I H; "
        "fc3_experts_bias: E I; input: ... H; len(input) in (2, 3)"
    ),
)
def moe(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None,
    **attributes: Any,
) -> Array:
    """Return each token's sum over its k best experts; ``router_probs`` are scores, not softmaxed.

    The weights are (experts, outputs, inputs).
    """
    third = fc3_experts_weights
    layers = (
        Dense(fc1_experts_weights.__getitem__, fc1_experts_bias),
        Dense(fc2_experts_weights.__getitem__, fc2_experts_bias),
        None if third is None else Dense(third.__getitem__, fc3_experts_bias),
    )
    return routed(xp, input, router_probs, layers, **attributes)


@op(
    "QMoE",
    like=[routed],
    shapes=(
        "router_probs router_weights: R E; fc1_experts_weights: E F P; fc1_scales: E F ...; "
        "fc1_experts_bias: E F; fc1_zero_points: E ceil(F*bits1/8) if not block_size; "
        "fc1_zero_points: E F ... if block_size; fc2_zero_points: E H ... if block_size; "
        "bits1 = fc1_expert_weight_bits or expert_weight_bits; "
        "bits2 = fc2_expert_weight_bits or expert_weight_bits; "
        "fc2_experts_weights: E H Q; fc2_scales: E H ...; fc2_experts_bias: E H; "
        "fc2_zero_points: E ceil(H*bits2/8) if not block_size; "
        "fc3_experts_weights fc3_scales fc3_zero_points fc3_experts_bias: E ...; "
        "input: ... H; len(input) in (2, 3)"
    ),
)
def q_moe(
    xp: Namespace,
    input: Array,  # noqa: A002 - the schema's name
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_scales: Array | None,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    fc1_global_scale: Array | None = None,
    fc2_global_scale: Array | None = None,
    fc1_act_scale: Array | None = None,  # noqa: ARG001 - activations keep their type
    fc2_act_scale: Array | None = None,  # noqa: ARG001 - activations keep their type
    fc1_act_block_scale: Array | None = None,  # noqa: ARG001 - activations keep their type
    fc2_act_block_scale: Array | None = None,  # noqa: ARG001 - activations keep their type
    *,
    accuracy_level: int = 0,  # noqa: ARG001 - a license to be less accurate
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int = 0,
    fc2_expert_weight_bits: int = 0,
    fc3_expert_weight_bits: int = 0,
    quant_type: str = "int",
    weights_prepacked: int = -1,  # noqa: ARG001 - the portable layout is the only one here
    **attributes: Any,
) -> Array:
    """Return MoE with quantized weights, of which an expert's are dequantized while it is used.

    Packed weights are (experts, outputs, inputs * bits / 8). Scales are one per output, or one
    per block of ``block_size`` inputs. A third layer shares the first's global scale.

    Raises:
        ValueError: The first or the second layer has no weights.
    """
    given = (
        (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_global_scale),
        (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_global_scale),
        (fc3_experts_weights, fc3_scales, fc3_zero_points, fc1_global_scale),
    )
    widths = (fc1_expert_weight_bits, fc2_expert_weight_bits, fc3_expert_weight_bits)
    biases = (fc1_experts_bias, fc2_experts_bias, fc3_experts_bias)
    first, second, third = (
        None
        if parts[0] is None
        else Dense(Quantized(xp, quant_type, bits or expert_weight_bits, block_size, *parts), bias)
        for parts, bits, bias in zip(given, widths, biases, strict=True)
    )
    if first is None or second is None:
        raise ValueError(
            "expected fc1_experts_weights and fc2_experts_weights, found one without the other"
        )
    layers = first, second, third
    return routed(xp, input, router_probs, layers, router_weights, **attributes)
