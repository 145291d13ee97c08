"""Convolution by cuDNN, where it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.operators import Array
from tenonnx_array.windows import Windows
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.conv.convolution_graph import (
    BIAS,
    LITTLE_WORKSPACE,
    MAX_WORKSPACE_BYTES,
    SUM,
    Convolution,
    W,
    X,
    Y,
)
from tenonnx_cuda.conv.task import ConvTask, Ending, finish
from tenonnx_cuda.cudnn.operations import Tensor
from tenonnx_cuda.kernel_selection import Target
from tenonnx_cuda.sources import SOURCE_TYPES, is_aligned


def by_cudnn(task: ConvTask) -> Array | None:
    """Return what cuDNN computes, and a kernel for what it leaves; ``None`` if it cannot."""
    target, cudnn, b = task.target, task.target.platform.cudnn, task.b
    if cudnn is None:
        return None
    able = on_tensor_cores(target, task.x.dtype)
    x = task.x
    if layouts.has_channels_last(x) is None or not (able or x.flags.c_contiguous):
        x = layouts.with_channels(target.xp, x, at_end=able)
    has_gaps = layouts.has_channels_last(task.w) is None
    w = target.xp.ascontiguousarray(task.w) if has_gaps else task.w
    last = able and task.free
    z = None if task.z is None else layouts.with_channels(target.xp, task.z, at_end=last)
    b = None if b is None else target.xp.ascontiguousarray(b)
    x, w = map(even, (x, w))
    b, z = (None if a is None else even(a) for a in (b, z))
    what = described(task, x, w, z, last=last)
    y = layouts.empty(target.xp, task.shape, x.dtype, at_end=last)
    arrays = {X: x, W: w, Y: y, BIAS: b, SUM: z}
    addresses = {name: a.data.ptr for name, a in arrays.items() if a is not None}
    plan = cudnn.plan(what, addresses)
    if plan is None or not cudnn.does(what, plan, arrays, target.xp):
        return None
    done = what.endings[: plan.form]
    b, z = (None if name in done else a for name, a in ((BIAS, b), (SUM, z)))
    ending = Ending() if Y in done else task.ending
    if b is not None or z is not None or ending.activation:
        finish(target, y, y, b, z, ending)
    return y


def even(array: Array) -> Array:
    """Return an array that begins at 16 bytes, as cuDNN is told; copied as it lies if need be."""
    return array if is_aligned(array) else array.copy("K")


def on_tensor_cores(target: Target, dtype: np.dtype[Any]) -> bool:
    """Return whether cuDNN multiplies such elements on tensor cores."""
    able = target.platform.cudnn is not None and target.has_tensor_cores
    return able and dtype in SOURCE_TYPES and (dtype != np.float32 or target.tf32)


def described(task: ConvTask, x: Array, w: Array, z: Array | None, *, last: bool) -> Convolution:
    """Return what cuDNN is asked for, of arrays that lie so; with channels last in the result."""
    windows, options = task.windows, task.target.options
    return Convolution(
        x.dtype,
        Tensor.of(x),
        Tensor.of(w),
        Tensor.without_gaps(task.shape, last=last),
        windows.strides,
        windows.dilations,
        windows.begins,
        ends_of(windows),
        task.transposed,
        options.use_tf32,
        z=None if z is None else Tensor.of(z),
        bias=task.b is not None,
        relu=task.ending.activation == "Relu",
        measured=options.cudnn_conv_algo_search == "EXHAUSTIVE",
        workspace=MAX_WORKSPACE_BYTES if options.cudnn_conv_use_max_workspace else LITTLE_WORKSPACE,
    )


def ends_of(windows: Windows) -> tuple[int, ...]:
    """Return padding after each axis for the same windows: as before it, where that can be.

    cuDNN has more engines for padding that is the same on both sides.
    """
    found = []
    for axis, begin in enumerate(windows.begins):
        stride, reach = windows.strides[axis], (windows.kernel[axis] - 1) * windows.dilations[axis]
        least = (windows.output[axis] - 1) * stride + reach + 1 - windows.size[axis] - begin
        found.append(begin if least <= begin < least + stride else max(least, 0))
    return tuple(found)
