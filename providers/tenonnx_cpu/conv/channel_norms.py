"""InstanceNormalization and GroupNormalization on a kernel."""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, contiguous, empty
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize

NORMALIZE = JitKernel("conv.channel_norms", "normalize_channels")

# Elements up to which one thread is done before others have started.
MAX_SERIAL_NORM_ELEMENTS = 1 << 15


@specialize("InstanceNormalization", "GroupNormalization")
def specialize_norm(site: Site, plain: Call) -> Call | None:
    """Take float32 with a scale and a bias for every channel."""
    grouped = site.node.op_type == "GroupNormalization"
    groups = site.attribute("num_groups", 0)
    if grouped and ((site.node.version or 1) < 21 or site.attribute("stash_type", 1) != 1):
        return None
    if grouped and groups < 1:
        return None
    NORMALIZE.request()
    given = groups if grouped else None, site.attribute("epsilon", 1e-5), site.threads, plain
    return Capturable(functools.partial(_normalized, *given))


@cacheable
def _normalized(
    groups: int | None, epsilon: float, threads: int, plain: Call,
    x: NDArray, scale: NDArray, bias: NDArray,
) -> Any:  # fmt: skip
    """Normalize groups of channels, or each channel if there is no number of groups."""
    run, given = NORMALIZE.run, (x, scale, bias)
    if run is None or any(each.dtype != F32 for each in given) or x.ndim < 2 or not x.size:
        return plain(x, scale, bias)
    channels = x.shape[1]
    parts = channels if groups is None else groups
    if channels % parts or not scale.shape == bias.shape == (channels,):
        return plain(x, scale, bias)
    x, scale, bias = map(contiguous, given)
    y, rows = empty(x.shape), x.shape[0] * parts
    team = threads if x.size > MAX_SERIAL_NORM_ELEMENTS else 1
    arguments = (
        x.reshape(rows, -1), y.reshape(rows, -1), scale, bias, channels // parts, epsilon,
        min(team, rows),
    )  # fmt: skip
    return Launch(run, arguments, y)
