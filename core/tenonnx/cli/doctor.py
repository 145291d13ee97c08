"""``tenonnx doctor``: what is missing or broken here, and what may make tenonnx slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from tenonnx.cli.arguments import Json
from tenonnx.cli.failures import Code
from tenonnx.cli.output import console, count, emit_json
from tenonnx.cli.state import State, state_of

if TYPE_CHECKING:
    from tenonnx.cli.checks import Finding

HELP = """Checks packages, plugins, providers, caches and limits.

Exits with 1 if something is broken; what is merely worth knowing is marked "note".

\b
Examples:
  tenonnx doctor
  tenonnx doctor --json | jq '.[] | select(.status != "ok")'
"""

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Prints a line per finding; exits with 1 if there is a problem."""
    found = []
    for finding in _examine(state_of(context)):
        found.append(finding)
        if not as_json:
            _print(finding)
    problems = sum(finding.status == "problem" for finding in found)
    if as_json:
        emit_json([asdict(finding) for finding in found])
    else:
        counted = count(problems, "problem") if problems else "no problems"
        console().print(f"\n{counted}")
    if problems:
        raise typer.Exit(Code.PROBLEM)


def _examine(state: State) -> Iterator[Finding]:
    from tenonnx.cli import checks

    yield from checks.python()
    yield from checks.packages()
    yield from checks.blas()
    yield from checks.plugins(state.plugins)
    yield from checks.providers(state.plugins)
    yield from checks.cache()
    yield from checks.limits()


def _print(finding: Finding) -> None:
    out = console()
    status = Text(f"{finding.status:<8}", style=STYLES[finding.status])
    out.print(Text.assemble(status, f"{finding.name}: {finding.detail}"), soft_wrap=True)
    if finding.hint:
        out.print(Text(f"{'':<8}mend it: {finding.hint}", style="cyan"), soft_wrap=True)
