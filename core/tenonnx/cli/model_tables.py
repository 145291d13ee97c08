"""Tables of a model: its operators, and who runs its nodes."""

from __future__ import annotations

from typing import Any

from tenonnx.cli.output import lines, table, title

STAGE_COLUMNS = ("in the model", "as it runs")

# Nodes named with each reason for not being where they were wanted.
MAX_SHOWN = 5


def print_operators(before: dict[str, int], after: dict[str, int]) -> None:
    """Print how often each operator occurs in the model, and in what runs if that differs."""
    if after == before:
        table(("operator", "nodes"), list(before.items()), right=("nodes",))
        return
    names = dict.fromkeys([*before, *after])
    rows = [(name, before.get(name, 0), after.get(name, 0)) for name in names]
    table(("operator", *STAGE_COLUMNS), rows, right=STAGE_COLUMNS)


def print_placement(placement: dict[str, Any], *, every: bool) -> None:
    """Print who runs how many nodes, and which nodes, or every one, are not where wanted."""
    title("Placement")
    table(("provider", "nodes"), list(placement["counts"].items()), right=("nodes",))
    for group in placement["elsewhere"]:
        shown = group["nodes"] if every else group["nodes"][:MAX_SHOWN]
        more = len(group["nodes"]) - len(shown)
        lines(
            f"on {group['provider']} because {group['reasons']}: {', '.join(shown)}"
            + (f" and {more} more (--nodes)" if more else "")
        )
    if not placement["elsewhere"]:
        lines("every node runs on the provider of first choice")
