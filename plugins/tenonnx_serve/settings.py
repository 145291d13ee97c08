"""What a server is told when it starts: one value, which other processes can be sent."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from tenonnx_serve.access import Access

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a request may ask for; more is refused before memory is asked for.

    Attributes:
        body: Bytes of a body, also once it is decompressed; of a gRPC message.
        elements: Elements of a tensor.
        waiting: Requests to a model that wait or run; another one is told to come again later.
        seconds: How long a request may take, from when it was read; a request may ask for less.
        body_seconds: How long a client may take to send a body.
        idle_seconds: How long a connection may stay open without a request.
    """

    body: int = 256 * MIB
    elements: int = 1 << 28
    waiting: int = 256
    seconds: float = 300.0
    body_seconds: float = 60.0
    idle_seconds: float = 75.0


@dataclass(frozen=True)
class Batching:
    """How requests to a model are joined.

    Attributes:
        largest: Rows of one run; 1 joins none.
        wait: Seconds that a request may wait for others while a thread is free.
    """

    largest: int = 1
    wait: float = 0.0


@dataclass(frozen=True)
class Settings:
    """What a server is told.

    Attributes:
        source: A model's file, a model's folder, or a repository: a folder of those.
        name: What a single model is called; its file's name, or its folder's, if empty.
        host: The address to listen on.
        port: For REST; 0 takes a free one.
        grpc_port: For gRPC; ``None`` does without.
        providers: Names, each with its options, in order of preference; all that are usable if
            empty.
        plugins: Files of plugins to add.
        level: Which graph transforms run.
        without: Transforms not to run.
        intra_op_threads: Threads of a kernel; 0 leaves it to the kernels.
        runs: Runs at once.
        batching: For models whose configuration says nothing of it.
        startup: Models to load at the start; all if ``None``.
        regions: A folder in which workers share which regions of shared memory are registered;
            empty for one process.
        limits: What a request may ask for.
        access: Who may ask.
        log: ``text`` or ``json``: what the log's lines are.
        log_requests: Whether there is one for each request.
        verbosity: 0 for warnings, 1 for what the server does as well, 2 for details.
        trace: Whether requests are traced.
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
    startup: tuple[str, ...] | None = None
    regions: str = ""
    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    log: str = "text"
    log_requests: bool = False
    verbosity: int = 0
    trace: bool = False


def settings_of(said: dict[str, Any]) -> Settings:
    """Returns the settings that ``dataclasses.asdict`` made a dictionary of, sent as JSON."""
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
