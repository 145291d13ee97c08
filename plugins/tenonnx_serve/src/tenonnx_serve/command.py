"""``tenonnx serve``: the command line of the server."""

from __future__ import annotations

import enum
import sys
from typing import Annotated

import typer

from tenonnx.cli import arguments
from tenonnx.cli.opening import check_provider, parse_provider
from tenonnx.cli.output import say
from tenonnx.cli.state import State, state_of
from tenonnx_serve.access import Access
from tenonnx_serve.settings import MIB, Batching, Limits, Settings

HELP = """Serves models over the Open Inference Protocol v2: REST and gRPC.

MODEL is a model's file or a repository. A repository has a folder for each model; versions are
numbered folders in it, each with a model.onnx. A config.pbtxt beside them is read as in Triton.
Folders with a genai_config.json are language models, served by OpenAI's API: /v1/chat/completions,
/v1/completions, /v1/models.
The server is reachable from this machine alone unless --host is given.

\b
Examples:
  tenonnx serve model.onnx
  tenonnx serve models/ --port 8000 --grpc-port 8001 --workers 4
  tenonnx serve model.onnx --batch 16
  tenonnx serve folder --name chat --max-tokens 1000
"""


class LogForm(enum.StrEnum):
    """Formats of the log."""

    TEXT = "text"
    JSON = "json"


def serve(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|REPOSITORY", help="A model's file, or a repository.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option(help="The name of a single model.")] = "",
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port of REST; 0: any free port.", min=0, max=65535)
    ] = 8000,
    grpc_port: Annotated[
        int, typer.Option(help="Port of gRPC; 0: any free port, -1: no gRPC.", min=-1, max=65535)
    ] = 8001,
    batch: Annotated[
        str,
        typer.Option(
            metavar="ROWS[:MILLISECONDS]",
            help="Join requests up to ROWS rows; one waits at most MILLISECONDS for others.",
        ),
    ] = "1",
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Time limit of a request after it is read.", min=0.001
        ),
    ] = Limits.seconds,
    max_body: Annotated[
        int, typer.Option(metavar="MIB", help="Largest body of a request, decompressed.", min=1)
    ] = Limits.body // MIB,
    max_json: Annotated[
        int, typer.Option(metavar="MIB", help="Most JSON in a body; tensors may be binary.", min=1)
    ] = Limits.json // MIB,
    max_connections: Annotated[
        int, typer.Option(help="Most open HTTP connections, per worker.", min=1)
    ] = Limits.connections,
    max_waiting: Annotated[
        int, typer.Option(help="Most requests of a model that wait or run, per worker.", min=1)
    ] = Limits.waiting,
    max_tokens: Annotated[
        int, typer.Option(help="Most tokens of a language model's text; 0: its context.", min=0)
    ] = Limits.tokens,
    rows: Annotated[
        int,
        typer.Option(
            help="Texts of a language model that share a step; 0: as memory allows.",
            min=0,
            max=1024,
        ),
    ] = Settings.rows,
    drafts: Annotated[
        bool,
        typer.Option(
            "--drafts",
            help="Draft tokens where a language model's folder says how.",
        ),
    ] = False,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1, max=1024)] = 1,
    threads: Annotated[
        int, typer.Option(help="Threads of each worker's kernels; 0: cores / workers.", min=0)
    ] = 0,
    drain: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Time for running requests when it stops.", min=0),
    ] = 30.0,
    providers: arguments.Providers = arguments.NO_VALUES,
    level: arguments.LevelChoice = arguments.Level.ALL,
    without: arguments.Without = arguments.NO_VALUES,
    certificate: Annotated[
        str, typer.Option("--tls-cert", metavar="FILE", help="Use TLS with this PEM certificate.")
    ] = "",
    key: Annotated[
        str, typer.Option("--tls-key", metavar="FILE", help="The certificate's private key, PEM.")
    ] = "",
    token_file: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Require the token in this file; or set TENONNX_SERVE_TOKEN.",
        ),
    ] = "",
    control: Annotated[
        bool,
        typer.Option("--control", help="Clients may load and unload models and change settings."),
    ] = False,
    control_token_file: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Clients with this token may; or set TENONNX_SERVE_CONTROL_TOKEN.",
        ),
    ] = "",
    shared_memory: Annotated[
        bool,
        typer.Option("--shared-memory", help="Clients on this machine may name shared memory."),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name by which clients may call the server; repeatable."
        ),
    ] = None,
    log: Annotated[
        LogForm | None,
        typer.Option(
            help="Log format; default: text on a terminal, else json.", show_default=False
        ),
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log each request.")] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="Trace requests with OpenTelemetry.")
    ] = False,
    ignore_unknown: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown", help="Ignore fields of OpenAI's requests that are not known."
        ),
    ] = False,
) -> None:
    """Serve models."""
    from tenonnx_serve.launch import run

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
        rows=rows,
        limits=Limits(
            body=max_body * MIB,
            json=max_json * MIB,
            connections=max_connections,
            waiting=max_waiting,
            tokens=max_tokens,
            seconds=timeout,
        ),
        intra_op_threads=threads,
        access=Access(
            certificate, key, token_file, tuple(allowed_host or ()), control, control_token_file
        ),
        shared_memory=shared_memory,
        log=(log or (LogForm.TEXT if sys.stderr.isatty() else LogForm.JSON)).value,
        log_requests=log_requests,
        verbosity=state.verbosity,
        trace=trace,
        drafts=drafts,
        ignores_unknown=ignore_unknown,
    )
    run(settings, workers, drain, lambda text: say("ready", text))


def _provider(state: State, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    check_provider(state, text)
    name, options = parse_provider(text)
    return name, tuple(options.items())


def parse_batch(text: str) -> Batching:
    """Return the rows and seconds of ``--batch ROWS:MILLISECONDS``.

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
