"""Normalizer on a JIT kernel."""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
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
    """Take rows of float32, and of others where they are rounded to that at first."""
    APPLY.request()
    norm = NORM_CODES[site.attribute("norm", "MAX")]
    NORMALIZER.request()
    return Capturable(functools.partial(_normalized, norm, site.threads, plain))


@cacheable
def _normalized(norm: int, threads: int, plain: Call, x: NDArray) -> Any:
    run, source = NORMALIZER.run, code_of(x.dtype)
    if run is None or source is None or not x.size or not x.ndim:
        return plain(x)
    if x.dtype != F32:
        # Squares of other types are rounded once, after their product.
        made = None if norm == L2 else launch(FLOAT32, source, (x,), F32, threads)
        if made is None:
            return plain(x)
        x = ahead(made)
    y = empty(x.shape)
    rows = x.size // x.shape[-1]
    grain, team = shared_out(rows, x.size, MIN_NORMALIZED_ELEMENTS_PER_THREAD, threads)
    both = contiguous(x).reshape(rows, -1), y.reshape(rows, -1)
    return Launch(run, (both[0], norm, both[1], grain, team), y)
