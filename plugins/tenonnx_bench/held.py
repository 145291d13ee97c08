"""A process that opens a model, runs it and waits, so that its memory can be read."""

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
from tenonnx_bench.peers import ONNXRUNTIME, OPENVINO, peer_opener

if TYPE_CHECKING:
    from tenonnx.cli.state import State

# Runs of every process: later runs use what the first one made.
RUNS_PER_PROCESS = 3

# Runs the model, and describes its weights.
Opened = tuple[Callable[[Mapping[str, Any]], Any], Callable[[], dict[str, Any]]]


def hold(state: State, contender: str, model: str, request: Request, feeds: str) -> None:
    """Open and run a model, and report progress on standard output as lines of JSON.

    It prints ``ready`` when the contender's code is loaded and has run a tiny model, and waits for
    a line on standard input. Then it prints ``loaded`` and ``done``, and stays until standard
    input ends.

    Args:
        state: The plug-ins to use.
        contender: Either ``tenonnx`` or the peer's name.
        model: Its path.
        request: How to open it.
        feeds: Path of the pickled inputs.
    """
    with Path(feeds).open("rb") as file:
        inputs = pickle.load(file)
    peer = contender in (ONNXRUNTIME, OPENVINO)
    open_model = _peer(contender, request) if peer else _ours(state, request)
    # A product loads the library that computes products: its memory is code, not the model's.
    open_model(tiny_model("MatMul"))[0]({"x": np.ones((4, 4), np.float32)})
    gc.collect()
    _say("ready")
    sys.stdin.readline()
    run, tell = open_model(model)
    _say("loaded")
    for _ in range(RUNS_PER_PROCESS):
        run(inputs)
    gc.collect()
    _say("done", **tell())
    sys.stdin.read()


def _say(step: str, **more: Any) -> None:
    print(json.dumps({"step": step, **more}), flush=True)


def _peer(name: str, request: Request) -> Callable[[str | bytes], Opened]:
    open_peer = peer_opener(name, request.threads)
    return lambda model: (open_peer(model), dict)


def _ours(state: State, request: Request) -> Callable[[str | bytes], Opened]:
    def open_ours(model: str | bytes) -> Opened:
        session, _ = open_session(state, model, request, as_programs_do=True)

        def tell() -> dict[str, Any]:
            report = session.registry.report()
            kinds = ("mapped", "resident", "private", "derived", "device")
            return {
                "weights": {k: getattr(report, k) for k in kinds},
                "devices": [vars(row) for row in report.devices],
                "report": str(report),
            }

        return lambda feeds: session.run(None, feeds), tell

    return open_ours
