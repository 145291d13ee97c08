"""ReduceLogSumExp as a LogSoftmax, whose greatest element is the sum's logarithm, negated."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F64, contiguous
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead, fix
from tenonnx_cpu.elementwise.kernels.operations import BOOL, EQUAL, FLOAT64, SUB, WHERE
from tenonnx_cpu.elementwise.typed import APPLY, DTYPES, OF_SIZE, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.norms import SOFTMAX, SoftmaxCall
from tenonnx_cpu.reduce.fold import folded
from tenonnx_cpu.reduce.reduction import ReductionCall, reduction

ZERO = fix(np.zeros(1))


@specialize("ReduceLogSumExp")
def specialize_log_sum_exp(site: Site, plain: Call) -> Call | None:
    """Take float64 over axes that are constants; a transform takes float32."""
    call = reduction(site, plain)
    if not isinstance(call, ReductionCall) or not call.apart or site.dtype(0) != F64:
        return None
    APPLY.request()
    SOFTMAX.request()
    return Capturable(functools.partial(_reduced, call))


@cacheable
def _reduced(call: ReductionCall, x: NDArray, *rest: Any) -> Any:
    rank, given = x.ndim, call.axes or tuple(range(x.ndim))
    if x.dtype != F64 or not x.size or not rank or not all(-rank <= n < rank for n in given):
        return call.plain(x, *rest)
    axes = sorted(axis % rank for axis in given)
    kept = [axis for axis in range(rank) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    made = _of_rows(contiguous(x.transpose(*kept, *axes)).reshape(-1, count), call.threads)
    if made is None:
        return call.plain(x, *rest)
    left = range(rank) if call.keeps else kept
    shape = [1 if axis in axes else x.shape[axis] for axis in left]
    return made._replace(result=made.result.reshape(shape))


def _of_rows(x: NDArray, threads: int) -> Launch | None:
    """Return a launch of rows' results: their greatest elements where these are not finite."""
    top = folded("ReduceMax", x, (1,), True, threads)
    logarithms = SoftmaxCall(1, False, 1, threads, _nothing)(x)
    if top is None or logarithms is None:
        return None
    greatest, negated = ahead(top), folded("ReduceMax", ahead(logarithms), (1,), True, threads)
    apart = launch(SUB, FLOAT64, (greatest, greatest), F64, threads)
    if negated is None or apart is None:
        return None
    sums = launch(SUB, FLOAT64, (greatest, ahead(negated)), F64, threads)
    is_finite = launch(EQUAL, FLOAT64, (ahead(apart), ZERO), DTYPES[BOOL], threads)
    if sums is None or is_finite is None:
        return None
    return launch(WHERE, OF_SIZE[8], (ahead(is_finite), ahead(sums), greatest), F64, threads)


@cacheable
def _nothing(*_: NDArray) -> None:
    return None
