"""The areas of the page: what measures each, and what reads its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bench.architectures import NEEDS
from bench.capacity.report import read as of_capacity
from bench.corners.__main__ import TABLE as CORNERS
from bench.cpu.__main__ import CPU
from bench.first.__main__ import FIRST
from bench.first.states import PEER
from bench.generate.report import PEER as GENAI
from bench.generate.report import read as of_generating
from bench.page.figures import Reader, of_openings, of_processes, of_table
from bench.scale import TABLE as SCALE
from bench.serve.report import read as of_serving
from bench.throughput.__main__ import TABLE as THROUGHPUT

WEIGHTS = ("external-1g", "inline-unaligned-1g", "tied-if-1g")


@dataclass(frozen=True)
class Area:
    """A benchmark whose results are on the page; their files have its name.

    Attributes:
        title: The heading.
        about: What is measured, for those who have not seen the benchmark.
        module: Whose ``main`` measures it.
        read: Reads its file.
        arguments: Of ``main``.
        quick: Whether it takes ``--quick``.
        needs: Packages that measuring it needs.
        beside: The denominator of the ratios.
    """

    title: str
    about: str
    module: str
    read: Reader
    arguments: tuple[str, ...] = ()
    quick: bool = True
    needs: tuple[str, ...] = ()
    beside: str = PEER

    @property
    def command(self) -> str:
        """The command that measures this area alone."""
        name = self.module.removeprefix("bench.").removesuffix("__main__").rstrip(".")
        return " ".join(filter(None, ["python -m bench", name, *self.arguments]))

    def missing(self, *, quick: bool) -> str:
        """Return what keeps it from being measured."""
        needed = [name for name in self.needs if not find_spec(name)]
        if needed:
            return f"needs {', '.join(needed)}"
        return "has no small models" if quick and not self.quick else ""

    def measure(self, output: str, *, quick: bool) -> int:
        """Measure it; return 0 if all bounds hold."""
        main: Callable[[list[str]], Any] = import_module(self.module).main
        return int(main([*self.arguments, *["--quick"] * quick, "--output", output]))


AREAS: Mapping[str, Area] = {
    "cpu": Area(
        "Whole models",
        "How long a run takes, once the session is warm: the shortest run of a turn, turn against "
        "turn.",
        "bench.cpu.__main__",
        of_table(CPU),
    ),
    "corners": Area(
        "What few models have",
        "How long a run takes, as above, of operators and models that few have; OpenVINO (float32, "
        "short latencies) and torch.compile take turns, too, where they take the model. *A first "
        "session* finds nothing of an earlier process; *a session, the plan kept* opens what the "
        "one before has kept, where onnxruntime parses the model each time.",
        "bench.corners.__main__",
        of_table(CORNERS),
    ),
    "first": Area(
        "The first answer of a process",
        "How long a fresh process takes for the import, the session and the first run together. "
        "The *first process* that opens a model finds kernels alone, the *second* what the first "
        "has kept; onnxruntime keeps nothing, so its figure is the same for both. An `.ort` file "
        "is opened by onnxruntime with its best options, which map it.",
        "bench.first.__main__",
        of_openings(FIRST),
    ),
    "scale": Area(
        "Many nodes, many weights",
        "How long a fresh process takes to make a session, without the import, and its private "
        "memory after running it, in a first process and in a second one, as above.",
        "bench.scale",
        of_openings(SCALE),
    ),
    "throughput": Area(
        "Many runs at once",
        "How often a second threads on one session, or processes with a session each, run a model "
        "all together, each run on one thread. The ratio is that of the seconds per run.",
        "bench.throughput.__main__",
        of_table(THROUGHPUT),
    ),
    "weights": Area(
        "Large weights",
        "*A session* is how long making it takes, in a first process if the row does not say "
        "otherwise; *private MiB* is what the process holds after running, beyond the engine "
        "itself, in memory that no file backs.",
        "bench.__main__",
        of_processes,
        (*WEIGHTS, "--title", "weights"),
    ),
    "weight_sharing": Area(
        "Shared weights",
        "*A session* is made in a first process, which finds nothing of an earlier one; of several "
        "processes the mean is told. *onnxruntime, best options* maps `.ort` files and does "
        "without packed weights; such a file has been optimized before, which tenonnx does itself.",
        "bench.weight_sharing.__main__",
        of_processes,
        quick=False,
    ),
    "architectures": Area(
        "Two layers of each architecture",
        "*A session* is one of a second process, which opens the plan that the first has kept; "
        "memory is as above.",
        "bench.__main__",
        of_processes,
        ("architectures",),
        needs=NEEDS,
    ),
    "serve": Area(
        "Serving",
        "How long a client of `tenonnx serve` waits, on average and for the slowest of a hundred "
        "requests, where each client sends one after the other. Beside it are KServe's server "
        "(over HTTP and gRPC, with a model of numpy's), the same server without joining requests, "
        "and onnxruntime, whose every process holds the model. *A bare application* of ASGI or "
        "grpcio looks at nothing that it is sent.",
        "bench.serve.__main__",
        of_serving,
        needs=("uvicorn", "tritonclient"),
        beside="the other",
    ),
    "generate": Area(
        "Language models",
        "Folders that onnxruntime-genai's builder wrote, beside onnxruntime-genai: 256 tokens of "
        "prompt and 64 new ones, the likeliest. A process opens a folder that an earlier one has "
        "opened. Rows that name another figure compare tenonnx with itself.",
        "bench.generate.__main__",
        of_generating,
        ("--threads", "1"),
        quick=False,
        needs=("onnxruntime_genai", "tokenizers", "llguidance"),
        beside=GENAI,
    ),
    "capacity": Area(
        "How much fits",
        "Replicas that memory allows, where weights are mapped and where they are copied, and "
        "seconds until all replicas of a cluster are ready, where each node fetches a model of 1 "
        "GB once and where each replica does; computed and simulated from "
        "[measured inputs](../../docs/capacity.md).",
        "bench.capacity.__main__",
        of_capacity,
        quick=False,
        beside="the other",
    ),
}
