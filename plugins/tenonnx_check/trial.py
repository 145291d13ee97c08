"""A model, the reference's values of it, and the process that runs parts of it."""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tenonnx.cli.arguments import Level
from tenonnx.cli.opening import Request, check_names, load_original, parse_provider
from tenonnx.cli.state import State
from tenonnx.errors import Fail, InvalidArgument
from tenonnx_bench.peers import ONNXRUNTIME, is_installed
from tenonnx_check.child import Child, folder_of
from tenonnx_check.outcome import Kind, Outcome
from tenonnx_check.parts import Whole
from tenonnx_check.worker import VALUES

Against = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="NAME:OPTION=VALUE,...",
        help="The reference: a provider, without transforms, or onnxruntime.",
    ),
]
Relative = Annotated[
    float | None, typer.Option("--rtol", min=0, help="Allowed relative difference, for every type.")
]
Absolute = Annotated[
    float | None, typer.Option("--atol", min=0, help="Allowed absolute difference, for every type.")
]
NodeTolerances = Annotated[
    list[str],
    typer.Option(
        "--node-tolerance",
        metavar="NODE=RTOL[,ATOL]",
        help="Allowed difference of a node, by its name or operator, or a pattern; repeatable.",
    ),
]
RunSeconds = Annotated[
    float,
    typer.Option("--run-seconds", metavar="SECONDS", min=0.1, help="A longer run counts as hung."),
]


@dataclass(frozen=True)
class Settings:
    """Options for opening and comparing models.

    Attributes:
        state: The plug-ins to use.
        subject: How the model is opened.
        against: How the reference opens it.
        tolerances: ``rtol`` and ``atol`` where they are not those of the dtypes.
        of_nodes: ``NODE=RTOL[,ATOL]`` for some nodes.
        seconds: The longest time of a run.
    """

    state: State
    subject: Request
    against: Request
    tolerances: Mapping[str, float]
    of_nodes: Sequence[str]
    seconds: float

    def child(self, request: Request) -> Child:
        """Return a process that opens models so."""
        options = [p for name, value in self.tolerances.items() for p in (f"--{name}", str(value))]
        options += [part for each in self.of_nodes for part in ("--node-tolerance", each)]
        return Child(self.state, request, options, self.seconds)


def settings(
    state: State,
    subject: Request,
    against: str,
    tolerances: tuple[float | None, float | None, Sequence[str]],
    seconds: float,
) -> Settings:
    """Return settings, whose names are checked.

    Args:
        state: The plug-ins to use.
        subject: How the model is opened.
        against: The reference.
        tolerances: What ``--rtol``, ``--atol`` and ``--node-tolerance`` say.
        seconds: The longest time of a run.

    Raises:
        InvalidArgument: No such provider, option or transform, or onnxruntime is not installed.
    """
    check_names(state, subject)
    reference = Request((against,), Level.NONE, (), subject.roots, subject.threads)
    if parse_provider(against)[0] != ONNXRUNTIME:
        check_names(state, reference)
    elif not is_installed(ONNXRUNTIME):
        raise InvalidArgument(f"{ONNXRUNTIME} is not installed", hint=f"pip install {ONNXRUNTIME}")
    *both, of_nodes = tolerances
    parse_tolerances(of_nodes)
    given = zip(("rtol", "atol"), both, strict=True)
    known = {name: value for name, value in given if isinstance(value, float)}
    return Settings(state, subject, reference, known, of_nodes, seconds)


def parse_tolerances(texts: Sequence[str]) -> dict[str, float | tuple[float, float]]:
    """Return tolerances by nodes, of texts as ``NODE=RTOL[,ATOL]``.

    Raises:
        InvalidArgument: One is not of that form.
    """
    found: dict[str, float | tuple[float, float]] = {}
    for text in texts:
        name, _, numbers = text.rpartition("=")
        relative, comma, absolute = numbers.partition(",")
        try:
            allowed = (float(relative), float(absolute)) if comma else float(relative)
        except ValueError:
            allowed = -1.0
        if not name or min(allowed if isinstance(allowed, tuple) else (allowed,)) < 0:
            raise InvalidArgument(f"--node-tolerance {text}: expected NODE=RTOL or NODE=RTOL,ATOL")
        found[name] = allowed
    return found


class Trial:
    """A trial of parts of one model.

    Attributes:
        whole: The model.
        path: Its file.
        folder: Where its values are.
        subject: The process that runs it.
    """

    def __init__(self, whole: Whole, path: str, folder: str, subject: Child) -> None:
        self.whole, self.path, self.folder, self.subject = whole, path, folder, subject

    def ask(
        self, numbers: Sequence[int], apart: bool = False, wanted: Sequence[str] | None = None
    ) -> Outcome:
        """Return how some nodes end, on the reference's values of what they read."""
        asked = {"numbers": [int(number) for number in numbers], "apart": apart, "wanted": wanted}
        return self.subject.ask(self.path, self.folder, **asked)

    def whole_model(self, *, checked: bool = False) -> Outcome:
        """Return how all nodes end; with a check of every step, if it is to be ``checked``."""
        numbers = list(range(len(self.whole.nodes)))
        return self.subject.ask(self.path, self.folder, numbers=numbers, checked=checked)

    def values(self) -> dict[str, Any]:
        """Return the reference's values by name."""
        found: dict[str, Any] = pickle.loads(Path(self.folder, VALUES).read_bytes())
        return found


def store(reference: Child, path: str, folder: str) -> Outcome:
    """Have the reference add the values of a model's nodes to its inputs in a folder."""
    return reference.ask(path, folder, store=True)


@contextlib.contextmanager
def trial(
    how: Settings,
    model: str,
    feeds_of: Callable[[Any], Mapping[str, Any]],
    show: Callable[[str, float], None],
) -> Iterator[tuple[Trial, Child]]:
    """Open a trial of a model, and yield it with the reference's process.

    Args:
        how: How models are opened and compared.
        model: The model's path.
        feeds_of: Returns inputs for a graph.
        show: Called with what is being done, and how much of it is.

    Raises:
        Fail: The reference cannot run the model.
    """
    read = load_original(how.state, model, how.subject)
    feeds = feeds_of(read.graph)
    with (
        tempfile.TemporaryDirectory(prefix="tenonnx-check-") as where,
        contextlib.closing(how.child(how.against)) as reference,
        contextlib.closing(how.child(how.subject)) as subject,
    ):
        folder = folder_of(feeds, where)
        show("the reference runs the model", 0.0)
        stored = store(reference, model, folder)
        if stored.kind is not Kind.FINE:
            raise Fail(
                f"the reference, {how.against.providers[0]}, cannot run the model: {stored.text}",
                hint="name another one: --against onnxruntime",
            )
        yield Trial(Whole(read), model, folder, subject), reference
