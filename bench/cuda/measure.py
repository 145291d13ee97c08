"""Times of one network on a device, in tenonnx and in torch, inputs and outputs staying there."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

import tenonnx
from bench.builder import Feeds
from bench.cuda.table import Row
from tenonnx.ort_value import OrtValue
from tenonnx.weights import WeightRegistry

WARM = 5


def measure(row: Row, *, seconds: float, small: bool) -> dict[str, float]:
    """Returns milliseconds per run of each way, the first token's, and MiB on the device."""
    proto, feeds = row.build(small)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="data", size_threshold=1024)
        for name, graphed in (("tenonnx", False), ("tenonnx graph", True)):
            found |= _tenonnx(path, feeds, name, seconds, graphed=graphed)
    return found | _torch(row, feeds, seconds, small=small)


def _tenonnx(
    path: Path, feeds: Feeds, name: str, seconds: float, *, graphed: bool
) -> dict[str, float]:
    started = time.perf_counter()
    options = tenonnx.SessionOptions(weights=WeightRegistry())
    providers = [("cuda", {"enable_cuda_graph": graphed}), "cpu"]
    session = tenonnx.InferenceSession(path, options, providers)
    binding = session.io_binding()
    for key, array in feeds.items():
        binding.bind_ortvalue_input(key, OrtValue.ortvalue_from_numpy(array, "cuda"))
    for arg in session.get_outputs():
        binding.bind_output(arg.name, "cuda")
    session.run_with_iobinding(binding)
    first = 1e3 * (time.perf_counter() - started)
    times = per_run(lambda: session.run_with_iobinding(binding), lambda: None, seconds)
    weights = session.registry.report().device
    return {name: times, f"{name}: first": first, f"{name}: weights MiB": weights / 2**20}


def _torch(row: Row, feeds: Feeds, seconds: float, *, small: bool) -> dict[str, float]:
    import torch

    module = row.twin(small).eval().cuda()
    module = module.half() if row.half else module
    given = [torch.from_numpy(array).cuda() for array in feeds.values()]
    given = [t.half() if row.half and t.is_floating_point() else t for t in given]
    found = {}
    with torch.inference_mode():
        wait = torch.cuda.synchronize
        found["torch eager"] = per_run(lambda: module(*given), wait, seconds)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module(*given)
        found["torch graph"] = per_run(graph.replay, wait, seconds)
        compiled = torch.compile(module)
        found["torch.compile"] = per_run(lambda: compiled(*given), wait, seconds)
    return found


def per_run(run: Callable[[], Any], wait: Callable[[], Any], seconds: float) -> float:
    """Returns the median of a run's milliseconds, each waited for."""
    for _ in range(WARM):
        run()
    wait()
    times = []
    stop = time.perf_counter() + seconds
    while not times or time.perf_counter() < stop:
        start = time.perf_counter()
        run()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)
