"""``python -m bench generate FOLDER ...`` measures language models beside onnxruntime-genai.

Every measurement is a fresh process; engines take turns. For each folder it tells how long opening
it takes, with the import of the engine and once more in the same process, the first token of a
process (imports, opening and the prompt), a prompt and a token of a process that is warm, and the
private memory of one process and of each of four at once. The table has medians, and the median of
the ratios of neighboring turns: below 1, tenonnx takes less. One more process compares tenonnx with
itself: cached prefixes, guidance, four rows at once, and what 200 generators leave behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
from pathlib import Path
from typing import Any

from bench.generate import report
from bench.machine import machine, tell
from bench.options import RESULTS
from bench.picture import draw
from bench.process import Child

ENGINES = ("tenonnx_generate", "onnxruntime_genai")
EXAMPLE = Path(__file__).parents[2] / "examples" / "generate" / "model"
PROCESSES = 4


def parse(arguments: list[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(
        prog="python -m bench generate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("folders", nargs="*", type=Path, default=[EXAMPLE], metavar="FOLDER")
    made.add_argument("--rounds", type=int, default=5, help="turns of each engine, 5 by default")
    made.add_argument("--prompt", type=int, default=256, help="tokens of it, 256 by default")
    made.add_argument("--new", type=int, default=64, help="tokens to generate, 64 by default")
    made.add_argument("--threads", type=int, default=0, help="0, the default: as engines choose")
    made.add_argument("--output", type=Path, default=RESULTS, metavar="DIR")
    return made.parse_args(arguments)


def started(
    module: str, engine: str, folder: Path, parsed: argparse.Namespace, *, again: bool = False
) -> Child:
    about = json.loads((folder / "genai_config.json").read_text())["model"]
    job = {
        "runtime": engine,
        "folder": str(folder.resolve()),
        "vocabulary": about["vocab_size"],
        "prompt": min(parsed.prompt, about["context_length"] - parsed.new),
        "new": parsed.new,
        "threads": parsed.threads,
        "again": again,
    }
    command = [sys.executable, "-m", f"bench.generate.{module}", json.dumps(job)]
    # Whoever may not keep modules compiles them in each process.
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return Child(command, variables, timeout=600)


def turn(engine: str, folder: Path, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return what two processes tell of themselves: one of them opens the folder twice."""
    facts: dict[str, Any] = {}
    for again in (True, False):
        with contextlib.closing(started("child", engine, folder, parsed, again=again)) as child:
            facts |= child.hear()
    return facts


def together(engine: str, folder: Path, parsed: argparse.Namespace) -> float:
    """Return the mean private memory of several processes that are there at once."""
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(contextlib.closing(started("child", engine, folder, parsed)))
            for _ in range(PROCESSES)
        ]
        for child in children:
            child.hear()
        found = []
        for child in children:
            child.send()
            found.append(float(child.hear()["private"]))
        return statistics.mean(found)


def measured(folder: Path, parsed: argparse.Namespace) -> dict[str, Any]:
    """Return by engine what each turn took, and whether all generated the same."""
    turns: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for engine in ENGINES:
        turn(engine, folder, parsed)  # leaves kernels and plans behind
    for number in range(parsed.rounds):
        for engine in ENGINES if number % 2 else reversed(ENGINES):
            tell(f"{folder.name}: {engine}, {number + 1} of {parsed.rounds}")
            turns[engine].append(turn(engine, folder, parsed))
    for engine in ENGINES:
        memory = together(engine, folder, parsed)
        for facts in turns[engine]:
            facts["private of four"] = memory
    tell(f"{folder.name}: tenonnx beside itself")
    with contextlib.closing(started("own", ENGINES[0], folder, parsed)) as child:
        return {"folder": folder.name, "turns": turns, "own": child.hear()}


def main(arguments: list[str] | None = None) -> int:
    """Return 0."""
    parsed, about = parse(arguments), machine()
    rows = [measured(folder, parsed) for folder in parsed.folders]
    parsed.output.mkdir(parents=True, exist_ok=True)
    path = parsed.output / "generate.json"
    path.write_text(json.dumps({"machine": about, "rows": rows}) + "\n")
    path.with_suffix(".md").write_text(report.as_markdown(rows))
    draw(path.with_suffix(".png"), report.read(path), "Language models", report.PEER)
    print(report.as_markdown(rows), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
