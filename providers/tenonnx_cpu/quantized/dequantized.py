"""``ai.tenonnx::DequantizeMatMul`` on the CPU provider's own kernels."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.matmul.product import F32
from tenonnx_cpu.quantized.matrix import Quantized
from tenonnx_cpu.quantized.product import Activations, activations_at, matmul_q, request


@specialize("DequantizeMatMul", domain="ai.tenonnx")
def dequantize_matmul(site: Site, plain: Call) -> Call | None:
    """Products of float32 with a matrix that the kernels read as it is stored."""
    weights = quantized_weights(site)
    if weights is None:
        return None
    activations = activations_at(site.attribute("accuracy_level", 0))
    request(weights, activations)
    return Capturable(functools.partial(_product, weights, activations, site.threads, plain))


@cacheable
def _product(
    weights: Quantized, activations: Activations, threads: int, plain: Call,
    x: NDArray, *constants: NDArray | None,
) -> Any:  # fmt: skip
    made = matmul_q(x, weights, threads, activations=activations)
    return plain(x, *constants) if made is None else made


def quantized_weights(site: Site) -> Quantized | None:
    """Return the constant matrix of a DequantizeMatMul, if kernels read it as it is stored."""
    codes, scales, zeros = (site.constant(position) for position in (1, 2, 3))
    if codes is None or scales is None or scales.dtype != F32:
        return None
    if zeros is None and site.given(3):
        return None
    rows, columns, block = (site.attribute(n, 0) for n in ("rows", "columns", "block_size"))
    axis, turned = site.attribute("axis", -1), bool(site.attribute("transposed", 0))
    depth, width = (columns, rows) if turned else (rows, columns)
    along_depth = axis == int(turned)
    bits, signed, zero = site.attribute("bits", 8), bool(site.attribute("signed", 0)), 0
    if axis < 0:
        if zeros is not None:
            zero = int(zeros.reshape(-1)[0]) & (1 << bits) - 1
            zero -= signed * (zero >> bits - 1) << bits
            zeros = None
        scales = frozen(np.full(width, scales.reshape(())))
    elif along_depth != bool(block):  # a scale for every row, or blocks of columns
        return None
    block = block or depth
    blocks = -(-depth // block)
    try:
        return Quantized(
            codes,
            scales.reshape((width, blocks) if turned else (blocks, width)),
            zeros,
            bits,
            depth,
            width,
            block,
            by_column=turned,
            signed=signed,
            zero=zero,
        )
    except ValueError:  # lines that end inside a byte, or blocks inside a line
        return None
