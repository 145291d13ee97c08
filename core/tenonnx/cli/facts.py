"""The facts about a model that ``tenonnx inspect`` prints, as plain data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import onnx_ir as ir

from tenonnx.interface.signature import describe
from tenonnx.planning.placement import Placement
from tenonnx.session import InferenceSession
from tenonnx.weights.report import MemoryReport
from tenonnx.weights.tensors import WeightTensor


def of_model(model: ir.Model) -> dict[str, Any]:
    """Return what a model says about itself, before anything is done to it."""
    return {
        "graph": model.graph.name or "",
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "ir_version": model.ir_version,
        "opset_imports": {d or "ai.onnx": v for d, v in sorted(model.opset_imports.items())},
        "metadata": dict(model.metadata_props),
        "inputs": [asdict(describe(v)) for v in model.graph.inputs if not v.is_initializer()],
        "outputs": [asdict(describe(v)) for v in model.graph.outputs],
        "overridable": [asdict(describe(v)) for v in model.graph.inputs if v.is_initializer()],
        "nodes": sum(1 for _ in _nodes(model)),
        "operators": operators(model),
        "functions": [
            {
                "name": f"{function.domain or 'ai.onnx'}::{function.name}",
                "nodes": sum(1 for _ in ir.traversal.RecursiveGraphIterator(function.graph)),
            }
            for function in model.functions.values()
        ],
    }


def operators(model: ir.Model) -> dict[str, int]:
    """Return how often each operator occurs, subgraphs included, the most frequent first."""
    names = (
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in _nodes(model)
    )
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))


def of_placement(placement: Placement) -> dict[str, Any]:
    """Return how many nodes each provider runs, and which nodes were declined and why."""
    declined = placement.elsewhere()
    reasons: dict[tuple[str, str], list[str]] = defaultdict(list)
    for assignment in declined:
        why = "; ".join(f"{name}: {reason}" for name, reason in assignment.reasons.items())
        reasons[assignment.provider, why].append(assignment.node.label)
    return {
        "counts": placement.counts(),
        "elsewhere": [
            {"provider": provider, "reasons": why, "nodes": nodes}
            for (provider, why), nodes in reasons.items()
        ],
    }


def of_nodes(placement: Placement) -> list[dict[str, Any]]:
    """Return a row per node in the order in which they run."""
    return [
        {
            "name": assignment.node.name or "",
            "operator": assignment.node.op_type,
            "domain": assignment.node.domain or "ai.onnx",
            "version": assignment.node.version,
            "provider": assignment.provider,
            "inputs": [v.name if v is not None else "" for v in assignment.node.inputs],
            "outputs": [v.name for v in assignment.node.outputs],
        }
        for assignment in placement
    ]


def of_weights(model: ir.Model) -> list[dict[str, Any]]:
    """Return a row per weight, the biggest first: names, type, shape, bytes and where it is."""
    names: dict[Any, list[str]] = defaultdict(list)
    for name, weight in _weights(model):
        names[weight].append(name)
    rows = [
        {
            "names": sorted(set(known)),
            "dtype": weight.dtype.name.lower(),
            "shape": list(weight.shape),
            "bytes": weight.nbytes,
            "kind": weight.storage.kind,
            "storage": weight.storage.label,
            "offset": weight.offset,
        }
        for weight, known in names.items()
    ]
    return sorted(rows, key=lambda row: (-row["bytes"], row["names"]))


def of_memory(report: MemoryReport, added: int | None) -> dict[str, Any]:
    """Return the registry's totals, and the private memory that loading added if measured."""
    totals = ("mapped", "resident", "private", "derived", "device")
    storages = [
        {key: getattr(row, key) for key in ("kind", "label", "size", "resident", "weights")}
        for row in report.storages
    ]
    return {
        **{name: getattr(report, name) for name in totals},
        "added_private": added,
        "storages": storages,
        "devices": [asdict(row) for row in report.devices],
    }


def of_session(session: InferenceSession, added: int | None) -> dict[str, Any]:
    """Return what becomes of a model in a session."""
    return {
        "load_times": session.load_times,
        "transforms": [asdict(report) for report in session.transforms],
        "operators_as_run": operators(session.model),
        "placement": of_placement(session.placement),
        "kernels": {name: asdict(kernel) for name, kernel in session.kernels.items()},
        "memory": of_memory(session.registry.report(), added),
    }


def _nodes(model: ir.Model) -> Iterable[ir.Node]:
    return ir.traversal.RecursiveGraphIterator(model.graph)


def _weights(model: ir.Model) -> Iterable[tuple[str, Any]]:
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            if isinstance(value.const_value, WeightTensor):
                yield name, value.const_value.weight
