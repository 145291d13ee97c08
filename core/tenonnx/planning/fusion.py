"""Several nodes as one step: what a fusion sees of a segment, and in which order fusions are tried.

A fusion is tried at every node of an operator that it starts from. It follows values that nobody
else reads, and returns the nodes that it takes with what computes them, or ``None``. Intermediate
results then never exist, so a fusion computes what its nodes do, whatever shapes come: what it
assumes of them is proved from constants and shapes, or looked at as it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from tenonnx.errors import PluginError
from tenonnx.planning.lower import is_constant

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.graph.near_misses import NearMisses
    from tenonnx.planning.anchors import Part, Walk

# The collector of fusions' near misses, while there is one.
MISSES: ContextVar[NearMisses | None] = ContextVar("MISSES", default=None)

# The priority of an operator that takes what follows it, where nothing else is said.
ANCHOR_PRIORITY = 50


@dataclass(frozen=True)
class Fused:
    """The result of a fusion.

    Attributes:
        nodes: All it stands for, in the segment's order.
        inputs: The inputs of ``call``, including constants.
        outputs: Its outputs: one value, or a tuple of several.
        call: Computes them.
        host: Inputs, by position, that it takes on the host.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    call: Callable[..., Any]
    host: tuple[int, ...] = ()


class Scope:
    """The nodes that a fusion may join.

    Args:
        nodes: A segment's.
        free: Those of them that may be computed otherwise than one by one.
        escaping: Values that something outside the segment reads.

    Attributes:
        taken: Nodes of the fusions that were found so far.
        known: Results that fusions share.
        misses: The collector of near misses, if there is one.
        takes: The parts that the fusion takes which is tried.
    """

    def __init__(
        self, nodes: Sequence[ir.Node], free: Iterable[ir.Node], escaping: frozenset[ir.Value]
    ) -> None:
        self.taken: set[ir.Node] = set()
        self.known: dict[str, Any] = {}
        self.misses = MISSES.get()
        self.takes: tuple[Part, ...] = ()
        self._free = dict.fromkeys(free)
        self._escaping = escaping
        self._positions = {node: position for position, node in enumerate(nodes)}

    @property
    def nodes(self) -> Iterable[ir.Node]:
        """Those that may be taken or are, in an order in which they can run."""
        return self._free

    def has(self, node: ir.Node | None) -> bool:
        """Return whether a node can be taken: it is one of these and not in another fusion."""
        return node in self._free and node not in self.taken

    def position(self, node: ir.Node) -> int:
        """Return which of the segment's nodes it is, in an order in which they can run."""
        return self._positions[node]

    def escapes(self, value: ir.Value) -> bool:
        """Return whether something outside the segment reads a value."""
        return value in self._escaping

    def reader(self, value: ir.Value) -> ir.Node | None:
        """Return the node that alone reads a value, and once, if it can be taken."""
        uses = tuple(value.uses())
        if len(uses) != 1 or value in self._escaping:
            return None
        node = uses[0].node
        return node if self.has(node) else None

    def hindrance(self, value: ir.Value) -> str:
        """Return why ``reader`` returns nothing for a value that is read."""
        count = len(value.uses())
        if value in self._escaping:
            return f"'{value.name}' is read by something else, too"
        return f"'{value.name}' is read {count} times" if count > 1 else "another fusion has it"

    def follower(self, value: ir.Value, *operators: str) -> ir.Node | None:
        """Return the reader of a value if it is one of some operators of ONNX's own domain."""
        node = self.reader(value)
        return node if node is not None and node.op_type in operators and not node.domain else None

    def consumer(self, value: ir.Value) -> ir.Node | None:
        """Return the node that alone reads a value, however often, if it can be taken."""
        readers = {use.node for use in value.uses()}
        if value in self._escaping or len(readers) != 1:
            return None
        (node,) = readers
        return node if self.has(node) else None

    def follow(self, anchor: ir.Node, about: Any = None) -> Walk[Self]:
        """Return the longest epilogue of an anchor that the fusion takes.

        Args:
            anchor: Where it begins.
            about: The anchor's data for its parts.
        """
        from tenonnx.planning.anchors import follow

        return follow(anchor, self, *self.takes, about=about)

    def maker(self, value: ir.Value | None, *operators: str) -> ir.Node | None:
        """Return the node that makes a value if it can be taken and is of some operators."""
        node = None if value is None else value.producer()
        if node is None or node.op_type not in operators or node.domain:
            return None
        return node if self.has(node) else None

    def unread(self, sources: Iterable[ir.Node], nodes: Iterable[ir.Node]) -> tuple[ir.Node, ...]:
        """Return those sources that nobody reads any more once these nodes are fused."""
        taken, fused = self.taken, set(nodes)
        return tuple(
            source
            for source in dict.fromkeys(sources)
            if self.has(source)
            and not self.escapes(source.outputs[0])
            and all(use.node in fused or use.node in taken for use in source.outputs[0].uses())
        )

    def place_of(self, fused: Fused) -> ir.Node | None:
        """Return the node at which a fusion can run: the last, or if need be the first.

        Nothing may read what it makes before it runs. At the first node there is what that reads.
        """
        ordered = sorted(fused.nodes, key=self.position)
        if not self._is_read_before(ordered[-1], fused):
            return ordered[-1]
        given = (value for value in fused.inputs if value is not None and not is_constant(value))
        return ordered[0] if all(value in ordered[0].inputs for value in given) else None

    def _is_read_before(self, last: ir.Node, fused: Fused) -> bool:
        """Return whether a node in between reads what would be made at the last one only."""
        end = self._positions[last]
        return any(
            self._positions.get(user, end) < end
            for value in fused.outputs
            for user in value.consumers()
            if user not in fused.nodes
        )


