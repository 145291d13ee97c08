"""Operators that cannot be traced on jax's arrays, with the reason."""

from __future__ import annotations

_REASONS = {
    "its kernel writes into arrays, and jax's arrays are immutable": """
        CausalConvWithState CenterCropPad Col2Im ConvInteger ConvTranspose DeformConv GridSample
        LpPool MaxUnpool Pad QLinearConv RoiAlign Scatter ScatterElements ScatterND TensorScatter
    """,
    "its result's shape or its control flow depends on data, which a trace does not have": """
        Compress NonZero Resize TopK Unique
    """,
    "jax.numpy lacks a function that its kernel calls": """
        Bernoulli DFT Dropout Multinomial RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike STFT
    """,
}

DECLINED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
