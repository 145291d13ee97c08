"""``com.microsoft::GatherBlockQuantized``: embeddings that are read as they are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

GATHER = JitKernel("quantized.gather", "gather_rows")

NO_ZEROS = np.empty((0, 0), np.uint8)

ENOUGH = 1 << 16
"""Elements that are worth a second thread."""


@specialize("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(site: Site, plain: Call) -> Call | None:
    """Takes rows of a constant table of packed codes, with float32 scales along its last axis."""
    codes, scales, zeros = (site.constant(position) for position in (0, 2, 3))
    bits, block = site.attribute("bits", 4), site.attribute("block_size", 128)
    if codes is None or scales is None or codes.dtype != np.uint8 or scales.dtype != F32:
        return None
    if site.attribute("gather_axis", 0) != 0 or site.attribute("quantize_axis", 1) not in (1, -1):
        return None
    width = codes.shape[-1] * 8 // bits
    if codes.ndim != 2 or block % 8 or scales.shape != (len(codes), -(-width // block)):
        return None
    if zeros is None:
        zeros = NO_ZEROS
        if site.given(3):
            return None
    elif zeros.dtype != np.uint8 or zeros.shape != (len(codes), -(-scales.shape[1] * bits // 8)):
        return None
    arrays = codes, scales, zeros
    if not all(each.flags.c_contiguous for each in arrays):
        return None
    GATHER.request()

    def call(data: NDArray, indices: NDArray, *more: NDArray | None) -> Any:
        run = GATHER.run
        if run is None or indices.dtype != np.int64 or not indices.flags.c_contiguous:
            return plain(data, indices, *more)
        y = empty((*indices.shape, width))
        threads = site.threads if y.size >= ENOUGH else 1
        rows = indices.reshape(-1), bits, block, y.reshape(-1, width)
        return Launch(run, (*arrays, *rows, threads), y) if y.size else y

    return Capturable(call)
