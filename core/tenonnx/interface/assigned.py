"""The provider of each node, in onnxruntime's classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenonnx.planning.placement import Assignment


@dataclass(frozen=True)
class OrtEpAssignedNode:
    """A node that a provider runs."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True)
class OrtEpAssignedSubgraph:
    """The nodes that a provider runs."""

    ep_name: str
    nodes: tuple[OrtEpAssignedNode, ...]

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Return the nodes."""
        return list(self.nodes)


def assigned(assignments: Iterable[Assignment]) -> list[OrtEpAssignedSubgraph]:
    """Return the nodes of every provider that has some."""
    nodes: dict[str, list[OrtEpAssignedNode]] = {}
    for assignment in assignments:
        node = assignment.node
        entry = OrtEpAssignedNode(node.name or "", node.domain, node.op_type)
        nodes.setdefault(assignment.provider, []).append(entry)
    return [OrtEpAssignedSubgraph(name, tuple(found)) for name, found in nodes.items()]
