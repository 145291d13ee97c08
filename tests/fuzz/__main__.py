"""``python -m fuzz``: a campaign, one case by its number, or a finding once more."""

from __future__ import annotations

import argparse
import functools
import importlib
import pkgutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tenonnx
import tenonnx_array
import tenonnx_contrib
import tenonnx_fold
import tenonnx_fuse
import tenonnx_training
from fuzz import VERSION, reporting
from fuzz.corpus import GROUPS, Corpus
from fuzz.drawing import draw_case
from fuzz.examining import Finding
from fuzz.findings import KEPT
from fuzz.minimize import minimized
from fuzz.runner import SECONDS, WAITING, Ran, run_batch

SAID = 30.0
"""Seconds between two lines of progress."""


SLOW = 5.0
"""Seconds of a case that are said, though it is no finding yet."""


class Campaign:
    """Counts cases and keeps findings, one of each cause."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.said = self.last = time.monotonic()
        self.seconds = 0.0  # without those in which all was stopped
        self.states: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.found: Counter[Path] = Counter()
        self.slowest, self.largest = 0.0, 0

    def take(self, ran: Ran, kernels: bool) -> None:
        now = time.monotonic()
        self.seconds += min(now - self.last, WAITING)
        self.last = now
        mode = "kernels" if kernels else "numpy"
        self.states[f"{mode} {ran.state}"] += 1
        if ran.seconds > SLOW:
            print(f"{ran.drawn.number}: {mode}: {ran.seconds:.1f} s", flush=True)
        self.slowest = max(self.slowest, ran.seconds)
        self.largest = max(self.largest, ran.peak)
        if ran.finding is not None:
            self.keep(ran, ran.finding, kernels)
        if time.monotonic() - self.said > SAID:
            self.said = time.monotonic()
            print(self.summary(), flush=True)

    def keep(self, ran: Ran, finding: Finding, kernels: bool) -> None:
        folder = reporting.folder_of(finding, self.out)
        self.found[folder] += 1
        if self.found[folder] > 1 or folder.exists():
            return
        self.kinds[finding.kind] += 1
        print(f"{ran.drawn.number}: {finding.kind}: {finding.where}", flush=True)
        small = minimized(ran.drawn, finding, kernels)
        reporting.write(small, ran.drawn, finding, kernels, folder)

    def summary(self) -> str:
        seconds, cases = max(self.seconds, 1e-3), sum(self.states.values())
        return (
            f"{cases} cases in {seconds / 60:.1f} min ({cases / seconds:.1f}/s), "
            f"slowest {self.slowest:.1f} s, largest {self.largest >> 20} MB, "
            f"{dict(sorted(self.states.items()))}, new findings {dict(self.kinds)}, "
            f"of {len(self.found)} causes, {sum(self.found.values())} times"
        )


def main() -> int:
    """Run what the arguments say; return how many findings there are, at most 1."""
    options = arguments()
    import_all()
    if options.replay:
        drawn, kernels = reporting.read(options.replay)
        return say(*run_batch([lambda: drawn], kernels, comparing=options.compare))
    modes = {"0": [False], "1": [True], "both": [False, True]}[options.jit]
    if options.kept:
        return max(
            max(map(say, run_batch(KEPT, mode, options.seconds, comparing=True))) for mode in modes
        )
    corpus = Corpus(options.groups)
    if options.number is not None:
        case = functools.partial(draw_case, options.number, corpus)
        run = functools.partial(run_batch, [case], comparing=options.compare)
        return max(say(*run(kernels)) for kernels in modes)
    if True in modes and options.warm:  # or a case would be charged for compiling
        subprocess.run([sys.executable, "-m", "tenonnx", "warmup"], check=True)
    campaign, first = Campaign(options.out), options.seed
    end = options.minutes * 60
    while campaign.seconds < end and first < options.seed + options.cases:
        last = min(first + options.batch, options.seed + options.cases)
        for kernels in modes:
            batch = [functools.partial(draw_case, n, corpus) for n in range(first, last)]
            for ran in run_batch(batch, kernels, options.seconds, comparing=options.compare):
                campaign.take(ran, kernels)
                if campaign.seconds > end:
                    break
        first = last
    print(f"seeds {options.seed} to {first}, mutations {VERSION}: {campaign.summary()}")
    for folder, count in campaign.found.most_common():
        print(f"{count:6} {folder}")
    return min(len(campaign.found), 1)


def import_all() -> None:
    """Import what sessions use, once, before processes are made; numba is not."""
    tenonnx.default_plugins()
    for package in (tenonnx_array, tenonnx_contrib, tenonnx_fold, tenonnx_fuse, tenonnx_training):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)


def say(ran: Ran) -> int:
    """Print what became of a case."""
    drawn = ran.drawn
    print(
        f"{drawn.number}: {drawn.seed} {drawn.form}",
        *drawn.notes,
        reporting.printed(drawn),
        sep="\n",
    )
    if ran.finding is None:
        print(f"{ran.state}: nothing wrong")
        return 0
    print(*ran.finding.rounds[-1:], f"{ran.finding.kind}: {ran.finding.where}", sep="\n")
    print(ran.finding.reason)
    return 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int, default=1 << 40, help="at most")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--jit", choices=["0", "1", "both"], default="both")
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--batch", type=int, default=250, help="cases in a process")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a case may take")
    parser.add_argument(
        "--warm", action=argparse.BooleanOptionalAction, default=True, help="compile kernels first"
    )
    parser.add_argument(
        "--compare", action="store_true", help="with node after node on numpy, unoptimized"
    )
    parser.add_argument("--kept", action="store_true", help="what was found before, and mended")
    parser.add_argument("--out", type=Path, default=Path(".fuzz"), help="folder of findings")
    parser.add_argument("--number", type=int, help="this case alone")
    parser.add_argument("--replay", type=Path, help="a finding's folder, once more")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
