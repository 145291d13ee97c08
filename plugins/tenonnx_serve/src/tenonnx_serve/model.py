"""One version of a model: a session, and its inputs and outputs in the protocol's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenonnx import InferenceSession, InvalidArgument, NodeArg, NotSupported
from tenonnx.errors import did_you_mean
from tenonnx.process import interruption
from tenonnx.process.interruption import Limit
from tenonnx_serve import config
from tenonnx_serve.config import ModelConfig
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.requests import Array, quoted
from tenonnx_serve.settings import Batching
from tenonnx_serve.statistics import Statistics
from tenonnx_serve.tensors import TensorSpec, spec_of


class Model:
    """One version of a model.

    Args:
        name: The model's name for clients.
        version: A number, as text.
        session: Runs it.
        said: Its configuration from the file.
        batching: How its requests are joined, if the configuration does not say so and all inputs
            and outputs have rows.
        folder: The folder of its file, which may have a tokenizer, too.

    Attributes:
        config: Its configuration, completed from the model.
        at_once: How many joined runs there may be at once.
        most_rows: How many rows a request may have; 0 for any number.

    Raises:
        InvalidArgument: The configuration contradicts the model.
        NotSupported: The protocol has no type for an input, or for any output.
    """

    def __init__(
        self,
        name: str,
        version: str,
        session: InferenceSession,
        said: ModelConfig,
        batching: Batching,
        folder: Path | None = None,
    ) -> None:
        self.name, self.folder = name, folder
        self.version = version
        self.session = session
        self.inputs = {arg.name: _input_spec(name, arg) for arg in session.get_inputs()}
        overridable = ((arg.name, spec_of(arg)) for arg in session.get_overridable_initializers())
        self.takes = self.inputs | {name: spec for name, spec in overridable if spec is not None}
        outputs = session.get_outputs()
        specs = ((arg.name, spec_of(arg)) for arg in outputs)
        self.outputs = {name: spec for name, spec in specs if spec is not None}
        self.hidden = {arg.name: arg.type for arg in outputs if arg.name not in self.outputs}
        if not self.outputs:
            raise NotSupported(
                f"model {name!r}: the protocol has no type for any of its outputs: {self.hidden}"
            )
        self.config = config.completed(said, self, batching if self._has_rows() else Batching())
        self.batching = config.batching_of(self.config)
        self.at_once = config.at_once_of(self.config)
        self.most_rows: int = said.max_batch_size
        if self.most_rows and not self._has_rows():
            raise InvalidArgument(
                f"model {name!r} has max_batch_size {self.most_rows} in its configuration, but an "
                "input or output has a fixed first size"
            )
        self.statistics = Statistics()
        self._all = None if not self.hidden else tuple(self.outputs)

    def _has_rows(self) -> bool:
        """Return whether the first size of all inputs and outputs is open."""
        specs = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and all(spec.shape[:1] == (-1,) for spec in specs)

    def input(self, name: Any) -> TensorSpec:
        """Return an input by name.

        Raises:
            BadRequest: It does not exist.
        """
        spec = self.takes.get(name) if isinstance(name, str) else None
        if spec is None:
            known = did_you_mean(quoted(name).strip("'"), self.takes)
            raise BadRequest(f"model '{self.name}' has no input {quoted(name)}{known}")
        return spec

    def output(self, name: Any) -> TensorSpec:
        """Return an output by name.

        Raises:
            BadRequest: It does not exist, or the protocol has no type for it.
        """
        spec = self.outputs.get(name) if isinstance(name, str) else None
        if spec is None:
            kind = self.hidden.get(name) if isinstance(name, str) else None
            known = did_you_mean(quoted(name).strip("'"), self.outputs)
            why = f"; it is {kind}, which the protocol has no type for" if kind else known
            raise BadRequest(f"model '{self.name}' has no output {quoted(name)}{why}")
        return spec

    def run(self, feeds: Mapping[str, Array], names: Sequence[str], stop: Limit) -> list[Array]:
        """Return outputs, all if none are named; ``stop`` may end the run."""
        stop.check()
        with interruption.limited(stop):
            return self.session.run(names or self._all, feeds)


def _input_spec(model: str, arg: NodeArg) -> TensorSpec:
    spec = spec_of(arg)
    if spec is None:
        raise NotSupported(
            f"model {model!r} cannot be served: the Open Inference Protocol has no type for its "
            f"input {arg.name!r}, {arg.type}",
            hint="give the model an input of a wider type, and a Cast after it",
        )
    return spec
