"""``tenonnx doctor``: missing or broken parts, and reasons for slow runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from tenonnx.cli.arguments import Json
from tenonnx.cli.failures import Code
from tenonnx.cli.output import count, emit_json, lines, sentence
from tenonnx.cli.state import State, state_of

if TYPE_CHECKING:
    from tenonnx.cli.checks import Finding

HELP = """Checks packages, plug-ins, providers, caches and limits.

A line begins with "ok", with "note" if it is worth knowing, or with "problem" if something is
broken. The exit code is 1 if there is a problem.

\b
Examples:
  tenonnx doctor
  tenonnx doctor --json | jq '.[] | select(.status != "ok")'
"""

STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}


def doctor(context: typer.Context, as_json: Json = False) -> None:
    """Print a line per finding; exit with 1 if there is a problem."""
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
        lines("", counted)
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
    said = f"{finding.status:<8}{finding.name}: {finding.detail}"
    sentence(said, STYLES[finding.status], len(finding.status), 8)
    if finding.hint:
        mend = f"{'':<8}mend it: {finding.hint}"
        sentence(mend, "cyan", len(mend), 8)
