"""``python -m bench.cuda.measure ROW`` times one network on a device, each way by itself.

It writes a line of JSON for each way as soon as that is known, so that one that fails, or ends the
process, costs no other. Inputs and outputs stay on the device.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.builder import Feeds
from bench.cuda.health import go_on_after, is_broken
from bench.cuda.table import ROWS, Row
from tenonnx.cli.timing import turn

WARM = 5

# Of a generation, before it begins anew.
TOKENS = 256

# Torch's name of it.
DEVICE = "cuda"


def ways(
    row: Row, folder: Path, *, seconds: float, small: bool
) -> Mapping[str, Callable[[], dict[str, float]]]:
    """Return what is measured, by name: each gives milliseconds per run and what else it saw."""
    proto, feeds = row.build(small)
    path = folder / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=1024)
    answers: dict[str, list[Any]] = {}
    found: dict[str, Callable[[], dict[str, float]]] = {}
    if row.streams and not small:
        found["copy"] = copying
    for name in ("tenonnx", "tenonnx graph"):
        found[name] = functools.partial(_tenonnx, row, path, feeds, name, seconds, answers)
    for name in torchs(row, small=small):
        found[name] = functools.partial(_torch, row, feeds, name, seconds, small=small)
    found["errors"] = functools.partial(errors, answers, path, feeds)  # last: the host is slow
    return found


def torchs(row: Row, *, small: bool) -> Sequence[str]:
    """Return torch's ways, where it is installed; of a small network none that takes a while.

    What grows has another shape in every run: torch records none, and compiles for a while.
    """
    if importlib.util.find_spec("torch") is None:
        return ()
    ways = ("torch eager", "torch graph", "torch.compile")
    return ways[: 1 if row.grows else 2 if small else 3]


def copying() -> dict[str, float]:
    """Return what the device reads and writes of its memory: no weights come faster."""
    from bench.cuda.kernels import copying

    return {"memory GB/s": copying()["copy GB/s"]}


def errors(answers: Mapping[str, list[Any]], path: Path, feeds: Feeds) -> dict[str, float]:
    """Return how far answers are from the CPU provider's, which leaves activations as they are."""
    import tenonnx

    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    expected = tenonnx.InferenceSession(path, options, ["cpu"]).run(None, feeds)
    return {f"{name}: error": farthest(actual, expected) for name, actual in answers.items()}


def farthest(actual: Sequence[Any], expected: Sequence[Any]) -> float:
    """Return the largest difference of outputs, in parts of each one's largest value."""
    wide = (
        [np.asarray(x, np.float64) for x in pair] for pair in zip(actual, expected, strict=True)
    )
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in wide)


def _tenonnx(
    row: Row,
    path: Path,
    feeds: Feeds,
    name: str,
    seconds: float,
    answers: dict[str, list[Any]],
) -> dict[str, float]:
    import cupy

    import tenonnx
    from tenonnx.interface.ort_value import OrtValue
    from tenonnx.weights.registry import WeightRegistry

    forget(path.parent)
    free, _ = cupy.cuda.runtime.memGetInfo()
    started = time.perf_counter()
    options = tenonnx.SessionOptions(weights=WeightRegistry())
    providers: list[Any] = [("cuda", {"enable_cuda_graph": name == "tenonnx graph"}), "cpu"]
    session = tenonnx.InferenceSession(path, options, providers)
    binding = session.io_binding()
    for key, array in feeds.items():
        binding.bind_ortvalue_input(key, OrtValue.ortvalue_from_numpy(array, "cuda"))
    for arg in session.get_outputs():
        binding.bind_output(arg.name, "cuda")
    session.run_with_iobinding(binding)
    first = 1e3 * (time.perf_counter() - started)
    run: Callable[[], None] = functools.partial(session.run_with_iobinding, binding)
    if row.grows:
        # Its later tokens are of what it made itself: the first one is compared.
        answers[name] = [value.numpy() for value in binding.get_outputs()]
        run = generation(session, binding, feeds)
    times = per_run(run, lambda: None, seconds)
    answers.setdefault(name, [value.numpy() for value in binding.get_outputs()])
    weights = session.registry.report().device
    taken = free - cupy.cuda.runtime.memGetInfo()[0]
    return {
        name: times,
        f"{name}: first": first,
        f"{name}: weights MiB": weights / 2**20,
        f"{name}: device MiB": taken / 2**20,
    }


