"""``tenonnx serve``: models over the Open Inference Protocol v2, REST and gRPC, and OpenAI's API.

A request's way in one process; names in brackets are modules::

    HTTP ─▶ [rest] routes, reads a body ─▶ [rest_infer] JSON and binary ─┐
    gRPC ─▶ [grpc_service] ──────────────▶ [grpc_infer] protobuf ────────┤
                                                                         ▼
      [requests] protocol-neutral: arrays by name, made by [tensors] against the model's specs
                                                                         ▼
      [core] finds the model in the [repository], refuses what is too much, counts
                                                                         ▼
      [batching] joins requests of one signature ─▶ [model] one InferenceSession
                                                    in a thread of [threads]

Language models have a way of their own, :mod:`tenonnx_serve.openai`.

Both protocols run in one event loop, which decodes, encodes and waits; models run in a few threads.
Requests are not trusted: shapes and sizes are checked against the model's inputs and the limits of
[settings] before memory is allocated, and names are looked up and never become paths.

[server] starts all of it on given sockets, and stops it. With several processes, the supervisor
gives each process its sockets and sets ``core.control``, which loads and unloads models.
"""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommand; the server's libraries are imported when it runs."""
    register(subcommands(serve="tenonnx_serve.command"))
