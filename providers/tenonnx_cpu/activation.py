"""The activations that kernels can apply to their results: codes, and how nodes spell them."""

from __future__ import annotations

NONE, RELU, GELU, GELU_TANH, SIGMOID, SILU, TANH, CLIP, LEAKY_RELU = range(9)

HARD_SIGMOID, HARD_SWISH = 9, 10
"""Those that only convolutions apply."""
