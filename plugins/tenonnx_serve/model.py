"""One version of a model: a session, and its inputs and outputs in the protocol's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tenonnx import InferenceSession, NodeArg, NotSupported, interruption
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.requests import Array, shown
from tenonnx_serve.tensors import TensorSpec, spec_of
from tenonnx_serve.threads import Stop

PLATFORM = "tenonnx_onnx"


class Model:
    """One version of a model.

    Args:
        name: What clients call it.
        version: A number, as text.
        session: Runs it.

    Raises:
        NotSupported: An input, or every output, is of a type that the protocol has no word for.
    """

    def __init__(self, name: str, version: str, session: InferenceSession) -> None:
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
        self._all = None if not self.hidden else tuple(self.outputs)

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

    def metadata(self) -> dict[str, Any]:
        """Returns what clients are told of it."""
        return {
            "name": self.name,
            "versions": [self.version],
            "platform": PLATFORM,
            "inputs": [_described(spec) for spec in self.inputs.values()],
            "outputs": [_described(spec) for spec in self.outputs.values()],
        }

    def run(self, feeds: Mapping[str, Array], names: Sequence[str], stop: Stop) -> list[Array]:
        """Returns outputs, all of them if none is named; ``stop`` may stop it."""
        with interruption.limited(stop):
            stop.check()
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


def _described(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}
