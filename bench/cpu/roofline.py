"""What the machine can do at most, measured, and what kernels reach of that.

Peaks are of this machine now: reading memory beyond every cache (the read of STREAM), and fused
multiply-adds of float32 in registers. A kernel is compared with the one that bounds it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.cpu.turns import ROOT
from bench.machine import tell
from bench.measure import UNSET

READ, FLOPS = "GB/s", "GFLOP/s"


def measure_roofline(threads: Sequence[int], *, quick: bool) -> list[dict[str, Any]]:
    """Returns what kernels reach, from a fresh process for every number of threads."""
    variables = {k: v for k, v in os.environ.items() if k not in UNSET} | {"TENONNX_JIT": "wait"}
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


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Returns the shortest time of a call."""
    call()
    best, stop = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < stop or best == float("inf"):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def peaks(threads: int, seconds: float, mib: int) -> dict[str, float]:
    """Returns the machine's peaks by unit."""
    import numpy as np

    from bench.cpu.peaks import CHAINS, add_up, multiply_add
    from tenonnx_cpu.jit.code.cpu import cpu

    memory = np.ones(mib << 18, np.float32)
    sums = np.zeros(64 * 64, np.float32)
    read, work = add_up.compile(), multiply_add.compile()
    turns = int(2e6 * seconds)
    reading = fastest(lambda: read(memory, sums, threads), seconds)
    working = fastest(lambda: work(turns, sums, threads), seconds)
    flops = 2 * CHAINS * cpu().lanes * turns * 4 * threads
    return {READ: memory.nbytes / reading / 1e9, FLOPS: flops / working / 1e9}


def kernels(threads: int, seconds: float, *, quick: bool) -> list[dict[str, Any]]:
    """Times kernels that models spend their time in, as sessions run them."""
    import tenonnx
    from bench.cpu.shapes import SHAPES

    options = tenonnx.SessionOptions(intra_op_num_threads=threads)
    found = []
    for name, (unit, build) in SHAPES.items():
        proto, feeds, amount = build(quick)
        session = tenonnx.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        taken = fastest(lambda s=session, f=feeds: s.run(None, f), seconds)  # type: ignore[misc] # defaults bind
        found.append(
            {"name": name, "unit": unit, "seconds": taken, "reached": amount / taken / 1e9}
        )
    return found


def main(threads: int, quick: bool) -> None:
    """Prints a list in JSON."""
    from tenonnx_cpu.team import most_threads

    seconds = 0.02 if quick else 0.5
    team = threads or most_threads()
    highest = peaks(team, seconds, 16 if quick else 256)
    found = kernels(team, seconds, quick=quick)
    for each in found:
        each.update(threads=threads, peak=highest[each["unit"]])
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
