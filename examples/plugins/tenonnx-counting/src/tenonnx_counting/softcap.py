"""``com.example::SoftCap``, which bounds the logits of a language model smoothly."""

from __future__ import annotations

import tenonnx

OPERATORS = tenonnx.OperatorTable("com.example")


@OPERATORS.op("SoftCap", since=1)
def soft_cap(xp: tenonnx.Namespace, x: tenonnx.Array, *, cap: float = 30.0) -> tenonnx.Array:
    """Squashes values into (-cap, cap): ``cap * tanh(x / cap)``."""
    return xp.tanh(x / cap) * cap
