"""``python -m bench transforms [MODEL ...]`` tells what each graph transform gains on the CPU.

A model runs with every transform that matched it beside the same model without one of them, and
without any: two sessions take turns in one process. Private memory is that of a process with only
one of the two. What the CPU provider joins as it compiles nodes counts as one transform. Models
named alone replace their rows in the results kept.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench import transforms_report as report
from bench.architectures import NAMES, OLDER, exported
from bench.builder import FLOAT, Builder, Feeds
from bench.child import KERNEL_FUSIONS
from bench.compare import TIMEOUT
from bench.convnets import resnet50
from bench.machine import machine, tell
from bench.measure import Job, environment, measure, write_feeds
from bench.models import models
from bench.options import parser, telling_minutes
from bench.smaller import quantized
from bench.transforms_report import ALL, Row

INT8 = "resnet50-int8"
ARCHITECTURES = "architectures"
BUILT = [name for name in models(quick=False) if name not in ("relus", "forest")]
EXPORTED = (*NAMES, *(f"{name}{OLDER}" for name in ("bert", "gpt2", "llama", "t5", "whisper")))
CHOICES = (*BUILT, INT8, ARCHITECTURES, *EXPORTED)

# The number of repeated measurements of a pair that seems to be slower or larger.
AGAIN = 4


@dataclass(frozen=True)
class Bench:
    """The place and duration of measuring pairs."""

    folder: Path
    seconds: float
    threads: int

    def rows(self, model: str, path: Path, feeds: Feeds) -> Iterator[Row]:
        """Yield a row for each transform that matches a model, and one for all of them."""
        write_feeds(self.folder / "feeds.npz", [feeds])
        (cache := self.folder / "cache").mkdir(exist_ok=True)
        tell(f"{model}: preparing")
        self._pair(path, cache, ())  # kernels are compiled and side files are there
        found = self._matched(path)
        everything = list(found)
        if not found:
            return
        mine = min(self._pair(path, cache, ())["ran_mib"] for _ in range(2))
        for name, matched in (found | {ALL: f"{len(found)} transforms"}).items():
            without = everything if name == ALL else [name]
            row = self._row(Row(model, name, matched, mine_mib=mine), path, cache, without)
            tell(f"{model}, {name}: {row.time_ratio:.3f} of the time, {row.more_mib:+.2f} MiB")
            yield row

    def _row(self, row: Row, path: Path, cache: Path, without: Sequence[str]) -> Row:
        """Return a row with the least that was seen of everything."""
        for attempt in range(1 + AGAIN):
            without_first = attempt % 2 == 0
            first, second = (without, ()) if without_first else ((), without)
            facts = self._pair(path, cache, first, second)
            times = facts["one_s"], facts["other_s"]
            other, mine = times if without_first else times[::-1]
            memory = {"other_mib" if without_first else "mine_mib": facts["ran_mib"]}
            row = row.least(mine_s=mine, other_s=other, **memory)
            if row.holds:
                break
        return row

    def _pair(
        self, path: Path, cache: Path, without: Sequence[str], beside: Sequence[str] | None = None
    ) -> dict[str, Any]:
        job = Job(
            "tenonnx",
            model=str(path),
            feeds=str(self.folder / "feeds.npz"),
            tiny=str(self.folder / "tiny.onnx"),
            tiny_feeds=str(self.folder / "tiny.npz"),
            outputs=str(self.folder / "outputs.npz"),
            threads=self.threads,
            budget=0.0 if beside is None else self.seconds,
            without=without,
            beside=beside,
        )
        return measure(job, cache, TIMEOUT)

    def _matched(self, path: Path) -> dict[str, str]:
        """Return what changed a model, and how many nodes were left of how many."""
        command = [sys.executable, "-m", "tenonnx", "explain", str(path), "-p", "cpu", "--json"]
        done = subprocess.run(
            command,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(0, self.folder),
        )
        told = json.loads(done.stdout)
        found = {
            each["name"]: f"{each['nodes_before']} → {each['nodes_after']}"
            for each in told["transforms"]
            if each["modified"]
        }
        if joined := told["calls"]["joined"]:
            nodes = sum(times * (1 + kinds.count(" + ")) for kinds, times in joined.items())
            found[KERNEL_FUSIONS] = f"{nodes} → {sum(joined.values())}"
        return found


def built(names: Sequence[str], folder: Path, *, quick: bool) -> Iterator[tuple[str, Path, Feeds]]:
    """Yield models by name, their files and inputs."""
    builders = models(quick=quick)
    small = {"image": 32, "blocks": (1, 1, 1, 1), "width": 8}
    builders[INT8] = lambda: quantized(resnet50(**(small if quick else {})))  # type: ignore[arg-type] # they are as they should be
    for name in names:
        if name in builders:
            proto, feeds = builders[name]()
            onnx.save(proto, path := folder / f"{name}.onnx")
            yield name, path, feeds
            path.unlink()
    wanted = [name for name in EXPORTED if name in names or ARCHITECTURES in names]
    if wanted:
        yield from exported(folder, wanted, quick=quick)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    made = parser("transforms", __doc__, CHOICES, "MODEL")
    made.add_argument("--quick", action="store_true", help="small models, a moment each")
    made.add_argument("--seconds", type=float, default=0.3, help="of runs, for each pair")
    made.add_argument("--threads", type=int, default=0, help="inside an operator; 0 is all")
    return made.parse_args(arguments)


def prepared(folder: Path) -> None:
    """Write the model of one node with which every process starts."""
    b = Builder()
    b("Sigmoid", "x", out="y")
    onnx.save(b.model({"x": (FLOAT, [1])}, {"y": (FLOAT, [1])}), folder / "tiny.onnx")
    write_feeds(folder / "tiny.npz", [{"x": np.zeros(1, np.float32)}])


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if no transform makes a model slower or larger, else 1."""
    parsed = parse(arguments)
    names = parsed.names or [*BUILT, INT8, ARCHITECTURES]
    parsed.output.mkdir(parents=True, exist_ok=True)
    target = parsed.output / f"transforms{'-quick' if parsed.quick else ''}.json"
    kept = report.read(target) if parsed.names else []
    rows: list[Row] = []
    with telling_minutes(), tempfile.TemporaryDirectory(prefix="bench-") as place:
        folder = Path(place)
        prepared(folder)
        seconds = 0.02 if parsed.quick else parsed.seconds
        bench = Bench(folder, seconds, parsed.threads)
        for name, path, feeds in built(names, folder, quick=parsed.quick):
            rows += bench.rows(name, path, feeds)
    measured = {row.model for row in rows}
    rows += [row for row in kept if row.model not in measured]
    report.save(rows, target, machine() | {"threads": parsed.threads or "all"})
    print(report.as_markdown(rows))
    return int(not parsed.quick and any(not row.holds for row in rows))


if __name__ == "__main__":
    sys.exit(main())
