"""``tenonnx serve``: models over the Open Inference Protocol v2, REST and gRPC.

A request's way, in one process; what stands in brackets is a module::

    HTTP ─▶ [rest] routes, reads a body ─▶ [rest_infer] JSON and binary ─┐
    gRPC ─▶ [grpc_service] ──────────────▶ [grpc_infer] protobuf ────────┤
                                                                         ▼
      [requests] protocol-neutral: arrays by name, made by [tensors] against the model's specs
                                                                         ▼
      [core] finds the model in the [repository], refuses what is too much, counts
                                                                         ▼
      [batching] joins requests of one signature ─▶ [model] one InferenceSession
                                                    in a thread of [threads]

Both protocols run in one event loop, which decodes, encodes and waits; models run in a few threads.
Nothing of a request is believed: shapes and sizes are checked against the model's inputs and the
limits of [settings] before memory is asked for, names are looked up and never become paths.

[server] starts all of it on sockets that it is given, and stops it. Whoever runs several processes
gives each its sockets, and sets ``core.control``, by which models are loaded and unloaded.
"""

from __future__ import annotations

from tenonnx import hookimpl
from tenonnx.cli import subcommands
from tenonnx.hookspecs import RegisterCommands


@hookimpl
def register_commands(register: RegisterCommands) -> None:
    """Add the subcommand; the server's libraries are imported when it runs."""
    register(subcommands(serve="tenonnx_serve.command"))
