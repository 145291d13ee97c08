"""Models in a Ray worker, with as many threads as the worker has CPUs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tenonnx import InferenceSession, SessionOptions, TenonnxError
from tenonnx_ray.fetching import fetched, is_address

log = logging.getLogger("tenonnx.ray")

# A path, an address that `fetched` takes, or a small model's bytes.
Source = str | bytes | os.PathLike[str]


def opened(
    source: Source, options: SessionOptions | None = None, providers: Sequence[Any] | None = None
) -> InferenceSession:
    """Return a session.

    Args:
        source: The model. Workers of one node map one file; bytes are in each worker.
        options: As for a session; ``intra_op_num_threads`` is the number of CPUs that Ray
            gives the worker, unless they say another.
        providers: As for a session.

    Raises:
        TenonnxError: As for a session.
    """
    if isinstance(source, str) and is_address(source):
        source = fetched(source)
    options = SessionOptions() if options is None else options.copy()
    options.intra_op_num_threads = options.intra_op_num_threads or threads()
    return InferenceSession(source, options, providers=providers)


def threads() -> int:
    """Return how many CPUs Ray gives this worker, at least one; 0, for all, outside a worker."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return 0
    context = ray.get_runtime_context()
    if context.get_task_id() is None and context.get_actor_id() is None:
        return 0  # the driver program, which may have no resources assigned
    return max(1, int(context.get_assigned_resources().get("CPU", 0)))


def warm(session: InferenceSession, rows: Iterable[int]) -> None:
    """Run on zeros with so many rows each, if only the rows of the inputs are open."""
    arguments = session.get_inputs()
    dtypes = [dtype_of(arg.type) for arg in arguments]
    if None in dtypes or any(not isinstance(n, int) for arg in arguments for n in arg.shape[1:]):
        return
    for count in sorted(rows):
        shapes = [[n if isinstance(n, int) else count for n in arg.shape] for arg in arguments]
        zeros = map(np.zeros, shapes, dtypes)
        try:
            session.run(None, {arg.name: each for arg, each in zip(arguments, zeros, strict=True)})
        except TenonnxError as error:  # the model may refuse zeros
            log.warning("not warmed with %d rows of zeros: %s", count, error)
            return


def dtype_of(kind: str) -> np.dtype[Any] | None:
    """Return numpy's dtype of a type's name, such as ``tensor(float)``, if it has one."""
    name = kind.removeprefix("tensor(").removesuffix(")")
    try:
        return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
    except TypeError:
        return None
