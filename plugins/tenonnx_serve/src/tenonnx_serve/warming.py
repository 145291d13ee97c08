"""Warms a model up, so that its first request is as fast as the others.

Before the model is ready, its kernels are mapped, its runs of every batch size are
captured, and its weights' pages are in memory.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tenonnx import TenonnxError
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array
from tenonnx_serve.samples import Sample

if TYPE_CHECKING:
    from tenonnx_serve.openai.language_model import LanguageModel

log = logging.getLogger("tenonnx.serve")

# Runs of each batch size: the second run of new shapes is captured, the third one replayed.
RUNS_PER_SIZE = 3

# The time after which no further batch size is warmed up.
MAX_SECONDS = 60.0

# The most bytes of made-up inputs; a larger batch is left to the first request.
MAX_BYTES = 1 << 28


def warm_up(model: Model, declared: Iterable[Sample] = ()) -> None:
    """Run a model until it is at full speed, on declared samples, else on zeros.

    Open sizes are then 1, except the first one, the batch's. A model that fails, because it
    inspects its inputs' values, is not warmed up further; the log says so.

    Args:
        model: The model.
        declared: The samples of its configuration.
    """
    start = time.perf_counter()
    try:
        for sample in list(declared) or _made_up(model):
            model.session.run(None, sample.feeds)
            for _ in range(max(RUNS_PER_SIZE, sample.count) - 1):
                model.session.run(None, sample.feeds)
            if time.perf_counter() - start > MAX_SECONDS:
                break
    except (TenonnxError, MemoryError) as error:
        why = str(error).partition("\n")[0]
        log.warning("model %s cannot be warmed up: %s", model.name, why)
    seconds = time.perf_counter() - start
    log.info("model %s version %s is warm after %.2f s", model.name, model.version, seconds)


def warm_up_language(model: LanguageModel) -> None:
    """Have a language model generate until its steps are as they will be.

    Raises:
        TenonnxError: It cannot: its graph and its configuration do not fit each other.
    """
    start = time.perf_counter()
    for _ in range(RUNS_PER_SIZE):
        model.warm_up()
    log.info("model %s is warm after %.2f s", model.name, time.perf_counter() - start)


def _made_up(model: Model) -> Iterator[Sample]:
    for size in batch_sizes(model):
        feeds = made_up(model, size)
        if sum(array.nbytes for array in feeds.values()) <= MAX_BYTES:
            yield Sample(f"{size} rows", feeds, 1)


def batch_sizes(model: Model) -> list[int]:
    """Return the batch sizes to warm up: one row, the preferred ones, the largest."""
    preferred = model.config.dynamic_batching.preferred_batch_size
    return sorted({1, *preferred, model.batching.largest, model.most_rows or 1})


def made_up(model: Model, size: int) -> dict[str, Array]:
    """Return inputs of zeros or of empty strings, for a batch of the given size."""
    feeds = {}
    for name, spec in model.inputs.items():
        shape = [max(1, length) for length in spec.shape]
        if spec.shape and spec.shape[0] < 0:
            shape[0] = size
        if spec.dtype == object:
            feeds[name] = np.full(shape, "", object)
        else:
            # Untouched pages take no memory before the model reads them.
            feeds[name] = np.zeros(shape, spec.dtype)
    return feeds
