"""Groups of nodes for ``Provider.claim``.

This module is public: plug-ins of others may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx_ir as ir

# An operator of ai.onnx, or a function that returns whether a node fits.
Follows: TypeAlias = "str | Callable[[ir.Node], bool]"


def chains(
    nodes: Iterable[ir.Node], first: Follows, *others: Follows, least: int = 1
) -> list[Sequence[ir.Node]]:
    """Return groups that begin with a node and go on with those that read it, as far as they fit.

    ``chains(nodes, "MatMul", "Add", "Relu", least=2)`` has MatMul and Add, and Relu behind them
    where it is. A link's value is read by the next one alone. Nodes are in one group at most.

    Args:
        nodes: Those to look at, in their order.
        first: The node that a group begins with.
        others: Those that may follow, in this order; one that does not fit is left out.
        least: Nodes that a group has at least.
    """
    found: list[Sequence[ir.Node]] = []
    free = dict.fromkeys(nodes)
    for node in list(free):
        if node not in free or not _fits(node, first):
            continue
        group = [node]
        for other in others:
            following = _only_reader(group[-1])
            if following in free and following is not None and _fits(following, other):
                group.append(following)
        if len(group) >= least:
            for each in group:
                del free[each]
            found.append(group)
    return found


def _fits(node: ir.Node, wanted: Follows) -> bool:
    if isinstance(wanted, str):
        return node.domain == "" and node.op_type == wanted
    return wanted(node)


def _only_reader(node: ir.Node) -> ir.Node | None:
    """Return the node that alone reads what a node makes."""
    readers = {use.node for value in node.outputs for use in value.uses()}
    if len(readers) != 1 or any(value.is_graph_output() for value in node.outputs):
        return None
    (reader,) = readers
    return reader if reader.graph is node.graph else None
