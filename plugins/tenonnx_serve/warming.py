"""Warming a model up, so that its first request is no slower than the others.

Its kernels are compiled or mapped, its runs of every batch size are captured, and its weights'
pages are in memory, before anybody is told that it is ready.
"""

from __future__ import annotations

import logging
import time

import numpy as np

from tenonnx import TenonnxError
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array

log = logging.getLogger("tenonnx.serve")

RUNS = 3
"""Of each batch size: new shapes are captured when they come a second time, and then replayed."""

KERNEL_SECONDS = 600.0
"""How long to wait for kernels to be compiled."""

MAX_SECONDS = 60.0
"""After which no other batch size is warmed up."""

MAX_BYTES = 1 << 28
"""Of made-up inputs; a batch that takes more is left to the first request."""


def warm_up(model: Model) -> None:
    """Runs a model on made-up inputs until its runs are as they will be.

    Inputs are zeros. Sizes that a model leaves open are 1, but for the first one, which is the
    batch's. A model that refuses such inputs, as one may that looks at their values, is warmed up
    no further than it got; the log says so.

    Args:
        model: What to warm up.
    """
    start = time.perf_counter()
    try:
        for size in batch_sizes(model):
            feeds = made_up(model, size)
            if sum(array.nbytes for array in feeds.values()) > MAX_BYTES:
                continue
            model.session.run(None, feeds)
            _wait_for_kernels(model)
            for _ in range(RUNS - 1):
                model.session.run(None, feeds)
            if time.perf_counter() - start > MAX_SECONDS:
                break
    except (TenonnxError, MemoryError) as error:
        why = str(error).partition("\n")[0]
        log.warning("model %s cannot be warmed up on made-up inputs: %s", model.name, why)
    seconds = time.perf_counter() - start
    log.info("model %s version %s is warm after %.2f s", model.name, model.version, seconds)


def batch_sizes(model: Model) -> list[int]:
    """Returns the batches that are declared: one row, those that are preferred, the largest."""
    preferred = model.config.dynamic_batching.preferred_batch_size
    return sorted({1, *preferred, model.batching.largest, model.most_rows or 1})


def made_up(model: Model, size: int) -> dict[str, Array]:
    """Returns inputs of zeros, or of empty strings, for a batch of some size."""
    feeds = {}
    for name, spec in model.inputs.items():
        shape = [max(1, length) for length in spec.shape]
        if spec.shape and spec.shape[0] < 0:
            shape[0] = size
        if spec.dtype == object:
            feeds[name] = np.full(shape, "", object)
        else:
            # No page of it is touched before the model does.
            feeds[name] = np.zeros(shape, spec.dtype)
    return feeds


def _wait_for_kernels(model: Model) -> None:
    until = time.monotonic() + KERNEL_SECONDS
    while any(kernel.state == "compiling" for kernel in model.session.kernels.values()):
        if time.monotonic() > until:
            log.warning("model %s: kernels are compiled still, and numpy computes", model.name)
            return
        time.sleep(0.02)
