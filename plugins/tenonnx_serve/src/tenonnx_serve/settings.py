"""A server's settings: one value, which other processes can be sent."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tenonnx_serve.access import Access

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits of a request; a larger one is refused before memory is allocated.

    Attributes:
        body: Bytes of a body, also after it is decompressed; of a gRPC message.
        json: Bytes of JSON in a body; binary tensors follow it.
        bodies: Bytes of all bodies that are being read at a time.
        connections: Open connections of HTTP.
        elements: Elements of a tensor.
        waiting: Requests to a model that wait or run; more are refused until there is room.
        tokens: Tokens that a language model generates for one text; 0 for its context.
        seconds: How long a request may take, after it is read; a request may ask for less.
        body_seconds: How long a client may take to send a body.
        idle_seconds: How long a connection may stay open without a request.
    """

    body: int = 256 * MIB
    json: int = 16 * MIB
    bodies: int = 1024 * MIB
    connections: int = 1024
    elements: int = 1 << 28
    waiting: int = 256
    tokens: int = 0
    seconds: float = 300.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0


@dataclass(frozen=True)
class Batching:
    """The joining of requests to a model.

    Attributes:
        largest: Rows of one run; 1 joins none.
        wait: Seconds that a request may wait for others while a thread is free.
    """

    largest: int = 1
    wait: float = 0.0


@dataclass(frozen=True)
class Settings:
    """A server's settings.

    Attributes:
        source: A model's file, a model's folder, or a repository: a folder of those.
        name: The name of a single model; if empty, its file's or its folder's.
        host: The address to listen on.
        port: The port of REST; 0 takes any free one.
        grpc_port: The port of gRPC; ``None`` for no gRPC.
        providers: Names, each with its options, in order of preference; all usable ones if
            empty.
        plugins: Files of plug-ins to add.
        level: Which graph transforms run.
        without: Transforms not to run.
        intra_op_threads: Threads of a kernel; 0 lets kernels choose.
        runs: Runs at once.
        batching: For models whose configuration does not set it.
        rows: Texts of a language model that share a step; 0 for as many as memory allows.
        startup: Models to load at the start; all if ``None``.
        regions: A folder in which workers share their list of regions of shared memory; empty for
            one process.
        shared_memory: Whether clients on this machine may register shared memory.
        limits: Limits of a request.
        access: The access control.
        log: ``text`` or ``json``: the format of the log's lines.
        log_requests: Whether to log each request.
        verbosity: 0 for warnings, 1 for the server's actions as well, 2 for details.
        trace: Whether requests are traced.
        drafts: Whether a language model whose folder says how generates by drafted tokens.
        ignores_unknown: Whether fields that OpenAI's API here does not have are ignored.
    """

    source: str
    name: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = 8001
    providers: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    plugins: tuple[str, ...] = ()
    level: str = "all"
    without: tuple[str, ...] = ()
    intra_op_threads: int = 0
    runs: int = 2
    batching: Batching = Batching()
    rows: int = 4
    startup: tuple[str, ...] | None = None
    regions: str = ""
    shared_memory: bool = False
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    log: str = "text"
    log_requests: bool = False
    verbosity: int = 0
    trace: bool = False
    drafts: bool = False
    ignores_unknown: bool = False


def settings_of(said: dict[str, Any]) -> Settings:
    """Return settings from the dictionary of ``dataclasses.asdict``, sent as JSON."""
    defaults = Settings("")
    nested = {one.name: type(getattr(defaults, one.name)) for one in fields(Settings)}
    return Settings(
        **{
            name: nested[name](**value) if is_dataclass(nested[name]) else _tuples(value)
            for name, value in said.items()
        }
    )


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
