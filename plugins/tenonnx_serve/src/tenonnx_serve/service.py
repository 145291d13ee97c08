"""The server in a worker: the supervisor tells it which models to load and when to listen."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tenonnx
from tenonnx_serve import logs, sockets, switches
from tenonnx_serve.counts import Counts
from tenonnx_serve.errors import ServeError
from tenonnx_serve.model import Model
from tenonnx_serve.repository import Change
from tenonnx_serve.requests import Parameters
from tenonnx_serve.rest import Answer, Call
from tenonnx_serve.server import Server
from tenonnx_serve.sessions import add_plugins
from tenonnx_serve.settings import Settings, settings_of
from tenonnx_serve.statistics import Spent, summed
from tenonnx_serve.worker import SupervisorControl

if TYPE_CHECKING:
    from tenonnx_serve.openai.language_model import LanguageModel

NS = 1e-9


class Shared:
    """The loading and unloading of models in all workers, for a client of one of them."""

    def __init__(self, control: SupervisorControl) -> None:
        self._control = control

    async def load(self, name: str) -> None:
        """Load a model, or load its present files again."""
        await self._control.change("load", name, {})

    async def unload(self, name: str) -> None:
        """Unload a model."""
        await self._control.change("unload", name, {})

    async def log_settings(self, asked: Parameters) -> Parameters:
        """Change the log's settings, and return them."""
        if asked:
            await self._control.switch(asked)
        return switches.log({})

    async def statistics(self) -> list[dict[str, Any]]:
        """Return the statistics of each loaded version."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for worker in (await self._control.collect())["workers"]:
            for one in worker.get("now", {}).get("statistics", []):
                key = (one["name"], one["version"])
                found[key] = summed(found[key], one) if key in found else one
        return list(found.values())


class ServerService:
    """A worker's server.

    Args:
        control: Calls the supervisor.
    """

    def __init__(self, control: SupervisorControl) -> None:
        self._control = control
        self._counts = Counts()
        self._server: Server | None = None
        self._settings: Settings

    @property
    def _running(self) -> Server:
        assert self._server is not None, "the supervisor starts it first"
        return self._server

    async def start(
        self, settings: dict[str, Any], models: Mapping[str, Mapping[str, Any]] | None
    ) -> dict[str, str]:
        """Load models and warm them up; return the digests of their files."""
        self._settings = told = settings_of(settings)
        logs.start(told.log, told.verbosity, told.log_requests)
        add_plugins(told)
        self._server = server = Server(told, shared=True)
        server.core.control = shared = Shared(self._control)
        server.core.log_settings = shared.log_settings
        server.core.observers.append(self._observe)
        server.core.counts = self._counts
        server.app.routes.add("GET", "/metrics", self._metrics)
        server.app.routes.add("GET", "/", self._page)
        names = await server.core.repository.refresh()
        wanted = told.startup if models is None else tuple(models)
        digests = {}
        for name in names if wanted is None else wanted:
            try:
                change = await server.core.repository.prepare("load", name)
            except ServeError as error:
                raise error.__cause__ or error from None
            self._apply(change)
            digests[name] = change.digest
        # Objects that exist by now live on: the collector need not visit them again.
        gc.collect()
        gc.freeze()
        return digests

    def _apply(self, change: Change) -> None:
        self.commit(change)
        self.settle(change)

    async def listen(self) -> None:
        """Begin to take requests."""
        told = self._settings
        await self._running.listen(sockets.listening(told.host, told.port))

    def agreed(self) -> None:
        """Note that all workers serve."""
        self._running.core.repository.ready = True

    async def prepare(
        self, action: str, name: str, parameters: dict[str, Any]
    ) -> tuple[Change, str]:
        """Do the part of a change that can fail."""
        del parameters
        change = await self._running.core.repository.prepare(action, name)
        return change, change.digest

    def commit(self, prepared: Change) -> None:
        """Make a change visible to requests."""
        self._running.core.repository.commit(prepared)

    def settle(self, prepared: Change) -> None:
        """Complete a change that all workers have committed."""
        self._running.core.repository.settle(prepared)

    def discard(self, prepared: Change) -> None:
        """Drop a change."""
        self._running.core.repository.discard(prepared)

    def switch(self, asked: Parameters) -> None:
        """Change the log's settings."""
        switches.log(asked)

    async def snapshot(self) -> dict[str, Any]:
        """Return the counts, the requests that wait or run, and models' statistics."""
        now: dict[str, Any] = {"in_flight": 0, "statistics": []}
        if self._server is not None:
            repository = self._server.core.repository
            queues = [q for entry in repository.entries.values() for q in entry.versions.values()]
            now["in_flight"] = sum(queue.waiting for queue in queues)
            now["texts"] = [
                {"model": each.model.name, "version": each.model.version, **each.load()}
                for each in repository.language_models()
            ]
            now["statistics"] = await repository.statistics()
        return {"counted": self._counts.snapshot(), "now": now}

    async def drain(self, seconds: float) -> None:
        """Stop listening and finish what has begun, for so many seconds at most."""
        if self._server is not None:
            await self._server.stop(seconds)

    def _observe(self, model: Model | LanguageModel, spent: Spent | None, ns: int) -> None:
        counts = self._counts.of(model.name, model.version)
        if spent is None:
            counts.failed += 1
            return
        run, stages = spent.execution, counts.stages
        stages["request"].observe(ns * NS)
        stages["decode"].observe(spent.decoded * NS)
        stages["queue"].observe(spent.queue * NS)
        stages["compute"].observe((run.ran - run.began) * NS)
        stages["encode"].observe(spent.encoded * NS)
        if not run.counted:
            run.counted = True
            counts.batches.observe(run.rows)

    async def _metrics(self, _: Call) -> Answer:
        """Answer with metrics of all workers."""
        from tenonnx_serve.metrics import CONTENT_TYPE, exposition

        collected = await self._control.collect()
        return Answer(exposition(collected), [(b"content-type", CONTENT_TYPE)])

    async def _page(self, _: Call) -> Answer:
        """Answer with the page."""
        from tenonnx_serve.page import HEADERS, page

        collected = await self._control.collect()
        models = self._running.core.repository.index()
        return Answer(page(collected, models, tenonnx.__version__), HEADERS)
