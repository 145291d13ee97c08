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

from tenonnx_cuda.capture.dynamic_length import DynamicCall
from tenonnx_cuda.capture.replay import Replayed
from tenonnx_cuda.kernel_selection import Instead, Site, Target, choices
from tenonnx_cuda.kv_cache import ADDRESS_MODULUS
from tenonnx_cuda.options import CudaOptions

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
    cudnn: Any = None,
    sdpa_kernel: int = 0,
    algorithm: str = "EXHAUSTIVE",
    plain: Any = refuse,
    inside: bool = False,
    times: int = 3,
    **attributes: Any,
) -> Any:
    """Return the call chosen for a node.

    Args:
        op: The operator.
        version: Of its opset.
        outputs: How many.
        domain: The operator's.
        capability: Of the device.
        tf32: Whether factors may be rounded.
        cudnn: What stands in for it.
        sdpa_kernel: The option.
        algorithm: The option ``cudnn_conv_algo_search``.
        plain: What it may leave arrays to; without, it fails there.
        inside: Its outputs are none of the graph's.
        times: How often it is called, at the second time traced, from the third on repeated.
        attributes: Of the node.
    """
    attrs = [ir.convenience.convert_attribute(k, v) for k, v in attributes.items()]
    node = ir.Node(domain, op, [], attrs, num_outputs=outputs, version=version)
    graph = ir.Graph([], () if inside else node.outputs, nodes=[node])
    platform = FakePlatform()
    platform.capability = capability
    platform.cudnn = cudnn
    options = CudaOptions(use_tf32=tf32, sdpa_kernel=sdpa_kernel, cudnn_conv_algo_search=algorithm)
    call = choices()[domain, op](Site(node, Target(platform, options)), plain)
    assert call is not None
    assert graph is node.graph

    call = call.call if isinstance(call, Instead) else call
    repeated = Replayed(call, platform)

    def run(*inputs: Any, host: tuple[int, ...] = ()) -> Any:
        """Return what the call does, which is the same when it is traced, and then repeated."""
        results = []
        for _ in range(1 if isinstance(call, DynamicCall) and call.limits else times):
            given = [x if i in host else strict.wrap(moved(x)) for i, x in enumerate(inputs)]
            result = repeated(*given)
            several = result if isinstance(result, tuple) else (result,)
            results.append([None if part is None else part.held for part in several])
        for other in results[1:]:
            for one, same in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(one, same)
        return results[0] if isinstance(result, tuple) else results[0][0]

    return run


def moved(x: Any) -> Any:
    """Return a copy of a numpy array with the same strides elsewhere, with as even an address."""
    if not isinstance(x, np.ndarray) or not x.size:
        return x
    lowest, highest = np.lib.array_utils.byte_bounds(x)
    lead = x.ctypes.data - lowest
    memory = np.empty(highest - lowest + 2 * ADDRESS_MODULUS, np.uint8)
    start = (x.ctypes.data - memory.ctypes.data - lead) % ADDRESS_MODULUS
    there = np.ndarray(x.shape, x.dtype, memory, start + lead, x.strides)
    there[...] = x
    return there


def draw(seed: int, *shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(actual: Any, expected: Any, dtype: Any, scale: float = 1.0) -> None:
    assert actual.dtype == dtype
    wide = actual.astype(np.float64)
    limit = EPSILON[np.dtype(dtype)] * scale * max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(wide, expected, rtol=0, atol=limit)
