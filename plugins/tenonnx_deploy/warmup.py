"""``tenonnx warmup``: compiles a model's kernels ahead."""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from tenonnx import Fail
from tenonnx.cli import arguments
from tenonnx.cli.opening import Request, open_session, parse_provider, usable_providers
from tenonnx.cli.output import count, duration, emit_json, lines, progress, say
from tenonnx.cli.state import State, state_of

if TYPE_CHECKING:
    from tenonnx import Provider

HELP = """Builds a library of kernels into the cache on disk, as an installation does.

Programs compile none: where a kernel is missing, numpy computes. It takes minutes, and seconds
after a change, as what has been compiled from the same sources is kept. With a model, it also runs
the model on random inputs, so that its plan and its derived weights are in the cache.

The cache is in TENONNX_CACHE_DIR. Kernels are for the best target CPU that this processor supports,
or for the one that TENONNX_PROCESSOR names; such machines can use them, also without numba.

\b
Examples:
  tenonnx warmup model.onnx --dim batch=8
  tenonnx warmup
  TENONNX_PROCESSOR=x86-64-v3 tenonnx warmup
"""


def warmup(
    context: typer.Context,
    model: arguments.Model = "",
    inputs: arguments.Inputs = arguments.NO_VALUES,
    dims: arguments.Dims = arguments.NO_VALUES,
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    as_json: arguments.Json = False,
) -> None:
    """Build kernels."""
    state = state_of(context)
    start = time.perf_counter()
    run = functools.partial(
        _run, state, model, Request(providers, level, without, roots), inputs, dims
    )
    if model:
        with _no_warnings():
            run()  # a provider may compile what its sessions ask for
    found: dict[str, bool] = {}
    with progress(1.0, tells_rest=True) as tell:
        for provider in _usable(state, providers):
            found |= provider.warm_up(
                lambda name, done: tell(f"compiling {name}", done), everything=not model
            )
    if model:
        run()  # with what is there now
    failed = sorted(name for name, there in found.items() if not there)
    if as_json:
        emit_json({"kernels": found, "seconds": time.perf_counter() - start})
    else:
        ready = count(len(found) - len(failed), "kernel")
        lines(f"{ready} in the cache after {duration(time.perf_counter() - start)}")
        if not found:
            say("hint", "no kernel is compiled here: this system has none, or TENONNX_JIT is 0")
    if failed:
        raise Fail(f"could not compile {', '.join(failed)}", hint="tenonnx -v shows the reasons")


def _run(
    state: State, model: str, request: Request, inputs: Sequence[str], dims: Sequence[str]
) -> None:
    """Open and run a model."""
    from tenonnx.cli.feeds import make_feeds, parse_dims

    session, _ = open_session(state, model, request)
    graph = session.model.graph
    session.run(None, make_feeds(graph, list(inputs) or ["random"], parse_dims(dims), 0))


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """Leave out that kernels are missing, and what would mend it."""
    log = logging.getLogger("tenonnx.jit")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _usable(state: State, names: Sequence[str]) -> list[type[Provider]]:
    if names:
        return [state.plugins.provider(parse_provider(name)[0]) for name in names]
    return usable_providers(state)
