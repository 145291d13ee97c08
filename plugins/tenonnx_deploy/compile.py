"""``tenonnx compile``: a model, its weights and its plan in one file to ship."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import typer

from tenonnx import InvalidArgument
from tenonnx.cli import arguments
from tenonnx.cli.opening import Request, check_readable, parse_provider, session_options
from tenonnx.cli.output import check_targets, duration, emit_json, lines, progress, size
from tenonnx.cli.state import state_of

HELP = """Writes a model, its weights and its compiled plan into one file to ship.

A session that trusts the file opens it without reading the graph, and maps the weights from it.
The file works on machines with the same processor, number of cores, tenonnx, Python, numpy,
plug-ins and options. Elsewhere it is refused, with a message that says what differs.

The plan decides what code runs. So trust only files that you, or somebody you trust, wrote: with
SessionOptions(trust_compiled_plan=True), or by listing their folder in TENONNX_TRUST_COMPILED.
A session that does not trust the file opens the model in it as any other model.

\b
Examples:
  tenonnx compile model.onnx
  tenonnx compile model.onnx -o app/model.tenonnx --provider cpu --threads 4
  TENONNX_TRUST_COMPILED=/app python serve.py
"""


def compile(  # noqa: A001 - the subcommand's name
    context: typer.Context,
    model: arguments.Model,
    target: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="The file to write; default: MODEL.tenonnx."
        ),
    ] = "",
    force: arguments.Force = False,
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    roots: arguments.Roots = arguments.NO_VALUES,
    threads: Annotated[
        int, typer.Option(min=0, help="intra_op_num_threads of the sessions that open it.")
    ] = 0,
    as_json: arguments.Json = False,
) -> None:
    """Compile a model into a file."""
    from tenonnx.plan_cache.compiling import ENDING, compile_model

    state = state_of(context)
    if state.files:
        raise InvalidArgument(
            "a compiled file cannot contain plug-ins of --plugin",
            hint="Install the plug-in, here and on the machine that opens the file.",
        )
    check_readable(model)
    request = Request(providers, level, without, roots, threads)
    options = dataclasses.replace(session_options(state, request), plugins=None)
    asked = [parse_provider(text) for text in providers]
    path = Path(target) if target else Path(model).with_suffix(ENDING)
    check_targets(path, force=force)
    start = time.perf_counter()
    with progress(1.0) as tell:
        tell(f"compiling {model}", 0)
        facts = compile_model(model, path, options, asked or None, overwrite=force)
    seconds, nbytes = time.perf_counter() - start, path.stat().st_size
    if as_json:
        emit_json({"written": {str(path): nbytes}, "seconds": seconds, "facts": facts})
    else:
        lines(f"wrote {path}, {size(nbytes)}, in {duration(seconds)}")
