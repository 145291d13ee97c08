"""Normalizer on a JIT kernel."""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.ml.kernels import L1, L2, MAX
from tenonnx_cpu.threading_config import shared_out

NORMALIZER = JitKernel("ml.normalizer", "normalizer")

NORM_CODES = {"MAX": MAX, "L1": L1, "L2": L2}

# Elements that are worth a second thread: fewer than elsewhere, as a sum takes one after the
# other.
MIN_NORMALIZED_ELEMENTS_PER_THREAD = 1 << 13


@specialize("Normalizer", domain="ai.onnx.ml")
def specialize_normalizer(site: Site, plain: Call) -> Call | None:
    """Take rows of float32."""
    norm = NORM_CODES[site.attribute("norm", "MAX")]
    NORMALIZER.request()
    return Capturable(functools.partial(_normalized, norm, site.threads, plain))


@cacheable
def _normalized(norm: int, threads: int, plain: Call, x: NDArray) -> Any:
    run = NORMALIZER.run
    if run is None or x.dtype != F32 or not x.size or not x.ndim:
        return plain(x)
    y = empty(x.shape)
    rows = x.size // x.shape[-1]
    grain, team = shared_out(rows, x.size, MIN_NORMALIZED_ELEMENTS_PER_THREAD, threads)
    both = contiguous(x).reshape(rows, -1), y.reshape(rows, -1)
    return Launch(run, (both[0], norm, both[1], grain, team), y)
