"""The provider under test, and sessions on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import onnx
import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx.options import GraphOptimizationLevel, SessionOptions
from tenonnx.plugins.choosing import make_options
from tenonnx.plugins.manager import default_plugins
from tenonnx.provider import Provider, Segment, Step, why_unusable
from tenonnx.session import InferenceSession
from tenonnx.testing.one import plugins_and
from tenonnx.weights.registry import WeightRegistry

FALLBACK = "CPUExecutionProvider"


class Fallback(Provider):
    """A provider for the operator that nobody has, which does nothing."""

    name = "FallbackExecutionProvider"
    calls: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "Nothing": np.copy,
        "Neg": np.negative,
        "Relu": lambda x: np.maximum(x, 0),
    }

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accept the operators of ``models.foreign()``."""
        return node.op_type in self.calls or "only models.foreign() runs here"

    def compile(self, segment: Segment) -> list[Step]:
        """Return a step per node."""
        return [
            Step(self.calls[node.op_type], tuple(node.inputs), tuple(node.outputs), (node,))
            for node in segment.nodes
        ]


class Subject:
    """A provider to be tested.

    Args:
        provider: The name of one that an installed plug-in brings, or the class.
        options: Its options in sessions.

    Attributes:
        plugins: Those of its sessions.
        cls: Its class.
        problem: Why it cannot be used here; ``None`` if it can.
    """

    def __init__(self, provider: str | type[Provider], options: Mapping[str, Any]) -> None:
        self.plugins = default_plugins()
        self.cls = self.plugins.provider(provider) if isinstance(provider, str) else provider
        if self.cls not in self.plugins.providers.values():
            self.plugins = plugins_and("register_providers", self.cls)
        self.options = dict(options)
        self.problem = why_unusable(self.cls)

    @property
    def name(self) -> str:
        """The provider's."""
        return self.cls.name

    @functools.cached_property
    def instance(self) -> Provider:
        """An instance, to call its ``supports``."""
        options = make_options(self.cls.Options, self.options, self.name)
        return self.cls(options, self.plugins.operators_for(self.cls))

    def open(
        self,
        model: Any,
        *,
        alone: bool = False,
        optimize: bool = False,
        weights: WeightRegistry | None = None,
        after: Provider | None = None,
    ) -> InferenceSession:
        """Return a session on the provider, and unless ``alone`` on the CPU's after it.

        Args:
            model: A model, in a form that sessions open.
            alone: Without another provider.
            optimize: With all transforms; without any if not.
            weights: The registry; the process's if ``None``.
            after: Another provider to take what this one declines.
        """
        levels = GraphOptimizationLevel
        options = SessionOptions(
            graph_optimization_level=levels.ORT_ENABLE_ALL if optimize else levels.ORT_DISABLE_ALL,
            plugins=self.plugins,
        )
        if weights is not None:
            options.weights = weights
        requests: list[Any] = [(self.name, self.options)]
        if after is not None:
            requests.append(after)
        elif not alone and FALLBACK in self.plugins.providers and self.name != FALLBACK:
            requests.append(FALLBACK)
        return InferenceSession(model, options, requests)

    def claims(self, model: onnx.ModelProto) -> bool:
        """Return whether the provider supports some node of a model's main graph."""
        read = ir.from_proto(model)
        graphs.resolve_versions(read)
        nodes = (node for node in read.graph if not graphs.is_control_flow(node))
        return any(self.instance.supports(node) is True for node in nodes)


@functools.cache
def subject_of(provider: str | type[Provider], options: tuple[tuple[str, Any], ...]) -> Subject:
    """Return the subject of a test class; the same one for all its tests."""
    return Subject(provider, dict(options))
