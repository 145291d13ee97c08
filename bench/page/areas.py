"""The areas of the page: what measures each, and what reads its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from bench.architectures import NEEDS
from bench.corners.__main__ import TABLE as CORNERS
from bench.cpu.__main__ import CPU
from bench.page.figures import Reader, of_first_runs, of_processes, of_table
from bench.throughput.__main__ import TABLE as THROUGHPUT

WEIGHTS = ("external-1g", "inline-unaligned-1g", "dispatch", "tied-if-1g")


@dataclass(frozen=True)
class Area:
    """A benchmark whose results are on the page; their files have its name.

    Attributes:
        title: The heading.
        about: What the ratio is of.
        module: Whose ``main`` measures it.
        read: Reads its file.
        arguments: Of ``main``.
        quick: Whether it takes ``--quick``.
        needs: Packages that measuring it needs.
    """

    title: str
    about: str
    module: str
    read: Reader
    arguments: tuple[str, ...] = ()
    quick: bool = True
    needs: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """What measures it alone."""
        name = self.module.removeprefix("bench.").removesuffix("__main__").rstrip(".")
        return " ".join(filter(None, ["python -m bench", name, *self.arguments]))

    def missing(self, *, quick: bool) -> str:
        """Says what keeps it from being measured."""
        needed = [name for name in self.needs if not find_spec(name)]
        if needed:
            return f"needs {', '.join(needed)}"
        return "has no small models" if quick and not self.quick else ""

    def measure(self, output: str, *, quick: bool) -> int:
        """Measures it; returns 0 if all bounds hold."""
        main: Callable[[list[str]], Any] = import_module(self.module).main
        return int(main([*self.arguments, *["--quick"] * quick, "--output", output]))


AREAS: Mapping[str, Area] = {
    "cpu": Area("Whole models", "seconds of a run", "bench.cpu.__main__", of_table(CPU)),
    "corners": Area(
        "What few models have", "seconds of a run", "bench.corners.__main__", of_table(CORNERS)
    ),
    "first": Area(
        "The first answer of a process",
        "seconds of the import, the session and the first run",
        "bench.first.__main__",
        of_first_runs,
    ),
    "throughput": Area(
        "Many runs at once",
        "seconds per run of all together",
        "bench.throughput.__main__",
        of_table(THROUGHPUT),
    ),
    "weights": Area(
        "Large weights",
        "seconds, and private memory",
        "bench.__main__",
        of_processes,
        (*WEIGHTS, "--title", "weights"),
    ),
    "weight_sharing": Area(
        "Shared weights",
        "seconds, and private memory",
        "bench.weight_sharing.__main__",
        of_processes,
        quick=False,
    ),
    "architectures": Area(
        "Two layers of each architecture",
        "seconds, and private memory",
        "bench.__main__",
        of_processes,
        ("architectures",),
        needs=NEEDS,
    ),
}