def generation(session: Any, binding: Any, feeds: Feeds) -> Callable[[], None]:
    """Return what computes one token after another, from the first again after some."""
    from tenonnx.interface.ort_value import OrtValue

    pairs = {name: name.replace("past", "present") for name in feeds if name.startswith("past")}
    first = {past: OrtValue.ortvalue_from_numpy(feeds[past], "cuda") for past in pairs}
    made = [arg.name for arg in session.get_outputs()]
    count = itertools.count()

    def run() -> None:
        step = next(count) % TOKENS
        caches = dict(zip(made, binding.get_outputs(), strict=True))
        for past, present in pairs.items():
            binding.bind_ortvalue_input(past, caches[present] if step else first[past])
        binding.bind_cpu_input("position", feeds["position"] + step)
        session.run_with_iobinding(binding)

    return run


def forget(folder: Path) -> None:
    """Let the system drop what it keeps of files in memory, so that they are read anew."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _torch(row: Row, feeds: Feeds, way: str, seconds: float, *, small: bool) -> dict[str, float]:
    import torch

    # As tenonnx's use_tf32 and onnxruntime's, which are on unless one asks otherwise.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    module = twin(row, small=small)
    given = [torch.from_numpy(array).to(DEVICE) for array in feeds.values()]
    given = [t.half() if row.half and t.is_floating_point() else t for t in given]
    with torch.inference_mode():
        run: Callable[[], Any] = lambda: module(*given)  # noqa: E731 - one of three
        if way == "torch graph":
            run()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                module(*given)
            run = graph.replay
        elif way == "torch.compile":
            compiled = torch.compile(module)
            run = lambda: compiled(*given)  # noqa: E731 - likewise
        elif row.grows:
            run = tokens(module, given)
        times = per_run(run, torch.cuda.synchronize, seconds)
        return {way: times, f"{way}: device MiB": torch.cuda.memory_reserved() / 2**20}


def tokens(module: Any, given: list[Any]) -> Callable[[], None]:
    """Return what computes one token after another with a torch module, as ``generation`` does."""
    count, caches = itertools.count(), given[2:]

    def run() -> None:
        nonlocal caches
        step = next(count) % TOKENS
        _, *caches = module(given[0], given[1] + step, *(caches if step else given[2:]))

    return run


@functools.cache
def twin(row: Row, *, small: bool) -> Any:
    """Return the torch module of a row, whose weights are drawn on the device: there are many."""
    import torch

    with torch.device(DEVICE):
        module = row.twin(small).eval()
    return module.half() if row.half else module


def per_run(run: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    """Return the median of a run's milliseconds, each waited for."""
    for _ in range(WARM):
        run()
    wait()
    return 1e3 * turn(lambda: (run(), wait()), seconds).median


def report(measured: Mapping[str, Callable[[], dict[str, float]]], after: str = "") -> None:
    """Write a line for each way: its figures, or why there are none.

    Args:
        measured: What is to be measured, by name.
        after: The last name that is left out: it ended this process's predecessor.
    """
    names = list(measured)
    for way in names[names.index(after) + 1 if after else 0 :]:
        line: dict[str, Any]
        print(f"\n{way}", file=sys.stderr, flush=True)
        try:
            line = {"found": measured[way]()}
        except Exception as error:  # whatever a library raises is this way's result
            traceback.print_exc()
            line = {"failed": {way: f"{type(error).__name__}: {error}"[:500]}}
        print(json.dumps(line), flush=True)
        if "failed" in line and is_broken():
            go_on_after(way)


def main(arguments: list[str] | None = None) -> None:
    """Measure one row."""
    parser = argparse.ArgumentParser(prog="python -m bench.cuda.measure", description=__doc__)
    parser.add_argument("row", choices=ROWS)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a measurement")
    parser.add_argument("--small", action="store_true", help="a small network")
    parser.add_argument("--after", default="", metavar="WAY", help="only what comes after a way")
    parsed = parser.parse_args(arguments)
    # What the CPU provider would compile, for answers to compare with, it would meanwhile.
    os.environ["TENONNX_JIT"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        how: dict[str, Any] = {"seconds": parsed.seconds, "small": parsed.small}
        report(ways(ROWS[parsed.row], Path(folder), **how), parsed.after)


if __name__ == "__main__":
    main()
