"""Calls of the kernels that the CUDA provider chooses, compiled for the host."""

from __future__ import annotations

from typing import Any

import hosted
import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
import strict
from emulated import FakePlatform

from tenonnx_cuda.chosen import Site, choices

needs_compiler = pytest.mark.skipif(hosted.COMPILER is None, reason="no C++ compiler")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
EPSILON = {np.dtype(np.float32): 2e-6, np.dtype(np.float16): 1.5e-3, BFLOAT16: 1.2e-2}
FLOATS = [*EPSILON]


def refuse(*_: Any) -> Any:
    raise AssertionError("the kernel was to take this")


def chosen(
    op: str,
    version: int,
    /,
    *,
    outputs: int = 1,
    domain: str = "",
    capability: tuple[int, int] = (8, 0),
    tf32: bool = False,
    convolutions: Any = None,
    plain: Any = refuse,
    inside: bool = False,
    **attributes: Any,
) -> Any:
    """Returns the call chosen for a node.

    Args:
        op: The operator.
        version: Of its opset.
        outputs: How many.
        domain: The operator's.
        capability: Of the device.
        tf32: Whether factors may be rounded.
        convolutions: cuDNN.
        plain: What it may leave arrays to; without, it fails there.
        inside: Its outputs are none of the graph's.
        attributes: Of the node.
    """
    attrs = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
    node = ir.Node(domain, op, [], attrs, num_outputs=outputs, version=version)
    graph = ir.Graph([], () if inside else node.outputs, nodes=[node])
    platform = FakePlatform()
    platform.capability = capability
    platform.convolutions = convolutions
    call = choices()[domain, op](Site(node, platform, tf32), plain)
    assert call is not None
    assert graph is node.graph

    def run(*inputs: Any, host: tuple[int, ...] = ()) -> Any:
        result = call(*(x if i in host else strict.wrap(x) for i, x in enumerate(inputs)))
        if isinstance(result, tuple):
            return [None if part is None else part.held for part in result]
        return result.held

    return run


def draw(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(actual: Any, expected: Any, dtype: Any, scale: float = 1.0) -> None:
    assert actual.dtype == dtype
    wide = actual.astype(np.float64)
    limit = EPSILON[np.dtype(dtype)] * scale * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(wide, expected, rtol=0, atol=limit)
