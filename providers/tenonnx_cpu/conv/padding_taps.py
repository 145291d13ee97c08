"""Taps that see nothing but padding, and convolutions without them.

A kernel of 3 x 3 on one line of an image, or one whose dilation is wider than the image, has most
of its taps there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tenonnx.provider import HOST
from tenonnx_array.windows import Windows
from tenonnx_cpu.kernel_selection import NDArray

if TYPE_CHECKING:
    from tenonnx.weights.weight import Weight


def reached(windows: Windows) -> tuple[slice, ...]:
    """Return, for each axis, from which to which tap windows see the image."""
    return tuple(map(windows.reached, range(len(windows.size))))


def without_others(windows: Windows, taps: tuple[slice, ...]) -> Windows:
    """Return windows of these taps alone."""
    sides = zip(windows.kernel, windows.dilations, taps, strict=True)
    cut = [(kept.start * step, (kernel - kept.stop) * step) for kernel, step, kept in sides]
    return windows._replace(
        kernel=tuple(kept.stop - kept.start for kept in taps),
        begins=tuple(begin - own for begin, (own, _) in zip(windows.begins, cut, strict=True)),
        ends=tuple(end - own for end, (_, own) in zip(windows.ends, cut, strict=True)),
    )


def kept(weight: Weight, taps: tuple[slice, ...]) -> NDArray:
    """Return the weights of these taps, the last ones that there are, kept by their registry."""
    made = weight.derive(
        f"conv-taps:{named_taps(taps)}",
        lambda: np.ascontiguousarray(weight.on(HOST)[(..., *taps[2 - weight.on(HOST).ndim :])]),
    )
    return made.on(HOST)  # type: ignore[no-any-return]  # the host's are numpy's


def named_taps(taps: tuple[slice, ...]) -> str:
    """Return what the registry calls these taps."""
    return ",".join(f"{along.start}-{along.stop}" for along in taps)
