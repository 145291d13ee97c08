"""``python -m bench providers`` runs the same models on every installed provider, in turn.

Each model is a process of its own: ``tenonnx bench MODEL --all-providers --json``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.machine import machine, tell
from bench.measure import environment
from bench.models import Built, digits, lstm, mlp, mlp_stack
from bench.report import show
from bench.transformers import encoder

RESULTS = Path(__file__).with_name("results")
MODELS: dict[str, Callable[[], Built]] = {
    "digits, 64 images": digits,
    "MLP, 1 row": mlp,
    "MLP of 64 MiB, 1 row": mlp_stack,
    "encoder": encoder,
    "LSTM": lstm,
}
COLUMNS = {"load_seconds": "load", "first_seconds": "first", "min": "run min", "median": "run"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table and save it with a plot; return 1 if some provider failed on a model."""
    parser = argparse.ArgumentParser(prog="python -m bench providers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of runs, for each provider")
    parser.add_argument("--threads", type=int, default=0, help="inside kernels; 0: as they choose")
    parser.add_argument("--quick", action="store_true", help="two models, briefly")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="DIR")
    parsed = parser.parse_args(arguments)
    names = list(MODELS)[: 2 if parsed.quick else None]
    seconds = 0.05 if parsed.quick else parsed.seconds
    with tempfile.TemporaryDirectory(prefix="providers-") as folder:
        found = {name: measure(name, Path(folder), seconds, parsed.threads) for name in names}
    text = "".join(f"| {' | '.join(line)} |\n" for line in table(found))
    print(text)
    parsed.output.mkdir(parents=True, exist_ok=True)
    (parsed.output / "providers.md").write_text(text)
    content = {"machine": machine(), "threads": parsed.threads, "models": found}
    (parsed.output / "providers.json").write_text(json.dumps(content, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        save_plot(found, parsed.output / "providers.png")
    return int(any(row["error"] for rows in found.values() for row in rows))


def measure(name: str, folder: Path, seconds: float, threads: int) -> list[dict[str, Any]]:
    """Return what ``tenonnx bench`` says of a model, a row for each provider."""
    tell(name)
    model, feeds = MODELS[name]()
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "feeds.npz", allow_pickle=False, **feeds)
    options = ["--all-providers", "--json", "--seconds", seconds, "--threads", threads]
    cache = os.environ.get("TENONNX_CACHE_DIR", str(folder))
    command = ["bench", folder / "model.onnx", "--input", folder / "feeds.npz", *options]
    done = subprocess.run(
        [sys.executable, "-m", "tenonnx", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(threads, Path(cache)),
    )
    if not done.stdout.strip():
        return [{"provider": "tenonnx", "error": done.stderr.strip().splitlines()[-1]}]
    rows: list[dict[str, Any]] = json.loads(done.stdout)["results"]
    return rows


def table(found: dict[str, list[dict[str, Any]]]) -> list[list[str]]:
    """Return the lines of a table in Markdown."""
    lines = [["model", "provider", *COLUMNS.values(), "ratio", "differs"]]
    lines.append(["---", "---", *["---:"] * (len(COLUMNS) + 2)])
    for name, rows in found.items():
        for row in rows:
            if row["error"]:
                lines.append([name, row["provider"], *[""] * (len(COLUMNS) + 1), row["error"]])
                continue
            times = [show("s", row[key]) for key in COLUMNS]
            differs = "" if row["difference"] is None else f"{row['difference']:.1g}"
            lines.append([name, row["provider"], *times, f"{row['ratio']:.2f}", differs])
    return lines


def save_plot(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw each provider's median run as a multiple of the CPU provider's."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 1 + 0.8 * len(found)), layout="constrained")
    names = list(dict.fromkeys(row["provider"] for rows in found.values() for row in rows))
    for position, provider in enumerate(names):
        ratios = [
            next((r["ratio"] for r in rows if r["provider"] == provider and not r["error"]), 0.0)
            for rows in found.values()
        ]
        places = [number + 0.8 * position / len(names) for number in range(len(found))]
        axes.barh(places, ratios, height=0.7 / len(names), label=provider)
    axes.set_yticks([number + 0.4 for number in range(len(found))], list(found))
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_xlabel("median run, as a multiple of the CPU provider's")
    figure.legend(loc="outside upper center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
