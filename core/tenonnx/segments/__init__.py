"""Providers that compile segments to bytes, which later processes get back.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tenonnx.by_name import cacheable
from tenonnx.planning.step import Step
from tenonnx.provider import Provider, Segment
from tenonnx.weights.digest import digest
from tenonnx.weights.registry import default_registry

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.weight import Weight

VERSION = "segment 1"

# Domain and name of onnxruntime's operator for a compiled segment.
CONTEXT = "com.microsoft", "EPContext"


class Executable:
    """A compiled segment: the call of a step.

    Subclass it, in a module of the plug-in, and define ``load`` and ``run``. What ``load`` returns
    belongs to the process; the bytes go to later ones.

    Args:
        weight: The bytes, as the registry has them.
        outputs: The number of the segment's outputs.
    """

    def __init__(self, weight: Weight, outputs: int) -> None:
        self.weight, self.outputs = weight, outputs

    def __init_subclass__(cls) -> None:
        cacheable(cls)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.weight, self.outputs)

    @property
    def binary(self) -> memoryview:
        """The bytes, read-only, in a mapped file if there is one."""
        return self.weight.array.data

    @cached_property
    def loaded(self) -> Any:
        """The handle that ``load`` returned, at the first run of each process."""
        return self.load(self.binary)

    def load(self, binary: memoryview) -> Any:
        """Return a handle of the code on the device; by default the bytes."""
        return binary

    def run(self, loaded: Any, inputs: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Run once, on any number of threads.

        Args:
            loaded: What ``load`` returned.
            inputs: Arrays of the device, in the order of the segment's inputs.
            outs: For each output the array that a caller bound, if it did and it is free, or
                ``None``. What is returned may be others.

        Returns:
            An array of the device for each of the segment's outputs.
        """
        raise NotImplementedError

    def __call__(self, *inputs: Any, _outs: Sequence[Any] | None = None) -> tuple[Any, ...]:
        """Run once, as steps are called."""
        return tuple(self.run(self.loaded, inputs, _outs or (None,) * self.outputs))


@cacheable
@dataclass
class SegmentOptions:
    """Options of users: ``providers=[("npu", {"min_nodes": 4})]``; a subclass may have more.

    Attributes:
        min_nodes: Nodes of a group that is worth the transfers; others run on the next provider.
    """

    min_nodes: int = 1

    def __init_subclass__(cls) -> None:
        cacheable(cls)


class SegmentProvider(Provider):
    """Base class of providers that compile a segment to bytes: define ``runs`` and ``build``.

    The bytes of a segment are kept in a file of their own, by the segment's content, code and
    version of the provider, ``depends_on`` and options, so that another model with the same
    segment, or the same model opened with other options of the session, compiles nothing either.
    With the session's entry ``ep.context_enable`` they are written into a model, as the node
    ``EPContext`` that onnxruntime's users know; such a model is opened as any other.
    """

    executable: ClassVar[type[Executable]]
    """The call of its steps."""

    Options: ClassVar[type | None] = SegmentOptions

    @abstractmethod
    def runs(self, node: ir.Node) -> Literal[True] | str:
        """Return whether the device runs a node, or why not; as ``Provider.supports``."""

    @abstractmethod
    def build(self, segment: Segment) -> bytes:
        """Compile a segment. Not called if another process has done it."""

    def groups(self, nodes: Sequence[ir.Node]) -> Iterable[Sequence[ir.Node]]:
        """Return the groups that become segments; one with all nodes, by default.

        That gives the fewest segments, and transfers, that there can be.
        ``tenonnx.segments.grouping`` has groups by pattern.
        """
        return [nodes]

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Return whether the device runs a node, or whether it is a segment compiled for it."""
        return self._opens(node) if is_context(node) else self.runs(node)

    def claim(self, nodes: Sequence[ir.Node]) -> Iterable[Sequence[ir.Node]] | None:
        """Return ``groups``, and each compiled segment as a group of its own."""
        contexts = [[node] for node in nodes if is_context(node)]
        found = map(list, self.groups([node for node in nodes if not is_context(node)]))
        least = self.options.min_nodes if isinstance(self.options, SegmentOptions) else 1
        return [*contexts, *(group for group in found if len(group) >= least)]

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return one step for a segment."""
        call = self.executable(self.kept(segment), len(segment.outputs))
        ends = segment.inputs, segment.outputs, segment.nodes
        return [Step(call, *ends, multiple=True, device=self.device)]

    def kept(self, segment: Segment) -> Weight:
        """Return a segment's bytes: those of an earlier process, or built now."""
        registry = self.session_options.weights or default_registry()
        if is_context(segment.nodes[0]):
            encoded = segment.nodes[0].attributes["ep_cache_context"].as_string()
            content = base64.b64decode(encoded)
            return registry.kept(f"{VERSION}:{digest(content)}", lambda: content)
        from tenonnx.plan_cache.segment_key import segment_key

        return registry.kept(segment_key(self, segment, VERSION), lambda: self.build(segment))

    def _opens(self, node: ir.Node) -> Literal[True] | str:
        """Return whether a compiled segment is for this provider, as it is now."""
        facts = {name: each.value for name, each in node.attributes.items()}
        if facts.get("source") != self.name:
            return f"it was compiled for {facts.get('source')}"
        if facts.get("ep_sdk_version") != repr(self.depends_on()):
            return f"it was compiled for {facts.get('ep_sdk_version')}, not {self.depends_on()!r}"
        if not self.session_options.trust_compiled_plan:
            return "it is code of the model's author: trust_compiled_plan=True if you trust it"
        return True


def is_context(node: ir.Node) -> bool:
    """Return whether a node is a compiled segment."""
    return (node.domain, node.op_type) == CONTEXT
