"""The ONNX backend interface: ``onnx.backend.test`` and its peers run tenonnx through it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep

from tenonnx.options import SessionOptions
from tenonnx.plugins.choosing import ProviderRequest
from tenonnx.plugins.manager import default_plugins
from tenonnx.provider import why_unusable
from tenonnx.session import InferenceSession


class TenonnxBackendRep(BackendRep):
    """A prepared model."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs for inputs given in order, by name, or as one array."""
        del kwargs
        names = [arg.name for arg in self.session.get_inputs()]
        if isinstance(inputs, Mapping):
            feeds = dict(inputs)
        else:
            given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            feeds = dict(zip(names, given, strict=False))
        return tuple(self.session.run(None, feeds))


class TenonnxBackend(Backend):
    """A backend over the provider whose alias is the device's name in lower case.

    Keyword arguments ``providers`` and ``sess_options`` go to the session instead.
    """

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> TenonnxBackendRep:
        """Build a session for a model."""
        providers: Sequence[ProviderRequest] = kwargs.get("providers", [device.split(":")[0]])
        options: SessionOptions | None = kwargs.get("sess_options")
        return TenonnxBackendRep(InferenceSession(model, options, providers))

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Build a session for a model and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node; ``opset_version`` says in which version it is written, else the newest."""
        del outputs_info
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in node.input if name]
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name) for name in names],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        imports = [onnx.helper.make_opsetid(node.domain, version)]
        model = onnx.helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, inputs, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether a provider of that alias is usable here."""
        for provider in default_plugins().providers.values():
            if device.split(":")[0].lower() in provider.aliases:
                return why_unusable(provider) is None
        return False


prepare = TenonnxBackend.prepare
run_model = TenonnxBackend.run_model
run_node = TenonnxBackend.run_node
supports_device = TenonnxBackend.supports_device
