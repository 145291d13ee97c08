"""The page at ``/``: models, workers, memory and latencies. One document without scripts.

Every name on it is escaped, and its policy allows only its own style. So no name from a model or a
client can make it load or run anything.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tenonnx_serve.counts import SECONDS, summed
from tenonnx_serve.style import POLICY, STYLE

REFRESH_SECONDS = 5

HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        f"{POLICY}form-action 'none'; frame-ancestors 'none'".encode(),
    ),
]


def page(collected: Mapping[str, Any], models: Sequence[Mapping[str, str]], version: str) -> bytes:
    """Return the page.

    Args:
        collected: The counts from ``Supervisor``.
        models: The repository's index.
        version: The server's.
    """
    workers = collected["workers"]
    counted = summed(collected).get("models", {})
    serving = sum(worker["serving"] for worker in workers)
    sections = (
        _facts(collected, models, serving),
        "<h2>Models</h2>",
        _table(MODEL_HEADS, [_model(model, counted) for model in models], "There are no models."),
        *_texts(counted, workers),
        "<h2>Workers</h2>",
        _table(WORKER_HEADS, [_worker(worker) for worker in workers], "No worker runs."),
    )
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tenonnx serve</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><style>{STYLE}</style></head><body>
<header><h1>tenonnx serve</h1><p class="dim">Version {escape(version)}, up for
{_long(time.time() - collected["started"])}. Latencies are upper bounds, in milliseconds, since the
start. Mapped memory is memory of files, shared by all workers.</p></header>
<main>{"".join(sections)}</main></body></html>
"""
    return text.encode()


MODEL_HEADS = ("Model", "Version", "State", "Requests", "Failed", "p50", "p99", "Queue", "Compute",
               "Rows a run")  # fmt: skip
WORKER_HEADS = ("Worker", "Process", "State", "In flight", "Private", "Mapped", "Share (PSS)")


def _facts(collected: Mapping[str, Any], models: Sequence[Mapping[str, str]], serving: int) -> str:
    memory = [worker["memory"] for worker in collected["workers"]]
    ready = sum(model["state"] == "READY" for model in models)
    facts = {
        "Models ready": f"{ready} of {len(models)}",
        "Workers": f"{serving} of {collected['wanted']}",
        "Restarts": str(collected["deaths"]),
        "Private memory": _size(sum(each.get("private", 0) for each in memory)),
        "All memory (PSS)": _size(sum(each.get("pss", 0) for each in memory)),
    }
    return (
        "<dl>"
        + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items())
        + "</dl>"
    )


# A text, or a text with its CSS class.
Cell = str | tuple[str, str]


def _table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], nothing: str) -> str:
    if not rows:
        return f'<p class="dim">{nothing}</p>'
    head = "".join(f"<th>{name}</th>" for name in heads)
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(_rows(heads, rows))}</tbody></table>"
    )


def _rows(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterable[str]:
    for row in rows:
        cells = []
        for name, cell in zip(heads, row, strict=True):
            text, style = cell if isinstance(cell, tuple) else (cell, "")
            cells.append(
                f'<td data-label="{name}"><span class="{style}">{escape(text)}</span></td>'
            )
        yield f"<tr>{''.join(cells)}</tr>"


def _model(model: Mapping[str, str], counted: Mapping[str, Any]) -> list[Cell]:
    state: Cell = (model["state"], "good" if model["state"] == "READY" else "bad")
    if "reason" in model:
        state = (f"{model['state']}: {model['reason']}", "bad")
    version = model.get("version", "")
    row: list[Cell] = [model["name"], version or "–", state]
    found = counted.get(model["name"], {}).get(version)
    if found is None:
        return [*row, "0", "0", "–", "–", "–", "–", "–"]
    stages, batches = found["stages"], found["batches"]
    requests = sum(stages["request"]["counts"])
    failed = found["failed"]
    runs = sum(batches["counts"])
    return [
        *row,
        f"{requests:,}",
        (f"{failed:,}", "bad" if failed else ""),
        quantile(stages["request"]["counts"], 0.5),
        quantile(stages["request"]["counts"], 0.99),
        quantile(stages["queue"]["counts"], 0.5),
        quantile(stages["compute"]["counts"], 0.5),
        f"{batches['total'] / runs:.3g}" if runs else "–",
    ]


TEXT_HEADS = (
    *("Model", "Version", "Prompt tokens", "Cached", "Generated"),
    *("First token p50", "First token p99", "Token p50", "Token p99"),
    *("Running", "Waiting", "Caches"),
)


def _texts(counted: Mapping[str, Any], workers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of language models, if there are some."""
    rows: list[list[Cell]] = []
    for name, versions in sorted(counted.items()):
        for version, found in sorted(versions.items()):
            if "texts" in found:
                loads = [
                    each
                    for worker in workers
                    for each in worker.get("now", {}).get("texts", ())
                    if (each["model"], each["version"]) == (name, version)
                ]
                rows.append([name, version, *_text_cells(found["texts"], loads)])
    return ["<h2>Language models</h2>", _table(TEXT_HEADS, rows, "")] if rows else []


def _text_cells(texts: Mapping[str, Any], loads: Sequence[Mapping[str, Any]]) -> list[Cell]:
    tokens, seconds = texts["tokens"], texts["seconds"]
    shares = [each["cache_share"] for each in loads]
    return [
        *(f"{tokens[kind]:,}" for kind in ("prompt", "cached", "generated")),
        *(
            quantile(seconds[kind]["counts"], share)
            for kind in ("first_token", "token")
            for share in (0.5, 0.99)
        ),
        *(str(sum(each[kind] for each in loads)) for kind in ("running", "waiting")),
        f"{sum(shares) / len(shares):.0%}" if shares else "–",
    ]


def _worker(worker: Mapping[str, Any]) -> list[Cell]:
    memory = worker["memory"]
    sizes = [
        _size(memory[kind]) if kind in memory else "–" for kind in ("private", "mapped", "pss")
    ]
    state = ("serving", "good") if worker["serving"] else ("starting", "bad")
    in_flight = worker.get("now", {}).get("in_flight", 0)
    return [str(worker["number"]), str(worker["pid"]), state, str(in_flight), *sizes]


def quantile(counts: Sequence[int], share: float) -> str:
    """Return the quantile's upper bound in milliseconds, from a histogram of durations."""
    wanted, so_far = share * sum(counts), 0
    if not wanted:
        return "–"
    for bound, count in zip(SECONDS, counts, strict=False):
        so_far += count
        if so_far >= wanted:
            return f"{bound * 1000:g}"
    return f"> {SECONDS[-1] * 1000:g}"


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB"


def _long(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    shown = [f"{number} {unit}" for number, unit in parts if number]
    return " ".join(shown[:2]) or "0 s"
