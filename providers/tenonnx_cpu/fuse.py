"""Several nodes as one step.

A fusion is tried at every node of an operator it starts from. It follows values that nobody else
reads, and returns the nodes it takes with a callable for all of them, or ``None``. What a model
writes between them never exists, so a fusion must compute what the nodes would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenonnx.planning.lower import is_constant
from tenonnx.provider import Step
from tenonnx.records import record
from tenonnx_cpu.jit.runtime import ASKING
from tenonnx_cpu.specialise import Call, Site, on_host

if TYPE_CHECKING:
    import onnx_ir as ir


@record
class Fused:
    """What a fusion found.

    Attributes:
        nodes: All it stands for, in the segment's order.
        inputs: What ``call`` takes, constants among them.
        outputs: What it returns: one value, or a tuple of several.
        call: Computes them.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    call: Call


class Scope:
    """What a fusion may take nodes from.

    Args:
        nodes: Those of a segment that may be computed otherwise.
        escaping: Values that something outside the segment reads.
        threads: How many threads a kernel may use.
        plain: Returns a node's step on array kernels.
        packs: Whether a kernel may have a copy made of weights.

    Attributes:
        known: What fusions have found out about nodes, for them to look up.
    """

    def __init__(
        self,
        nodes: Sequence[ir.Node],
        escaping: frozenset[ir.Value],
        threads: int,
        plain: Callable[[ir.Node], Step],
        packs: bool = True,
    ) -> None:
        self.threads = threads
        self.packs = packs
        self.plain = plain
        self.taken: set[ir.Node] = set()
        self.known: dict[str, dict[ir.Node, Any]] = {}
        self._escaping = escaping
        self._positions = {node: position for position, node in enumerate(nodes)}

    @property
    def nodes(self) -> Iterable[ir.Node]:
        """All of them, in an order in which they can run."""
        return self._positions

    def site(self, node: ir.Node) -> Site:
        """Returns a node as specialisations see it."""
        return Site(node, self.threads)

    def has(self, node: ir.Node | None) -> bool:
        """Says whether a node can be taken: it is one of these and not in another fusion."""
        return node in self._positions and node not in self.taken

    def position(self, node: ir.Node) -> int:
        """Returns which of the scope's nodes it is, in an order in which they can run."""
        return self._positions[node]

    def escapes(self, value: ir.Value) -> bool:
        """Says whether something outside the segment reads a value."""
        return value in self._escaping

    def reader(self, value: ir.Value) -> ir.Node | None:
        """Returns the node that alone reads a value, and once, if it can be taken."""
        uses = tuple(value.uses())
        if value in self._escaping or len(uses) != 1:
            return None
        node = uses[0].node
        return node if self.has(node) else None

    def fallback(
        self,
        nodes: Sequence[ir.Node],
        inputs: Iterable[ir.Value | None],
        output: ir.Value,
    ) -> Call:
        """Returns a callable that runs the nodes one after the other on array kernels.

        It is made when it is first called, which is seldom: where a kernel is not compiled yet, or
        does not take what it gets.
        """
        plain, taken, made = self.plain, tuple(inputs), list[Call]()

        def call(*arrays: Any) -> Any:
            if not made:
                made.append(straight_line([plain(node) for node in nodes], taken, output))
            return made[0](*arrays)

        return call


def straight_line(
    steps: Sequence[Step],
    inputs: Iterable[ir.Value | None],
    output: ir.Value | Sequence[ir.Value],
) -> Call:
    """Returns steps as a Python function, a line for each, as a plan has them.

    Args:
        steps: What to run, in order.
        inputs: What the function takes. A constant need not be among them.
        output: What it returns; values come as a tuple.
    """
    namespace: dict[str, Any] = {}
    names: dict[ir.Value | None, str] = {None: "None"}
    taken = tuple(inputs)
    parameters = [f"p{number}" for number, _ in enumerate(taken)]
    names |= {v: name for v, name in zip(taken, parameters, strict=True) if v is not None}
    lines = [f"def call({', '.join(parameters)}):"]
    for number, step in enumerate(steps):
        for value in step.inputs:
            if value not in names and value is not None and is_constant(value):
                names[value] = f"c{len(namespace)}"
                namespace[names[value]] = on_host(value.const_value)
        namespace[f"k{number}"] = step.call
        results = [f"v{number}_{place}" for place, _ in enumerate(step.outputs)]
        arguments = ", ".join(names[value] for value in step.inputs)
        target = f"{', '.join(results)}, *_" if step.multiple else results[0]
        lines.append(f"    {target} = k{number}({arguments})")
        names |= zip(step.outputs, results, strict=True)
    if isinstance(output, Sequence):
        lines.append(f"    return {''.join(f'{names[value]}, ' for value in output)}")
    else:
        lines.append(f"    return {names[output]}")
    exec("\n".join(lines), namespace)
    return namespace["call"]  # type: ignore[no-any-return]  # what exec has just defined


Fusion: TypeAlias = Callable[["ir.Node", Scope], Fused | None]

FUSIONS: dict[int, dict[tuple[str, str], list[Fusion]]] = {}
"""By turn, then by domain and operator of the node to start from."""


def fusion(*names: str, domain: str = "", turn: int = 0) -> Callable[[Fusion], Fusion]:
    """Decorates a fusion: ``@fusion("MatMul", "Gemm")``.

    Those of an earlier turn are tried at all nodes before the others: larger patterns take -1,
    what gathers the rest, 1, and what takes any node, 2.
    """

    def decorate(function: Fusion) -> Fusion:
        for name in names:
            found = FUSIONS.setdefault(turn, {}).setdefault((domain, name), [])
            found.append(function)
            found.sort(key=lambda each: each.__module__)  # in whatever order they are imported
        return function

    return decorate


def may_begin(domain: str, operator: str) -> bool:
    """Says whether a fusion may start from a node of an operator."""
    return any((domain, operator) in found for found in FUSIONS.values())


def find_fusions(nodes: Sequence[ir.Node], scope: Scope) -> dict[ir.Node, Fused]:
    """Returns the fusions among the nodes of a scope, none overlapping, by where they run."""
    found: dict[ir.Node, Fused] = {}
    position = {node: index for index, node in enumerate(nodes)}
    demand = ASKING.get()
    for turn in sorted(FUSIONS):
        for node in nodes:
            for attempt in FUSIONS[turn].get((node.domain, node.op_type), ()):
                demand.node = node
                if not scope.has(node) or (fused := attempt(node, scope)) is None:
                    continue
                place = _place_of(fused, position)
                if place is not None:
                    scope.taken.update(fused.nodes)
                    found[place] = fused
                    break
    return found


def _place_of(fused: Fused, position: Mapping[ir.Node, int]) -> ir.Node | None:
    """Returns the node at which a fusion can run: the last, or if need be the first.

    Nothing may read what it makes before it runs. At the first node there is what that reads.
    """
    ordered = sorted(fused.nodes, key=position.__getitem__)
    if not _is_read_before(ordered[-1], fused, position):
        return ordered[-1]
    given = (value for value in fused.inputs if value is not None and not is_constant(value))
    return ordered[0] if all(value in ordered[0].inputs for value in given) else None


def _is_read_before(last: ir.Node, fused: Fused, position: Mapping[ir.Node, int]) -> bool:
    """Says whether a node in between reads what would be made at the last one only."""
    return any(
        position.get(user, position[last]) < position[last]
        for value in fused.outputs
        for user in value.consumers()
        if user not in fused.nodes
    )
