"""BranchwiseRMSNorm: rows normalized by their root mean square."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import fix
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.norms import Normalize


@specialize("BranchwiseRMSNorm", domain="com.microsoft")
def specialize_branches(site: Site, plain: Call) -> Call | None:
    """Take branches that have one scale, or none."""
    norm = Normalize(site.attribute("epsilon", 1e-5), centered=False, threads=site.threads)
    branches = site.attribute("num_branches", 0)
    return Capturable(functools.partial(_normalized, norm, branches, plain))


@cacheable
def _normalized(
    norm: Normalize, branches: int, plain: Call, x: NDArray, scale: NDArray | None = None
) -> Any:
    """Return a launch, or the result."""
    given = (x,) if scale is None else (x, scale)
    if not x.ndim or not x.size or x.shape[-1] % max(branches, 1):
        return plain(*given)
    width = x.shape[-1] // max(branches, 1)
    rows = x.reshape(-1, width) if x.flags.c_contiguous else x
    made = norm(rows, None, ones(width, x.dtype) if scale is None else scale, None)
    return plain(*given) if made is None else made._replace(result=made.result.reshape(x.shape))


@functools.lru_cache(maxsize=64)
def ones(count: int, dtype: np.dtype[Any]) -> NDArray:
    """Return a scale that changes nothing."""
    return fix(np.ones(count, dtype))
