"""The (operator, version) pairs of the specification, and those that a test runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from cases import CASES
from onnx.backend.test.loader import load_model_tests

Pair = tuple[str, str, int]
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
GAPS = Path(__file__).parents[1] / "conformance" / "gaps" / "cpu.txt"


def pair_of(domain: str, op: str, version: int) -> Pair:
    """The version that introduced what a node of this version is."""
    return domain, op, onnx.defs.get_schema(op, version, domain).since_version


def all_pairs() -> set[Pair]:
    schemas = onnx.defs.get_all_schemas_with_history()
    return {(schema.domain, schema.name, schema.since_version) for schema in schemas}


def pairs_of_cases() -> set[Pair]:
    # Some operators are newer than the installed package.
    known = (case for case in CASES if onnx.defs.has(case.op, case.version, case.domain))
    return {pair_of(case.domain, case.op, case.version) for case in known}


def pairs_of_suite() -> set[Pair]:
    """Pairs of operators in the models of the backend suite that pass."""
    gaps = {line.split("_cpu")[0] for line in GAPS.read_text().splitlines()}
    found: set[Pair] = set()
    for kind in KINDS:
        for test in load_model_tests(kind=kind):
            if test.name not in gaps:
                model = test.model or onnx.load(Path(test.model_dir or "") / "model.onnx")
                imports = {_domain(i.domain): i.version for i in model.opset_import}
                found.update(_pairs_of_graph(model.graph, imports))
    return found


def _pairs_of_graph(graph: onnx.GraphProto, imports: dict[str, int]) -> Iterator[Pair]:
    for node in graph.node:
        domain = _domain(node.domain)
        yield pair_of(domain, node.op_type, imports[domain])
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _pairs_of_graph(inner, imports)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name
