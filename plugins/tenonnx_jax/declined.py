"""Operators of the table that a trace on jax's arrays cannot take, each with the reason."""

from __future__ import annotations

_REASONS = {
    "its kernel writes into arrays, and jax's cannot be written to": """
        CausalConvWithState CenterCropPad Col2Im ConvInteger ConvTranspose DeformConv GridSample
        LpPool MaxUnpool Pad QLinearConv RoiAlign Scatter ScatterElements ScatterND TensorScatter
    """,
    "its result's shape or its course is data, which a trace does not have": """
        Compress NonZero Resize TopK Unique
    """,
    "jax.numpy has no such function by numpy's name": """
        Bernoulli DFT Dropout Multinomial RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike STFT
    """,
}

DECLINED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
