"""``com.microsoft::MatMulNBits`` on the CPU provider's own kernels: B is read as it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import done
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import kind_of, product
from tenonnx_cpu.matmul.product import request as request_products
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import Activations, activations_at, matmul_q, request


@specialize("MatMulNBits", domain="com.microsoft")
def matmul_nbits(site: Site, plain: Call) -> Call | None:
    """Products of float32, or of 16-bit floats as float32, in the portable layout."""
    weights = _weights(site)
    bias = site.constant(5)
    if weights is None or (bias is None and site.given(5)):
        return None
    offsets = _real_offsets(site, weights)
    if offsets is None and weights.zeros is None and site.given(3):
        return None
    if bias is not None:
        bias = np.ascontiguousarray(bias.reshape(-1), np.float32)
    activations = activations_at(site.attribute("accuracy_level", 0))
    request(weights, activations)
    if offsets is not None:
        request_products("f32")
    return Capturable(NBitsCall(weights, bias, offsets, activations, site.threads, plain))


@cacheable
@dataclass(frozen=True, eq=False)
class NBitsCall:
    """Multiplies by a matrix of codes.

    Attributes:
        weights: The matrix.
        bias: One number for each column, if there is one.
        offsets: What a block's activations add to every column, (columns, blocks), if its zero
            points are real numbers.
        activations: How activations are taken.
        threads: How many to use at most.
        plain: Computes the same from the same inputs.
    """

    weights: Quantized
    bias: NDArray | None
    offsets: NDArray | None
    activations: Activations
    threads: int
    plain: Call

    def __call__(self, a: NDArray, *constants: NDArray | None) -> Any:
        """Return a launch, or the result."""
        if not kind_of(a.dtype):
            return self.plain(a, *constants)
        weights, threads = self.weights, self.threads
        x = a.astype(np.float32, copy=False)
        made = matmul_q(x, weights, threads, self.bias, activations=self.activations)
        if made is not None and x is a and self.offsets is None:
            return made
        y = None if made is None else done(made)
        if y is not None and self.offsets is not None:
            sums = np.add.reduceat(x, np.arange(0, weights.depth, weights.block), axis=-1)
            y = product(sums, self.offsets.T, threads, residual=y)
        return self.plain(a, *constants) if y is None else y.astype(a.dtype, copy=False)


def _weights(site: Site) -> Quantized | None:
    codes, scales, zeros, groups = (site.constant(position) for position in (1, 2, 3, 4))
    if codes is None or codes.dtype != np.uint8 or scales is None or not kind_of(scales.dtype):
        return None
    depth, columns = site.attribute("K", 0), site.attribute("N", 0)
    bits, block = site.attribute("bits", 4), site.attribute("block_size", 0)
    if site.attribute("weight_prepacked", 0) or bits not in (2, 4, 8):
        return None
    if depth < 1 or columns < 1 or block < 1:
        return None
    if site.given(4) and (groups is None or not np.array_equal(groups, np.arange(depth) // block)):
        return None
    packed = zeros is not None and zeros.dtype == np.uint8
    try:
        return Quantized(
            codes.reshape(-1),
            site.float32(2).reshape(columns, -1),
            zeros if packed else None,
            bits,
            depth,
            columns,
            block,
            by_column=True,
            zero=1 << bits - 1,
        )
    except ValueError:  # sizes that the operator itself refuses, in its own words
        return None


def _real_offsets(site: Site, weights: Quantized) -> NDArray | None:
    """Return what a block's activations add to every column, for zero points of real numbers.

    ``(middle - zero_point) * scale``, (columns, blocks); ``None`` without such zero points.
    """
    zeros = site.constant(3)
    if zeros is None or not kind_of(zeros.dtype) or zeros.size != weights.scales.size:
        return None
    shape = weights.scales.shape
    return site.derived(
        f"nbits-offsets-{weights.zero}",
        (3, 2),
        lambda: (weights.zero - zeros.reshape(shape).astype(np.float32)) * weights.scales,
    )
