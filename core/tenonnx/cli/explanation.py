"""The way of a model to its plan, transform by transform, as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx import session_builder
from tenonnx.cli.facts import of_placement, operators
from tenonnx.graph.inference import infer_types
from tenonnx.graph.near_misses import NEAR_MISS_PREFIX, NearMisses
from tenonnx.graph.values import NodeInfo, described
from tenonnx.options import SessionOptions
from tenonnx.planning.fusion import MISSES
from tenonnx.planning.placement import PlacedGraph, place
from tenonnx.planning.plan import Plan
from tenonnx.plugins.choosing import ProviderRequest, choose_providers, host_providers
from tenonnx.transforms import Transform, TransformContext, run_transforms

# Letters of an attribute that are shown.
MAX_ATTRIBUTE_LETTERS: Final = 60

Doing = Callable[[str, float], None]


def explain_model(
    source: Any,
    options: SessionOptions,
    requests: Sequence[ProviderRequest] | None,
    doing: Doing = lambda *_: None,
) -> dict[str, Any]:
    """Return what a session would do to a model, and who would run it; nothing is run.

    Args:
        source: What ``InferenceSession`` takes.
        options: The session's.
        requests: Its providers.
        doing: Hears what is being done, and how many things are done.

    Raises:
        TenonnxError: As a session that is opened so.
    """
    plugins, registry = session_builder.surroundings(options)
    doing("reading the model", 0)
    model = session_builder.read_model(source, registry, options, plugins)
    providers = choose_providers(plugins, requests, None, options)
    session_builder.take_overridable(model)
    context = TransformContext(registry, host_providers(plugins), providers, options)
    before = operators(model)
    history = History(model, context)
    for count, transform in enumerate(session_builder.choose_transforms(plugins, options, ())):
        doing("transforming", count)
        history.run(transform)
    after = operators(model)
    placed = place(model, providers, context.hosts)
    doing("compiling", len(history.changes))
    plan, nearly, infos = _plan(placed)
    infer_types(model)  # for those who read the report: nothing above may know more than a session
    return {
        "model": str(source) if isinstance(source, str) else "",
        "nodes_before": sum(before.values()),
        "nodes_after": sum(after.values()),
        "operators_before": before,
        "operators_after": after,
        "transforms": history.changes,
        "placement": of_placement(plan.placement),
        "calls": _calls(plan) | {"nearly": nearly},
        "nodes": _nodes(plan, infos, history),
        "inputs": {value.name: _type(value) for value in model.graph.inputs},
        "outputs": {value.name: _type(value) for value in model.graph.outputs},
    }


class History:
    """The changes of each transform, run one by one.

    Args:
        model: Changed in place.
        context: Where it is to run.

    Attributes:
        changes: A dictionary per transform.
        made_by: The transform that made a node, if one did.
    """

    def __init__(self, model: ir.Model, context: TransformContext) -> None:
        self._model = model
        self._context = context
        self._texts = _texts(model)
        self.changes: list[dict[str, Any]] = []
        self.made_by: dict[ir.Node, str] = {}

    def run(self, transform: Transform) -> None:
        """Run one more transform."""
        before = self._texts
        counted = operators(self._model)
        reports = run_transforms(self._model, [transform], self._context)
        if not reports:
            return
        (report,) = reports
        after = self._texts = _texts(self._model) if report.modified else before
        made = [node for node in after if node not in before]
        self.made_by |= dict.fromkeys(made, transform.name)
        self.changes.append(
            {
                "name": transform.name,
                "level": transform.level,
                "modified": report.modified,
                "seconds": report.seconds,
                "nodes_before": len(before),
                "nodes_after": len(after),
                "operators": _differences(counted, operators(self._model)),
                "notes": [note for note in report.notes if not note.startswith(NEAR_MISS_PREFIX)],
                "nearly": [note for note in report.notes if note.startswith(NEAR_MISS_PREFIX)],
                "removed": [text for node, text in before.items() if node not in after],
                "added": [after[node] for node in made],
                "changed": [
                    {"before": text, "after": after[node]}
                    for node, text in before.items()
                    if node in after and after[node] != text
                ],
            }
        )


def _texts(model: ir.Model) -> dict[ir.Node, str]:
    """Return every node of a model in a line."""
    return {node: describe(node) for node in ir.traversal.RecursiveGraphIterator(model.graph)}


def describe(node: ir.Node) -> str:
    """Return a node in a line: its operator, attributes, and what it reads and makes."""
    domain = f"{node.domain}::" if node.domain else ""
    given = ", ".join(_short(value) for value in node.inputs)
    made = ", ".join(value.name or "_" for value in node.outputs)
    return f"{made} = {domain}{node.op_type}{_attributes(node)}({given})"


def _short(value: ir.Value | None) -> str:
    return "_" if value is None else value.name or "?"


def _attributes(node: ir.Node) -> str:
    shown = [
        f"{name}={_content(attribute)}"
        for name, attribute in node.attributes.items()
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    ]
    return f"<{', '.join(shown)}>" if shown else ""


def _content(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return str(attribute.ref_attr_name)
    if attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
        return "..."
    value = attribute.value
    # Trees have a million numbers, of which none behind the first few is shown.
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    text = str(list(value[:MAX_ATTRIBUTE_LETTERS]) if is_list else value)
    return text if len(text) <= MAX_ATTRIBUTE_LETTERS else text[: MAX_ATTRIBUTE_LETTERS - 3] + "..."


def _differences(before: dict[str, int], after: dict[str, int]) -> dict[str, list[int]]:
    """Return the operators of which there are more or fewer, with both numbers."""
    names = dict.fromkeys([*before, *after])
    pairs = {name: [before.get(name, 0), after.get(name, 0)] for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _plan(placed: PlacedGraph) -> tuple[Plan, list[str], dict[ir.Node, NodeInfo]]:
    """Return the plan, the near misses of fusions, and the infos of nodes."""
    misses = NearMisses()
    token = MISSES.set(misses)
    try:
        with described() as known:
            return Plan.of(placed), list(misses.notes()), known.nodes
    finally:
        MISSES.reset(token)


def _calls(plan: Plan) -> dict[str, Any]:
    """Return how many calls the plan makes, and which of them stand for several nodes."""
    kinds: Counter[str] = Counter()
    for step in plan.steps:
        if len(step.nodes) > 1:
            kinds[" + ".join(node.op_type for node in step.nodes)] += 1
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return {"count": len(plan.steps), "joined": dict(ordered)}


def _nodes(plan: Plan, infos: dict[ir.Node, NodeInfo], history: History) -> list[dict[str, Any]]:
    """Return a row per node in the order in which they run."""
    call = {node: number for number, step in enumerate(plan.steps) for node in step.nodes}
    nodes = {info: node for node, info in infos.items()}
    place = {nodes[assignment.node]: row for row, assignment in enumerate(plan.placement)}
    rows = []
    for assignment in plan.placement:
        node = nodes[assignment.node]
        # What an If or a Loop gives back is what its bodies' outputs are.
        bodies = [value for _, body in graphs.subgraphs(node) for value in body.outputs]
        makers = [value.producer() for value in (*graphs.inputs(node), *bodies)]
        rows.append(
            {
                "name": node.name or "",
                "operator": f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
                "version": node.version,
                "provider": assignment.provider,
                "reasons": dict(assignment.reasons),
                "made_by": history.made_by.get(node, ""),
                "origin": node.metadata_props.get(graphs.ORIGIN_KEY, ""),
                "call": call.get(assignment.node),
                "after": sorted({place[maker] for maker in makers if maker in place}),
                "text": describe(node),
                "inputs": [value.name for value in graphs.inputs(node)],
                "outputs": [value.name for value in node.outputs if value.name],
                "types": {value.name: _type(value) for value in node.outputs if value.name},
            }
        )
    return rows


def _type(value: ir.Value) -> str:
    dtype = value.dtype.name.lower() if value.dtype is not None else "?"
    if value.shape is None:
        return dtype
    sizes = [size.value if isinstance(size, ir.SymbolicDim) else size for size in value.shape]
    return f"{dtype}[{', '.join('?' if size is None else str(size) for size in sizes)}]"
