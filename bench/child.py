"""The work of each fresh process: import an engine, load a model, run it.

The process tells its parent after each phase how long it took, and waits for a word, so that the
parent can look at its memory meanwhile. It is run as a script and imports nothing of this
package, so that what is measured is the engine; the timing of runs comes with ``main``, after it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

clock = time.perf_counter

# Stands among transforms for what the CPU provider makes one step of as it compiles nodes.
KERNEL_FUSIONS = "kernel fusions"


def tell(phase: str, **facts: Any) -> None:
    """Tell the parent that a phase is over and waits until it says to go on."""
    print(json.dumps({"phase": phase, **facts}), flush=True)
    sys.stdin.readline()


class Tenonnx:
    """tenonnx with every option at its default but the number of threads."""

    def __init__(self, threads: int) -> None:
        import tenonnx

        self.module, self.threads = tenonnx, threads
        self.session = tenonnx.InferenceSession

    def load(self, path: str, without: Sequence[str] = ()) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed; some transforms may be left out."""
        disabled = tuple(name for name in without if name != KERNEL_FUSIONS)
        options = self.module.SessionOptions(
            intra_op_num_threads=self.threads, disabled_transforms=disabled
        )
        with unfused() if KERNEL_FUSIONS in without else contextlib.nullcontext():
            session = self.session(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run(None, feed)


@contextlib.contextmanager
def unfused() -> Iterator[None]:
    """Let the CPU provider compile a step per node; ``ORT_DISABLE_ALL`` stops transforms, too."""
    from unittest import mock

    with mock.patch("tenonnx_cpu.fuse.FUSIONS.find", return_value={}):
        yield


class OnnxRuntime:
    """onnxruntime with every option at its default but the number of threads."""

    def __init__(self, threads: int) -> None:
        import onnxruntime

        self.module, self.threads = onnxruntime, threads
        self.session = onnxruntime.InferenceSession

    def load(
        self, path: str, entries: Mapping[str, str] | None = None
    ) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed; entries are of the session's configuration."""
        options = self.module.SessionOptions()
        options.intra_op_num_threads = self.threads
        for key, value in (entries or {}).items():
            options.add_session_config_entry(key, value)
        session = self.session(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: list(session.run(None, feed))


class Reference:
    """The reference evaluator of the onnx package."""

    def __init__(self, threads: int) -> None:
        del threads  # it has no such option
        from onnx.reference import ReferenceEvaluator

        self.evaluator = ReferenceEvaluator

    def load(self, path: str) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed."""
        evaluator = self.evaluator(path)
        return lambda feed: list(evaluator.run(None, feed))


class OpenVino:
    """OpenVINO, asked for float32 and for short latencies."""

    def __init__(self, threads: int) -> None:
        import openvino

        self.core = openvino.Core()
        self.config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if threads:
            self.config["INFERENCE_NUM_THREADS"] = str(threads)

    def load(self, path: str) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed; outputs are the caller's, as other engines'."""
        compiled = self.core.compile_model(path, "CPU", self.config)
        request = compiled.create_infer_request()

        def run(feed: dict[str, Any]) -> list[Any]:
            results = request.infer(feed, share_inputs=True, share_outputs=False)
            return [results[output] for output in compiled.outputs]

        return run


class TorchCompile:
    """torch.compile's function of the graph, which tenonnx's provider hands over node by node."""

    def __init__(self, threads: int) -> None:
        import torch

        import tenonnx

        if threads:
            torch.set_num_threads(threads)
        self.module, self.session = tenonnx, tenonnx.InferenceSession

    def load(self, path: str) -> Callable[[dict[str, Any]], list[Any]]:
        """Return what runs the model on a feed; a model that torch has not all of is refused."""
        options = self.module.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        session = self.session(
            path, options, providers=[("TorchExecutionProvider", {"compile": True})]
        )
        return lambda feed: session.run(None, feed)


ENGINES: dict[str, Callable[[int], Any]] = {
    "tenonnx": Tenonnx,
    "onnxruntime": OnnxRuntime,
    "onnx.reference": Reference,
    "OpenVINO": OpenVino,
    "torch.compile": TorchCompile,
}


def bare_relus(x: Any, length: int) -> Callable[[], Any]:
    """Return a function that makes the numpy calls of a chain of Relus and nothing else."""
    import numpy as np

    def chain() -> Any:
        y, maximum = x, np.maximum
        for _ in range(length):
            y = maximum(y, 0)
        return y

    return chain


def read_feeds(path: str) -> list[dict[str, Any]]:
    """Read what ``bench.measure.write_feeds`` wrote."""
    import numpy as np

    feeds: list[dict[str, Any]] = []
    with np.load(path) as arrays:
        for key in arrays.files:
            position, name = key.split(":", 1)
            while len(feeds) <= int(position):
                feeds.append({})
            array = arrays[key]
            feeds[int(position)][name] = array.astype(object) if array.dtype.kind == "U" else array
    return feeds


def write_outputs(path: str, outputs: list[list[Any]]) -> None:
    """Keep outputs for the parent to compare: one array each, by feed and position."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for i, many in enumerate(outputs):
        for j, each in enumerate(many):
            array = np.asarray(each)
            arrays[f"{i}:{j}"] = array.astype(str) if array.dtype.kind == "O" else array
    np.savez(path, **arrays)


def blas() -> list[dict[str, Any]]:
    """Return the BLAS libraries in this process: architecture and threads, if it can tell."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return []
    keys = ("user_api", "internal_api", "version", "architecture", "num_threads")
    return [{key: pool.get(key) for key in keys} for pool in threadpool_info()]


def main(job: dict[str, Any]) -> None:
    """Do what the parent asks for; the job's keys are the fields of ``bench.measure.Job``."""
    start = clock()
    engine = ENGINES[job["engine"]](job["threads"])
    imported = clock() - start
    feeds = read_feeds(job["feeds"])
    # The first session makes an engine import and set up what it puts off till then.
    first = engine.load(job["tiny"])
    first(read_feeds(job["tiny_feeds"])[0])
    started = clock() - start
    from tenonnx.cli.timing import alternate, turn

    tell("started", import_s=imported, start_s=started)

    start = clock()
    without = [job["without"]] if job["without"] else []
    sessions = [engine.load(job["model"], *without) for _ in range(job["sessions"])]
    facts: dict[str, Any] = {"load_s": clock() - start}
    tell("loaded", **facts)

    def run() -> list[list[Any]]:
        return [session(feed) for session in sessions for feed in feeds]

    def in_turn(other: Callable[[], object], budget: float) -> tuple[float, float]:
        one, two = alternate((run, other), 0, 3, budget, pause=0)
        return one.fastest, two.fastest

    start = clock()
    outputs = run()
    facts = {"first_s": clock() - start}
    timed = turn(run, job["budget"], job["least"])
    facts |= {"run_s": timed.fastest, "median_s": timed.median, "runs": timed.runs}
    tell("ran", **facts)

    write_outputs(job["outputs"], outputs)
    facts = {"blas": blas()}
    if job["relus"]:
        bare = bare_relus(feeds[0]["x"], job["relus"])
        mine, facts["bare_s"] = in_turn(bare, job["budget"])
        facts["over_numpy"] = mine / facts["bare_s"]
    if job["beside"] is not None:
        other = engine.load(job["model"], job["beside"])
        other(feeds[0])
        in_turn(lambda: other(feeds[0]), 0)  # buffers and caches are there now
        facts["one_s"], facts["other_s"] = in_turn(lambda: other(feeds[0]), job["budget"])
    tell("done", **facts)


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception as error:
        tell("failed", error=" ".join(f"{type(error).__name__}: {error}".split())[:200])
