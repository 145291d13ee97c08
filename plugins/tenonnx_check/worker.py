"""A child process that opens and runs parts of a model, one for each line that it reads."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.cli.opening import Request, load_original, open_session
from tenonnx.planning.differences import Limits, limits_of
from tenonnx_bench.peers import ONNXRUNTIME, peer_opener
from tenonnx_check.outcome import Kind, Outcome, compared, raised
from tenonnx_check.parts import Part, Whole, declare

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.cli.state import State

# The file of a folder that has the values of a model by name, pickled: feeds at first.
VALUES = "values"

# The line of a worker that has started.
READY = "ready"


class Worker:
    """Answers requests.

    Args:
        state: The plug-ins to use.
        request: How models are opened; a provider ``onnxruntime`` is the other runtime.
        tolerances: The relative and absolute tolerances, if they are not those of the dtypes.
        of_nodes: Those of some nodes, by names, operators or patterns.
    """

    def __init__(
        self,
        state: State,
        request: Request,
        tolerances: Limits,
        of_nodes: Mapping[str, float | tuple[float, float]],
    ) -> None:
        self._state, self._request, self._tolerances = state, request, tolerances
        self._of_nodes = of_nodes
        self._loaded: tuple[str, Whole] | None = None
        self._values: tuple[str, dict[str, Any]] | None = None

    def answer(self, asked: Mapping[str, Any]) -> Outcome:
        """Open and run what a request names.

        Args:
            asked: ``model``, a path, and ``folder``, where its values are; ``numbers`` of nodes,
                ``wanted`` names of outputs, ``apart`` and ``checked``, whether every step is; or
                ``store``, to run all of it and store the values of all nodes.
        """
        whole, folder = self._whole(asked["model"]), asked["folder"]
        values = self._values_of(folder)
        try:
            if asked.get("store"):
                self._store(whole, folder, values)
                return Outcome(Kind.FINE)
            numbers = asked["numbers"]
            part = (
                whole.apart(numbers)
                if asked.get("apart")
                else whole.part(numbers, asked.get("wanted"))
            )
            feeds = {name: values[value] for name, value in part.feeds.items()}
            found = self._run(part.model, feeds, check=bool(asked.get("checked")))
        except Exception as error:  # a stranger's code may raise anything
            return raised(error)
        return self._compare(whole, part, found, values)

    def _compare(
        self, whole: Whole, part: Part, found: Sequence[Any], values: Mapping[str, Any]
    ) -> Outcome:
        expected = [values[name] for name in part.outputs]
        limits = [self._limits(whole.maker(name)) for name in part.outputs]
        return compared(part.outputs, found, expected, limits)

    def _limits(self, node: ir.Node | None) -> Limits:
        """Return the tolerances of what a node makes."""
        if node is None:
            return self._tolerances
        own = limits_of(self._of_nodes, node.name or "", node.op_type)
        return own if own != (None, None) else self._tolerances

    def _store(self, whole: Whole, folder: str, feeds: Mapping[str, Any]) -> None:
        model = whole.with_all_values()
        names = {value.name for value in model.graph.inputs}
        found = self._run(model, {name: v for name, v in feeds.items() if name in names})
        values = [value.name or "" for value in whole.values()]
        stored = {**feeds, **dict(zip(values, found, strict=True))}
        Path(folder, VALUES).write_bytes(pickle.dumps(stored, protocol=5))
        self._values = None

    def _run(self, model: ir.Model, feeds: Mapping[str, Any], *, check: bool = False) -> list[Any]:
        declare(model, feeds)
        if list(self._request.providers) == [ONNXRUNTIME]:
            import onnx_ir as ir

            opened = peer_opener(ONNXRUNTIME, self._request.threads)
            return opened(ir.to_proto(model).SerializeToString())(feeds)
        request = dataclasses.replace(self._request, check=check and (self._of_nodes or True))
        session, _ = open_session(self._state, model, request)
        return session.run(None, dict(feeds))

    def _whole(self, path: str) -> Whole:
        if self._loaded is None or self._loaded[0] != path:
            self._loaded = (path, Whole(load_original(self._state, path, self._request)))
        return self._loaded[1]

    def _values_of(self, folder: str) -> dict[str, Any]:
        if self._values is None or self._values[0] != folder:
            self._values = (folder, pickle.loads(Path(folder, VALUES).read_bytes()))
        return self._values[1]


def serve(worker: Worker) -> None:
    """Answer each line of standard input with a line of standard output until input ends.

    A first line says that the process has started. Other output of the process, such as a
    plug-in's, goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        outcome = worker.answer(json.loads(line))
        print(json.dumps(vars(outcome)), file=answers, flush=True)
