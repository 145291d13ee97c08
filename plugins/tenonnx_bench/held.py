"""A process that opens a model, runs it and waits, so that its memory can be read meanwhile."""

from __future__ import annotations

import gc
import json
import pickle
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.cli.opening import Request, open_session
from tenonnx.cli.smoke import tiny_model
from tenonnx_bench.contender import PEER, opener

if TYPE_CHECKING:
    from tenonnx.cli.state import State

RUNS = 3
"""Runs of every process: what a first one leaves behind, a second one uses."""

Opened = tuple[Callable[[Mapping[str, Any]], Any], Callable[[], dict[str, Any]]]
"""What runs the model, and what tells of its weights."""


def hold(state: State, contender: str, model: str, request: Request, feeds: str) -> None:
    """Opens and runs a model, and says on standard output how far it is, a line of JSON each.

    ``ready`` comes when the contender's code is loaded and has run a tiny model; it goes on when
    a line arrives on standard input. ``loaded`` and ``done`` follow; the process then stays until
    standard input ends.

    Args:
        state: The plugins to use.
        contender: Either ``tenonnx`` or the peer's name.
        model: Its path.
        request: How to open it.
        feeds: Path of the pickled inputs.
    """
    with Path(feeds).open("rb") as file:
        inputs = pickle.load(file)
    open_model = _peer(state, request) if contender == PEER else _ours(state, request)
    # A product has whoever computes products loaded, which is code and not of the model.
    open_model(tiny_model("MatMul"))[0]({"x": np.ones((4, 4), np.float32)})
    gc.collect()
    _say("ready")
    sys.stdin.readline()
    run, tell = open_model(model)
    _say("loaded")
    for _ in range(RUNS):
        run(inputs)
    gc.collect()
    _say("done", **tell())
    sys.stdin.read()


def _say(step: str, **more: Any) -> None:
    print(json.dumps({"step": step, **more}), flush=True)


def _peer(state: State, request: Request) -> Callable[[str | bytes], Opened]:
    open_peer = opener(state, PEER, request)
    return lambda model: (open_peer(model), dict)


def _ours(state: State, request: Request) -> Callable[[str | bytes], Opened]:
    def open_ours(model: str | bytes) -> Opened:
        session, _ = open_session(state, model, request)

        def tell() -> dict[str, Any]:
            report = session.registry.report()
            kinds = ("mapped", "resident", "private", "derived")
            return {"weights": {k: getattr(report, k) for k in kinds}, "report": str(report)}

        return lambda feeds: session.run(None, feeds), tell

    return open_ours
