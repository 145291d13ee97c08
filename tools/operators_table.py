"""Writes docs/operators.md: every operator, its versions, and how each provider runs it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from tenonnx.graph import CONTROL_FLOW
from tenonnx.operators import OperatorTable
from tenonnx.plugins.manager import PluginSet
from tenonnx_array import TABLE
from tenonnx_array.provider import ArrayProvider

TARGET = Path(__file__).parents[1] / "docs" / "operators.md"
LOWERED = {("ai.onnx.preview.training", "Gradient")}
INTRODUCTION = """\
# Operators

Written by `python tools/operators_table.py`; a test checks that it is up to date.

Every version of every operator of ONNX {version} runs. A provider runs it with

- **function**: a function of the array library, called by name,
- **kernel**: a function of `tenonnx_array` over any array library,
- **own kernel**: a function of the provider itself,
- **host**: a kernel on the host, even for arrays of a device: strings, images, decision trees,
- **plug-in**: a kernel of a built-in plug-in.

The runtime runs the others with

- **body**: the function body in the operator's schema,
- **control flow**: code around the operator's subgraphs,
- **lowering**: the nodes by which a transform replaces it.

A number is the first such version, if it is not the operator's first.
"""


def main() -> None:
    """Write the document."""
    TARGET.write_text(document())


def document() -> str:
    """Return the document's text, the same wherever the built-in plug-ins are installed."""
    tables = tables_of_providers(PluginSet(allow=[]))
    parts = [INTRODUCTION.format(version=onnx.__version__.rpartition(".")[0])]
    domains: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for schema in onnx.defs.get_all_schemas_with_history():
        domains[schema.domain][schema.name].append(schema.since_version)
    for table in tables.values():
        for kernel in table:
            versions = domains[kernel.domain][kernel.op_type]
            is_onnx = onnx.defs.has(kernel.op_type, kernel.domain)
            if not is_onnx and kernel.since not in versions:
                versions.append(kernel.since)
    for domain, operators in sorted(domains.items()):
        parts += [f"\n## {domain or 'ai.onnx'}\n\n", *rows(domain, operators, tables)]
    return "".join(parts)


def tables_of_providers(plugins: PluginSet) -> dict[str, OperatorTable]:
    """Return the operator table of every provider that has one, usable here or not."""
    return {
        name: OperatorTable().update(TABLE, provider.overrides, plugins.operators_for(provider))
        for name, provider in sorted(plugins.providers.items())
        if issubclass(provider, ArrayProvider)
    }


def rows(
    domain: str, operators: Mapping[str, list[int]], tables: Mapping[str, OperatorTable]
) -> Iterator[str]:
    """Yield the lines of a domain's table."""
    yield f"| operator | versions | {' | '.join(tables)} |\n|---|---|{'---|' * len(tables)}\n"
    for op, versions in sorted(operators.items()):
        versions.sort()
        ways = [
            summary({v: way(domain, op, v, table) for v in versions}) for table in tables.values()
        ]
        yield f"| {op} | {', '.join(map(str, versions))} | {' | '.join(ways)} |\n"


def way(domain: str, op: str, version: int, table: OperatorTable) -> str:
    """Return how an operator's version runs on a provider that has this table."""
    kernel = table.find(domain, op, version)
    if kernel is not None:
        shared = TABLE.find(domain, op, version)
        if kernel is not shared:
            return "own kernel" if shared else "plug-in"
        if isinstance(kernel.call, str):
            return "function"
        return "host" if kernel.host == "all" else "kernel"
    if domain == "" and op in CONTROL_FLOW:
        return "control flow"
    if (domain, op) in LOWERED:
        return "lowering"
    schema: Any = onnx.defs.get_schema(op, version, domain)
    return "body" if schema.has_function or schema.has_context_dependent_function else "none"


def summary(ways: Mapping[int, str]) -> str:
    """Join the ways of all versions: a way, then the next and the version that begins it."""
    parts: list[str] = []
    last = ""
    for version, found in ways.items():
        if found != last:
            parts.append(f"{found} from {version}" if last else found)
        last = found
    return ", ".join(parts)


if __name__ == "__main__":
    main()