def beside(node: ir.Node, value: ir.Value) -> int:
    """Return the position of the operand that a node of two has beside a value."""
    return 1 if node.inputs[0] is value else 0


def inputs_of(nodes: Sequence[ir.Node]) -> tuple[ir.Value, ...]:
    """Return what nodes read that they do not make, each value once."""
    made = {node.outputs[0] for node in nodes}
    read = (value for node in nodes for value in node.inputs)
    return tuple(dict.fromkeys(v for v in read if v is not None and v not in made))


S = TypeVar("S", bound=Scope)

Fusion: TypeAlias = "Callable[[ir.Node, S], Fused | None]"

# A domain and an operator of it.
Place: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class Entry(Generic[S]):
    """A fusion as it is registered.

    Attributes:
        priority: When it is tried.
        place: The operator that it starts from.
        fusion: The function that is tried.
        takes: The parts behind that operator, in order.
    """

    priority: int
    place: Place
    fusion: Fusion[S]
    takes: tuple[Part, ...]


class Fusions(Generic[S]):
    """A provider's fusions: the one table of its anchors and of what they take.

    Those of a lower priority are tried at all nodes before others; at an operator there is one of a
    priority. So nothing depends on where a fusion is defined, or on what is imported first.
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[Place, Entry[S]]] = {}

    def add(
        self,
        *names: str,
        domain: str = "",
        priority: int = ANCHOR_PRIORITY,
        takes: tuple[Part, ...] = (),
    ) -> Callable[[Fusion[S]], Fusion[S]]:
        """Decorate a fusion.

        Args:
            names: Operators that it starts from.
            domain: Theirs.
            priority: When it is tried.
            takes: The parts that ``Scope.follow`` finds behind them.

        Raises:
            PluginError: Another fusion starts from one of the operators at this priority.
        """

        def decorate(fusion: Fusion[S]) -> Fusion[S]:
            there = self._by_priority.setdefault(priority, {})
            for name in names:
                entry = Entry(priority, (domain, name), fusion, takes)
                other = there.setdefault(entry.place, entry).fusion
                if other is not fusion:
                    raise PluginError(
                        f"{fusion.__qualname__} and {other.__qualname__} both start from {name} at "
                        f"priority {priority}: say which one is tried first"
                    )
            return fusion

        return decorate

    def __iter__(self) -> Iterator[Entry[S]]:
        """Yield what is registered, what is tried first ahead."""
        for _, there in sorted(self._by_priority.items()):
            yield from there.values()

    def start_at(self, place: Place) -> bool:
        """Return whether a fusion may start from a node of an operator."""
        return any(place in there for there in self._by_priority.values())

    def find(self, scope: S) -> dict[ir.Node, Fused]:
        """Return the fusions among the nodes of a scope, none overlapping, by where they run."""
        found: dict[ir.Node, Fused] = {}
        places = [(node, (node.domain, node.op_type)) for node in scope.nodes]
        for _, there in sorted(self._by_priority.items()):
            for node, operator in places:
                if operator not in there or not scope.has(node):
                    continue
                scope.takes = there[operator].takes
                fused = there[operator].fusion(node, scope)
                place = None if fused is None else scope.place_of(fused)
                if fused is not None and place is None and scope.misses is not None:
                    kinds = " + ".join(each.op_type for each in fused.nodes)
                    scope.misses.add(kinds, node, "a node before its end reads what it makes")
                if fused is not None and place is not None:
                    scope.taken.update(fused.nodes)
                    found[place] = fused
        return found
