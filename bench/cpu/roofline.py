"""The machine's peaks, measured, and the share that kernels reach.

Peaks are of this machine now: reading memory beyond every cache (the read of STREAM), and fused
multiply-adds of float32 in registers. A kernel takes turns with the one that bounds it: on a shared
machine memory's speed changes by the minute.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.machine import tell
from bench.measure import UNSET
from bench.process import ROOT
from tenonnx.cli.timing import repeat

READ, FLOPS = "GB/s", "GFLOP/s"

ROUNDS = 5


def measure_roofline(threads: Sequence[int], *, quick: bool) -> list[dict[str, Any]]:
    """Return what kernels reach, from a fresh process for every number of threads."""
    variables = {k: v for k, v in os.environ.items() if k not in UNSET}
    found: list[dict[str, Any]] = []
    for number in threads:
        command = [sys.executable, "-m", "bench.cpu.roofline", str(number), str(int(quick))]
        done = subprocess.run(
            command, cwd=ROOT, env=variables, check=True, stdout=subprocess.PIPE, text=True
        )
        for each in json.loads(done.stdout.splitlines()[-1]):
            share = each["reached"] / each["peak"]
            tell(f"  {each['name']}, {number or 'all'} threads: {each['reached']:.4g} "
                 f"{each['unit']}, {share:.0%} of the peak")  # fmt: skip
            found.append(each)
    return found


@dataclass(frozen=True)
class Work:
    """A call to time, and how many bytes it reads or float operations it does."""

    call: Callable[[], object]
    amount: float

    def rate(self, seconds: float) -> float:
        """Return 1e-9 times what it does per second, when fastest."""
        return self.amount / min(repeat(self.call, seconds)) / 1e9


def peaks(threads: int, seconds: float, mib: int) -> dict[str, Work]:
    """Return what reaches the machine's peaks, by unit."""
    import numpy as np

    from bench.cpu.peaks import CHAINS, add_up, multiply_add
    from tenonnx_cpu.jit.aot.single import load
    from tenonnx_cpu.jit.code.cpu import cpu

    memory = np.ones(mib << 18, np.float32)
    sums = np.zeros(64 * 64, np.float32)
    read, work = load(add_up), load(multiply_add)
    turns = int(2e6 * seconds)
    flops = 2 * CHAINS * cpu().lanes * turns * 4 * threads
    return {
        READ: Work(lambda: read(memory, sums, threads), memory.nbytes),
        FLOPS: Work(lambda: work(turns, sums, threads), flops),
    }


def kernels(threads: int, *, quick: bool) -> Iterator[tuple[str, str, Work]]:
    """Yield names, units and what sessions run: kernels that models spend their time in."""
    import tenonnx
    from bench.cpu.shapes import SHAPES

    options = tenonnx.SessionOptions(intra_op_num_threads=threads)
    for name, (unit, build) in SHAPES.items():
        proto, feeds, amount = build(quick)
        session = tenonnx.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        yield name, unit, Work(functools.partial(session.run, None, feeds), amount)


def share(work: Work, peak: Work, seconds: float) -> tuple[float, float]:
    """Return the rates of work and peak in the round whose quotient is the median one."""
    work.call()
    rounds = [(work.rate(seconds), peak.rate(seconds)) for _ in range(ROUNDS)]
    return sorted(rounds, key=lambda rates: rates[0] / rates[1])[ROUNDS // 2]


def main(threads: int, quick: bool) -> None:
    """Print a list in JSON."""
    from tenonnx_cpu.threading_config import most_threads

    seconds = 0.02 if quick else 0.1
    team = threads or most_threads()
    highest = peaks(team, seconds, 16 if quick else 256)
    found = []
    for name, unit, work in kernels(team, quick=quick):
        reached, peak = share(work, highest[unit], seconds)
        taken = work.amount / reached / 1e9
        rates = {"unit": unit, "seconds": taken, "reached": reached, "peak": peak}
        found.append({"name": name, "threads": threads} | rates)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
