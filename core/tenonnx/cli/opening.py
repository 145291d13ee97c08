"""Opening a model as the command line asks."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.cli.arguments import Level
from tenonnx.cli.output import note
from tenonnx.cli.timing import timed
from tenonnx.errors import InvalidArgument, NoSuchFile
from tenonnx.plan_cache.files import files
from tenonnx.weights.folder import PLANS

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from tenonnx.cli.state import State
    from tenonnx.interface.profiling import Profiler
    from tenonnx.options import SessionOptions
    from tenonnx.provider import Provider
    from tenonnx.session import InferenceSession


def cached_plan_files() -> list[Path]:
    """Return the files of compiled plans that are kept for later processes, and of captures."""
    return files(PLANS)


@dataclass(frozen=True)
class Request:
    """The options with which a model is opened."""

    providers: Sequence[str] = ()
    level: Level = Level.ALL
    without: Sequence[str] = ()
    roots: Sequence[str] = ()
    threads: int = 0
    check: bool | Mapping[str, float | tuple[float, float]] = False


def parse_provider(text: str) -> tuple[str, dict[str, str]]:
    """Return the name and the options in ``name:option=value,option=value``.

    Raises:
        InvalidArgument: It is not of that form.
    """
    name, _, rest = text.partition(":")
    options = {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise InvalidArgument(
                f"--provider {text}: expected {name}:option=value,option=value, got {part!r} "
                "after the colon"
            )
        options[key.strip()] = value.strip()
    if not name:
        raise InvalidArgument(f"--provider {text!r} names no provider")
    return name, options


def check_provider(state: State, text: str) -> str:
    """Return the name of a provider that ``--provider`` asks for.

    Raises:
        InvalidArgument: There is no such provider, or it has no such option.
    """
    from tenonnx.plugins.choosing import make_options

    name, options = parse_provider(text)
    provider = state.plugins.provider(name)
    make_options(provider.Options, options, provider.name)
    return name


def check_names(state: State, request: Request) -> None:
    """Refuse providers and transforms that there are not, before any work is done for them.

    Raises:
        InvalidArgument: There is no such provider, option of a provider, or transform.
    """
    from tenonnx.options import GraphOptimizationLevel
    from tenonnx.transforms import select

    for text in request.providers:
        check_provider(state, text)
    known = state.plugins.transforms.values()
    select(known, GraphOptimizationLevel.ORT_ENABLE_ALL, request.without)


def usable_providers(state: State) -> list[type[Provider]]:
    """Return the providers that work here, in the order in which they are preferred."""
    from tenonnx.provider import why_unusable

    return [p for p in state.plugins.providers.values() if why_unusable(p) is None]


def session_options(state: State, request: Request) -> SessionOptions:
    """Return the session options that a request stands for."""
    from tenonnx.options import GraphOptimizationLevel, SessionOptions

    level = {
        Level.NONE: GraphOptimizationLevel.ORT_DISABLE_ALL,
        Level.BASIC: GraphOptimizationLevel.ORT_ENABLE_BASIC,
        Level.EXTENDED: GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
        Level.LAYOUT: GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
        Level.ALL: GraphOptimizationLevel.ORT_ENABLE_ALL,
    }[request.level]
    return SessionOptions(
        graph_optimization_level=level,
        disabled_transforms=tuple(request.without),
        allowed_roots=tuple(request.roots),
        intra_op_num_threads=request.threads,
        check=request.check,
        plugins=state.plugins,
    )


def check_readable(model: Any) -> None:
    """Refuse a file that cannot be read; loading says more about one that is not there."""
    if isinstance(model, str) and Path(model).is_file():
        try:
            Path(model).open("rb").close()
        except OSError as error:
            raise NoSuchFile(f"{model} cannot be read: {error.strerror}") from error


def open_session(
    state: State, model: Any, request: Request, *, as_programs_do: bool = False
) -> tuple[InferenceSession, float]:
    """Return a session and the seconds it took to build.

    Args:
        state: The plug-ins to use.
        model: Its path, or what else sessions take.
        request: How to open it.
        as_programs_do: Use a cached plan, or cache one. A command that shows how a model is
            compiled has it compiled. The process's plug-ins, which are also those of ``state``,
            are then part of the plan's key instead of the options; a ``--plugin FILE`` among them
            means that no plan is cached.
    """
    from tenonnx.session import InferenceSession

    check_readable(model)
    options = session_options(state, request)
    if as_programs_do:
        options = dataclasses.replace(options, plugins=None)
    providers = [parse_provider(text) for text in request.providers]
    for record in state.plugins.observing():
        note(f"the observer of {record.name} is active: runs take longer")
    return timed(lambda: InferenceSession(model, options, providers or None))


def profiler_of(state: State, session: InferenceSession) -> Profiler:
    """Return what watches a session's runs once it is told to; it writes no trace."""
    from tenonnx.interface.profiling import Profiler

    now = time.perf_counter_ns()
    return Profiler(session.plan, state.plugins, now, now, now, "uri")


def graph_of(state: State, session: InferenceSession, model: str, request: Request) -> ir.Graph:
    """Return the graph that has a session's inputs; it compiles nothing if the plan is cached."""
    read: ir.Model = (
        session.model if session._model.is_open else load_original(state, model, request)
    )
    return read.graph


def declared_dtypes(graph: ir.Graph) -> dict[str, np.dtype[Any]]:
    """Return the dtype of each output's elements, also in sequences and maps, if it is known."""
    import onnx_ir as ir

    from tenonnx.interface.signature import describe

    found = {}
    for value in graph.outputs:
        arg = describe(value)
        if (element := re.search(r"tensor\((\w+)\)", arg.type)) is not None:
            found[arg.name] = ir.DataType[element[1].upper()].numpy()
    return found


def load_original(state: State, path: str, request: Request) -> ir.Model:
    """Return a model as its file has it; its weights are those of a session that opens it."""
    from tenonnx.formats import load_model
    from tenonnx.weights.registry import default_registry

    check_readable(path)
    formats = tuple(state.plugins.formats.values())
    return load_model(path, default_registry(), formats, request.roots)
