"""Starts a server of several workers, from its settings."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import tempfile
from collections.abc import Callable
from typing import Any

from tenonnx.process.cores import available_cores
from tenonnx_serve import access, layout, logs, sockets
from tenonnx_serve.settings import Settings
from tenonnx_serve.supervisor import Deployment, Supervisor

log = logging.getLogger("tenonnx.serve")

TARGET = "tenonnx_serve.service:ServerService"


def run(settings: Settings, workers: int, drain_seconds: float, say: Callable[[str], None]) -> None:
    """Serve until a signal stops it.

    Args:
        settings: Each worker's settings. If they leave the threads open, a worker has its share of
            the cores.
        workers: How many workers.
        drain_seconds: How long running requests may take when the server stops.
        say: Prints a line when it is ready.

    Raises:
        TenonnxError: It cannot start.
    """
    settings.access.check()
    logs.start(settings.log, settings.verbosity, settings.log_requests)
    if danger := access.warning(settings.host, settings.access):
        log.warning("%s", danger)
    if not layout.find_models(settings.source, settings.name):
        log.warning("%s", layout.advice(settings.source))
    threads = settings.intra_op_threads or max(1, available_cores() // workers)
    with tempfile.TemporaryDirectory(prefix="tenonnx-regions-") as regions:
        told = dataclasses.replace(settings, intra_op_threads=threads, regions=regions)
        deployment = Deployment(TARGET, dataclasses.asdict(told), workers, threads, drain_seconds)
        asyncio.run(Supervisor(deployment, lambda found: say(_where(settings, found))).run())


def _where(settings: Settings, found: dict[str, Any]) -> str:
    scheme = "https" if settings.access.certificate else "http"
    text = f"REST on {scheme}://{sockets.address(found['host'], found['port'])}"
    if found["grpc_port"] is not None:
        text += f", gRPC on {sockets.address(found['host'], found['grpc_port'])}"
    return text
