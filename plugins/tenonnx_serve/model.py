"""One version of a model: a session, and its inputs and outputs in the protocol's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx import InferenceSession, InvalidArgument, NodeArg, NotSupported, interruption
from tenonnx.interruption import Limit
from tenonnx_serve import config
from tenonnx_serve.config import ModelConfig
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.requests import Array, shown
from tenonnx_serve.settings import Batching
from tenonnx_serve.statistics import Statistics
from tenonnx_serve.tensors import TensorSpec, spec_of


class Model:
    """One version of a model.

    Args:
        name: What clients call it.
        version: A number, as text.
        session: Runs it.
        said: Its configuration, as it was read.
        batching: How its requests are joined, if that does not say it and all inputs and outputs
            have rows.

    Attributes:
        config: Its configuration, with what the model itself says.
        at_once: Runs at once, where requests are joined.
        most_rows: How many rows a request may have; 0 for any number.

    Raises:
        InvalidArgument: The configuration is not of this model.
        NotSupported: An input, or every output, is of a type that the protocol has no word for.
    """

    def __init__(
        self,
        name: str,
        version: str,
        session: InferenceSession,
        said: ModelConfig,
        batching: Batching,
    ) -> None:
        self.name = name
        self.version = version
        self.session = session
        self.inputs = {arg.name: _wanted(name, arg) for arg in session.get_inputs()}
        overridable = ((arg.name, spec_of(arg)) for arg in session.get_overridable_initializers())
        self.takes = self.inputs | {name: spec for name, spec in overridable if spec is not None}
        outputs = session.get_outputs()
        specs = ((arg.name, spec_of(arg)) for arg in outputs)
        self.outputs = {name: spec for name, spec in specs if spec is not None}
        self.hidden = {arg.name: arg.type for arg in outputs if arg.name not in self.outputs}
        if not self.outputs:
            raise NotSupported(
                f"model {name!r} has no output that the protocol has a type for: {self.hidden}"
            )
        self.config = config.completed(said, self, batching if self._has_rows() else Batching())
        self.batching = config.batching_of(self.config)
        self.at_once = config.at_once_of(self.config)
        self.most_rows: int = said.max_batch_size
        if self.most_rows and not self._has_rows():
            raise InvalidArgument(
                f"model {name!r} has max_batch_size {self.most_rows} in its configuration, but not "
                "all its inputs and outputs leave their first size open"
            )
        self.statistics = Statistics()
        self._all = None if not self.hidden else tuple(self.outputs)

    def _has_rows(self) -> bool:
        """Says whether the first size of all inputs and outputs is left open."""
        specs = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and all(spec.shape[:1] == (-1,) for spec in specs)

    def input(self, name: Any) -> TensorSpec:
        """Returns the input of a name.

        Raises:
            BadRequest: There is none.
        """
        spec = self.takes.get(name) if isinstance(name, str) else None
        if spec is None:
            raise BadRequest(f"model '{self.name}' has no input {shown(name)}")
        return spec

    def output(self, name: Any) -> TensorSpec:
        """Returns the output of a name.

        Raises:
            BadRequest: There is none, or it is of a type that the protocol has no word for.
        """
        spec = self.outputs.get(name) if isinstance(name, str) else None
        if spec is None:
            kind = self.hidden.get(name) if isinstance(name, str) else None
            why = f"; it is {kind}, which the protocol has no type for" if kind else ""
            raise BadRequest(f"model '{self.name}' has no output {shown(name)}{why}")
        return spec

    def run(self, feeds: Mapping[str, Array], names: Sequence[str], stop: Limit) -> list[Array]:
        """Returns outputs, all of them if none is named; ``stop`` may stop it."""
        stop.check()
        with interruption.limited(stop):
            return self.session.run(names or self._all, feeds)


def _wanted(model: str, arg: NodeArg) -> TensorSpec:
    spec = spec_of(arg)
    if spec is None:
        raise NotSupported(
            f"model {model!r} cannot be served: its input {arg.name!r} is {arg.type}, which the "
            "Open Inference Protocol has no type for",
            hint="have the model take a wider type and begin with a Cast",
        )
    return spec
