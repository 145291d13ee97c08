"""Rules that put one node in the place of several, and the line that says what they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx
import onnx_ir as ir

from tenonnx import TransformContext
from tenonnx.graph import FACTORS_KEY, graphs, operators
from tenonnx.process.interruption import check
from tenonnx_fuse.pattern import Match, Op

if TYPE_CHECKING:
    from tenonnx.graph.near_misses import NearMisses


# Operators whose `FACTORS_KEY` are noted, which what takes their place inherits if all agree.
PRODUCTS = frozenset({"Attention", "Conv", "ConvTranspose", "FusedMatMul", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Rule:
    """A pattern, and what takes its place.

    Attributes:
        name: The name of its pattern, for reports.
        pattern: The nodes, from the last one backwards.
        build: Returns the new nodes, whose last one's first output takes the place of the
            pattern's, or says why not.
        enough: As many nodes are nearly a match.
        frees: The last node alone goes; what it read is read by others, or goes as unread.
        needs: Operators all of which a model must have for the rule to be tried.
    """

    name: str
    pattern: Op
    build: Callable[[Match, TransformContext], Sequence[ir.Node] | str]
    enough: int = 3
    frees: bool = False
    needs: tuple[str, ...] = ()


class Rewriting:
    """The changes of one transform to a model.

    Args:
        model: Changed in place.
        context: Where it is to run, and where notes go.
    """

    def __init__(self, model: ir.Model, context: TransformContext) -> None:
        self.model = model
        self.context = context
        self.made: Counter[str] = Counter()
        self._misses: NearMisses | None = None
        self._near: set[ir.Node] = set()

    def apply(self, rules: Sequence[Rule]) -> None:
        """Try every rule at every node, from the last node to the first."""
        by_type: dict[str, list[Rule]] = {}
        for rule in rules:
            for kind in rule.pattern.types:
                by_type.setdefault(kind, []).append(rule)
        for graph in graphs(self.model):
            for node in reversed(tuple(graph)):
                check()
                made: ir.Node | None = node
                while made is not None and made.graph is graph and made.outputs and not made.domain:
                    rules_here = by_type.get(made.op_type, ())
                    made = self._first(rules_here, graph, made)

    def _first(
        self, rules: Sequence[Rule], graph: ir.Graph | ir.Function, node: ir.Node
    ) -> ir.Node | None:
        """Return what the first rule that fits put in a node's place.

        If none fits, the one that came furthest says why it does not.
        """
        furthest: tuple[tuple[ir.Node, ...], str, str] = (), "", ""
        for rule in rules:
            found = Match()
            if not rule.pattern.match_node(node, found):
                if found.reached >= max(rule.enough, len(furthest[0]) + 1):
                    furthest = found.end[0], rule.name, found.end[1]
                continue
            new = rule.build(found, self.context)
            old = (node,) if rule.frees else tuple(found.nodes)
            if not isinstance(new, str):
                refused = self._refused(old, node) or self.refusal(new, old)
                if refused is None:
                    self.replace(rule.name, graph, node, old, new)
                    return new[-1]
                new = refused
            if len(found.nodes) > len(furthest[0]):
                furthest = tuple(found.nodes), rule.name, new
        # Parts of what nearly matched may nearly match, too; that says nothing more.
        if furthest[0] and node not in self._near:
            self._near.update(furthest[0])
            self.miss(furthest[1], node, furthest[2])
        return None

    def replace(
        self,
        name: str,
        graph: ir.Graph | ir.Function,
        last: ir.Node,
        old: Sequence[ir.Node],
        new: Sequence[ir.Node],
        output: ir.Value | None = None,
    ) -> None:
        """Put nodes in the place of others, and say so.

        Their result is an output of ``last``, its first one unless another is given.
        """
        values = [output or last.outputs[0]], new[-1].outputs[:1]
        new[-1].name = last.name
        notes = {node.metadata_props.get(FACTORS_KEY) for node in old if node.op_type in PRODUCTS}
        if len(notes) == 1 and (note := notes.pop()):
            for node in new:
                node.metadata_props[FACTORS_KEY] = note
        ir.convenience.replace_nodes_and_values(graph, last, old, new, *values)
        for node in new:
            if node.domain:
                self.model.opset_imports.setdefault(node.domain, 1)
        self.made[name] += 1

    def refusal(self, new: Sequence[ir.Node], old: Sequence[ir.Node]) -> str | None:
        """Return why nodes cannot take the place of others, if they cannot."""
        imported = self.model.opset_imports.get("", 0)
        saved = self.context.options.optimized_model_filepath
        for node in new:
            if saved and not node.domain and (wrong := _misread(node, imported)):
                return f"the model is to be saved and imports opset {imported}, and {wrong}"
        return self.context.refusal(new, old)

    def _refused(self, old: Sequence[ir.Node], last: ir.Node) -> str | None:
        inside = set(old)
        for node in old:
            for value in node.outputs:
                if value is last.outputs[0]:
                    continue
                if value.is_graph_output() or any(use.node not in inside for use in value.uses()):
                    return f"'{value.name}' is read elsewhere too"
        return None

    def miss(self, name: str, node: ir.Node, why: str) -> None:
        """Remember what nearly matched."""
        from tenonnx.graph.near_misses import NearMisses

        self._misses = self._misses or NearMisses()
        self._misses.add(name, node, why)

    def finish(self) -> bool:
        """Write the notes; return whether anything changed."""
        notes = self.context.notes
        if self.made:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.made.items()))
            notes.append(f"matched {counts}")
        if self._misses is not None:
            notes += self._misses.notes()
        return bool(self.made)


def rewriting(*rules: Rule) -> Callable[[ir.Model, TransformContext], bool]:
    """Return the transform that tries rules, in this order, at every node."""

    def apply(model: ir.Model, context: TransformContext) -> bool:
        kinds = operators(model)
        chosen = [rule for rule in rules if kinds.issuperset(rule.needs)]
        work = Rewriting(model, context)
        if chosen:
            work.apply(chosen)
        return work.finish()

    return apply


def has_any(model: ir.Model, types: Sequence[str]) -> bool:
    """Return whether a model has a node of one of some operators."""
    wanted = frozenset(types)
    return any(node.op_type in wanted for graph in graphs(model) for node in graph)


def _misread(node: ir.Node, imported: int) -> str | None:
    """Return why a node of ai.onnx is none of the opset that a model imports, if it is not."""
    version = node.version or 1
    if version > imported:
        return f"{node.op_type} needs {version}"
    known = onnx.defs.get_schema(node.op_type, imported).attributes
    gone = [name for name in node.attributes if name not in known]
    return f"{node.op_type} has no attribute {gone[0]} there" if gone else None
