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
from tenonnx.cli.output import duration, emit_json, lines, progress, size
from tenonnx.cli.state import state_of

HELP = """Writes a model, its weights and a plan of it into one file to ship.

A session that trusts the file opens it without reading the graph, as it opens a plan that an
earlier one kept; weights are mapped from it. The file fits machines with the same processor, as
many cores, and the same tenonnx, Python, numpy, plug-ins and options; elsewhere it is refused with
what differs. Who trusts it says SessionOptions(trust_compiled_plan=True), or lists its folder in
TENONNX_TRUST_COMPILED. Say so of files that you or somebody you trust wrote, as of code: the plan
decides what runs. Whoever does not say so opens a model like any other.

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
            "--output", "-o", metavar="FILE", help="The file to write; MODEL.tenonnx if none."
        ),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    providers: arguments.Providers = arguments.NOTHING,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NOTHING,
    roots: arguments.Roots = arguments.NOTHING,
    threads: Annotated[
        int, typer.Option(min=0, help="What sessions say as intra_op_num_threads.")
    ] = 0,
    as_json: arguments.Json = False,
) -> None:
    """Compiles a model into a file."""
    from tenonnx.compiling import ENDING, compile_model

    state = state_of(context)
    if state.files:
        raise InvalidArgument(
            "a compiled file cannot have plug-ins of --plugin in it",
            hint="Install the plug-in, as the machine that opens the file has to.",
        )
    check_readable(model)
    request = Request(providers, level, without, roots, threads)
    options = dataclasses.replace(session_options(state, request), plugins=None)
    asked = [parse_provider(text) for text in providers]
    path = Path(target) if target else Path(model).with_suffix(ENDING)
    start = time.perf_counter()
    with progress(1.0) as tell:
        tell(f"compiling {model}", 0)
        facts = compile_model(model, path, options, asked or None, overwrite=force)
    seconds, nbytes = time.perf_counter() - start, path.stat().st_size
    if as_json:
        emit_json({"written": {str(path): nbytes}, "seconds": seconds, "facts": facts})
    else:
        lines(f"wrote {path}, {size(nbytes)}, in {duration(seconds)}")
