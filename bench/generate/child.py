"""A process that opens a folder and generates; tells what that took, then waits for a line."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

# Before numpy and the engine: imports are a part of the first token.
BEGUN = time.perf_counter()

ROLLUP = Path("/proc/self/smaps_rollup")


def private_bytes() -> int:
    """Return the bytes that are this process's alone."""
    kinds = ("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:", "Swap:")
    lines = ROLLUP.read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(kinds))


def opened(runtime: Any, job: dict[str, Any]) -> Any:
    """Return the folder's model."""
    config = runtime.Config(job["folder"])
    if job["threads"]:
        threads = {"session_options": {"intra_op_num_threads": job["threads"]}}
        config.overlay(json.dumps({"model": {"decoder": threads}}))
    return runtime.Model(config)


def generated(runtime: Any, model: Any, prompt: Any, new: int) -> tuple[float, float, list[int]]:
    """Return seconds until the first token and for all others, and what was generated."""
    params = runtime.GeneratorParams(model)
    length = len(prompt) + new
    params.set_search_options(do_sample=False, min_length=length, max_length=length)
    generator = runtime.Generator(model, params)
    start = time.perf_counter()
    generator.append_tokens(prompt)
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(new - 1):
        generator.generate_next_token()
    rest = time.perf_counter() - first
    return first - start, rest, generator.get_sequence(0)[len(prompt) :].tolist()


def main(job: dict[str, Any]) -> None:
    """Measure, tell, and stay until it is told to go."""
    import numpy as np

    start = time.perf_counter()
    runtime = importlib.import_module(job["runtime"])
    model = opened(runtime, job)
    loaded = time.perf_counter()
    if job["again"]:
        opened(runtime, job)
        print(json.dumps({"load": time.perf_counter() - loaded}), flush=True)
        return
    # Without numpy's random numbers, the modules of which no engine imports.
    prompt = np.arange(job["prompt"]) * 2_654_435_761 % (1 << 32) % (job["vocabulary"] - 4) + 4
    prompt = prompt.astype(np.int32)
    generated(runtime, model, prompt, 1)
    first = time.perf_counter() - BEGUN
    rounds = [generated(runtime, model, prompt, job["new"]) for _ in range(3)]
    facts = {
        "import": loaded - start,
        "first token": first,
        "prompt": min(reading for reading, _, _ in rounds),
        "token": min(writing for _, writing, _ in rounds) / (job["new"] - 1),
        "private": private_bytes(),
        "tokens": rounds[0][2],
    }
    print(json.dumps(facts), flush=True)
    sys.stdin.readline()
    print(json.dumps({"private": private_bytes()}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
