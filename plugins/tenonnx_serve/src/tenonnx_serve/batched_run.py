"""Several requests as one run: inputs are concatenated by rows, and outputs are split."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.process.interruption import Stopped
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Request
from tenonnx_serve.statistics import Execution
from tenonnx_serve.threads import Stop

RunOutcome = tuple[list[Array], Execution] | Exception


def rows_of(request: Request) -> int:
    """Return how many rows a request has: the first size that all its inputs share.

    Raises:
        BadRequest: They share none.
    """
    sizes = {array.shape[:1] for array in request.inputs.values()}
    if len(sizes) != 1 or sizes == {()}:
        shapes = {name: list(array.shape) for name, array in request.inputs.items()}
        raise BadRequest(f"requests are joined by rows, but these inputs share no size: {shapes}")
    return int(sizes.pop()[0])


def signature(request: Request) -> tuple[Any, ...]:
    """Return the key that is equal for requests that may run together."""
    shapes = sorted((name, array.shape[1:]) for name, array in request.inputs.items())
    return (*shapes, request.names)


def run(
    model: Model, requests: Sequence[Request], rows: Sequence[int], stop: Stop
) -> list[RunOutcome]:
    """Return the results of several requests of one signature, with their rows.

    If the joined run fails, each request runs alone, so that one bad request fails alone.

    Raises:
        Stopped: Nobody waits for them any more.
    """
    began = time.perf_counter_ns()
    if len(requests) > 1:
        try:
            return _run_joined(model, requests, rows, stop, began)
        except Stopped:
            raise
        except Exception:  # each request runs again alone, and the right one fails
            each = zip(requests, rows, strict=True)
            return [_alone(model, request, count, stop, began) for request, count in each]
    return [_alone(model, requests[0], rows[0], stop, began)]


def _alone(model: Model, request: Request, rows: int, stop: Stop, began: int) -> RunOutcome:
    joined, before = time.perf_counter_ns(), time.thread_time_ns()
    try:
        outputs = model.run(request.inputs, request.names, stop)
    except Exception as error:  # belongs to this request alone
        return error
    busy = time.thread_time_ns() - before
    return outputs, Execution(began, joined, time.perf_counter_ns(), 1, rows, busy)


def _run_joined(
    model: Model, requests: Sequence[Request], rows: Sequence[int], stop: Stop, began: int
) -> list[RunOutcome]:
    feeds = {
        name: np.concatenate([request.inputs[name] for request in requests])
        for name in requests[0].inputs
    }
    joined = time.perf_counter_ns()
    outputs = model.run(feeds, requests[0].names, stop)
    ran, total = time.perf_counter_ns(), sum(rows)
    for array in outputs:
        if array.ndim == 0 or len(array) != total:
            raise ValueError(
                f"expected an output of {total} rows, as the inputs have; found shape {array.shape}"
            )
    run = Execution(began, joined, ran, len(requests), total)
    ends = np.cumsum(rows).tolist()
    return [
        ([array[end - size : end] for array in outputs], run)
        for size, end in zip(rows, ends, strict=True)
    ]
