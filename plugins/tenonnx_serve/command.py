"""``tenonnx serve``: the command line of the server."""

from __future__ import annotations

from typing import Annotated

import typer

from tenonnx.cli import arguments
from tenonnx.cli.opening import check_provider, parse_provider
from tenonnx.cli.output import say
from tenonnx.cli.state import State, state_of
from tenonnx_serve.settings import Batching, Settings

HELP = """Serves models over the Open Inference Protocol v2: REST and gRPC.

MODEL is a model's file, or a repository: a folder with a folder for each model, in which versions
are folders with numbers that hold a model.onnx. A config.pbtxt beside them is read as Triton does.
The server listens on this machine alone unless --host says otherwise.

\b
Examples:
  tenonnx serve model.onnx
  tenonnx serve models/ --port 8000 --grpc-port 8001 --workers 4
  tenonnx serve model.onnx --batch 16
"""


def serve(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|REPOSITORY", help="A model's file, or a repository.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option(help="What a single model is called.")] = "",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="For REST; 0 takes a free one.", min=0)] = 8000,
    grpc_port: Annotated[
        int, typer.Option(help="For gRPC; 0 takes a free one, -1 does without.", min=-1)
    ] = 8001,
    batch: Annotated[
        str,
        typer.Option(
            metavar="ROWS[:MILLISECONDS]",
            help="Join requests up to so many rows; let one wait so long for others.",
        ),
    ] = "1",
    providers: arguments.Providers = arguments.NOTHING,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NOTHING,
) -> None:
    """Serves models."""
    state = state_of(context)
    settings = Settings(
        source=source,
        name=name,
        host=host,
        port=port,
        grpc_port=None if grpc_port < 0 else grpc_port,
        providers=tuple(_provider(state, text) for text in providers),
        plugins=tuple(state.files),
        level=level.value,
        without=tuple(without),
        batching=parse_batch(batch),
    )
    try:
        from tenonnx_serve.server import run
    except ImportError as error:
        from tenonnx import EPFail

        raise EPFail(
            f"the server's libraries are not installed: {error}",
            hint="pip install 'tenonnx[serve]'",
        ) from error
    say("note", f"REST on http://{host}:{port}")
    run(settings)


def _provider(state: State, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    check_provider(state, text)
    name, options = parse_provider(text)
    return name, tuple(options.items())


def parse_batch(text: str) -> Batching:
    """Returns what ``--batch ROWS:MILLISECONDS`` says.

    Raises:
        InvalidArgument: It is not of that form.
    """
    rows, _, wait = text.partition(":")
    try:
        batching = Batching(int(rows), float(wait or 0) / 1000)
    except ValueError:
        batching = Batching(0)
    if batching.largest < 1 or not 0 <= batching.wait <= 60:
        from tenonnx import InvalidArgument

        raise InvalidArgument(f"--batch {text}: expected ROWS or ROWS:MILLISECONDS")
    return batching
