"""``com.microsoft::GatherBlockQuantized``: embeddings that are read as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32

GATHER = JitKernel("quantized.gather", "gather_rows")

NO_ZEROS = np.empty((0, 0), np.uint8)

# Elements that are worth a second thread.
MIN_GATHERED_ELEMENTS_PER_THREAD = 1 << 16


@specialize("GatherBlockQuantized", domain="com.microsoft")
def gather_block_quantized(site: Site, plain: Call) -> Call | None:
    """Take rows of a constant table of packed codes, with float32 scales along its last axis."""
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
    if not all(each.flags.c_contiguous for each in (codes, scales, zeros)):
        return None
    GATHER.request()
    return Capturable(GatherCall(codes, scales, zeros, bits, block, width, site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class GatherCall:
    """Rows of a table of codes.

    Attributes:
        codes: The table, packed.
        scales: Of blocks.
        zeros: Zero points of blocks, packed.
        bits: Of a code.
        block: Codes of a block.
        width: Codes of a row.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    codes: NDArray
    scales: NDArray
    zeros: NDArray
    bits: int
    block: int
    width: int
    threads: int
    plain: Call

    def __call__(self, data: NDArray, indices: NDArray, *more: NDArray | None) -> Any:
        """Return a launch, or the result."""
        run = GATHER.run
        if run is None or indices.dtype != np.int64 or not indices.flags.c_contiguous:
            return self.plain(data, indices, *more)
        y = empty((*indices.shape, self.width))
        if not y.size:
            return y
        team = self.threads if y.size >= MIN_GATHERED_ELEMENTS_PER_THREAD else 1
        arguments = (
            self.codes, self.scales, self.zeros, indices.reshape(-1), self.bits, self.block,
            y.reshape(-1, self.width), team,
        )  # fmt: skip
        return Launch(run, arguments, y)
