"""The models that are served: what lies there, what of it is loaded, loading and unloading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenonnx import NoSuchFile, TenonnxError
from tenonnx_serve import config, layout
from tenonnx_serve.batching import Queue
from tenonnx_serve.errors import Missing, ServeError, Unavailable, Unsupported
from tenonnx_serve.layout import Found
from tenonnx_serve.model import Model
from tenonnx_serve.opening import open_session
from tenonnx_serve.requests import shown
from tenonnx_serve.settings import Settings
from tenonnx_serve.threads import Threads
from tenonnx_serve.warming import warm_up

log = logging.getLogger("tenonnx.serve")

READY, LOADING, UNLOADING, UNAVAILABLE = "READY", "LOADING", "UNLOADING", "UNAVAILABLE"


@dataclass
class Entry:
    """A model's state.

    Attributes:
        versions: Those that are loaded, by number.
        state: Of the whole.
        reason: Why it is not ready.
    """

    versions: dict[int, Queue] = field(default_factory=dict)
    state: str = UNAVAILABLE
    reason: str = ""

    @property
    def latest(self) -> Queue | None:
        """The loaded version with the highest number."""
        return self.versions[max(self.versions)] if self.versions else None


@dataclass(frozen=True)
class Change:
    """A model that was loaded and waits to be served, or that is to be unloaded.

    Attributes:
        name: The model's.
        versions: Those that are loaded; none to unload it.
        digest: Of the state of the files that they were loaded from.
    """

    name: str
    versions: dict[int, Model]
    digest: str = ""


def refuse_parameters(given: Any) -> None:
    """Refuses what a client wants a model to be loaded with: models are as they lie there.

    Raises:
        Unsupported: It wants something.
    """
    if given:
        raise Unsupported(
            f"a model is loaded as it lies in the repository, not with {shown(sorted(given))}"
        )


class Repository:
    """The models of a server. Its methods are called in the event loop's thread.

    A load that fails leaves what was loaded before as it was. Runs of a version that is replaced
    or unloaded end as if it were there.

    Args:
        settings: Where the models lie, and how to open them.
        queue_of: Makes the queue of a model that was loaded.
    """

    def __init__(self, settings: Settings, queue_of: Callable[[Model], Queue]) -> None:
        self.settings = settings
        self._queue_of = queue_of
        self.ready = False
        self.entries: dict[str, Entry] = {}
        self._loader = Threads(1, "tenonnx-load")
        self._lock = asyncio.Lock()

    def find(self, name: str, version: str = "") -> Queue:
        """Returns the queue of a model that is loaded.

        Raises:
            Missing: There is none of that name, or no such version.
            Unavailable: It is not loaded.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise Missing(f"there is no model {shown(name)}")
        if not version:
            if (queue := entry.latest) is None:
                raise Unavailable(
                    f"model {shown(name)} is not loaded: {entry.reason or 'unloaded'}"
                )
            return queue
        number = int(version) if layout.VERSION.fullmatch(version) else 0
        if (queue := entry.versions.get(number)) is None:
            raise Missing(f"model {shown(name)} has no version {shown(version)} that is loaded")
        return queue

    async def start(self) -> None:
        """Loads the models that are to be there from the start; the others are only listed.

        Raises:
            TenonnxError: One cannot be loaded.
        """
        wanted = self.settings.startup
        for name in await self.refresh():
            if wanted is None or name in wanted:
                try:
                    await self.load(name)
                except ServeError as error:
                    raise error.__cause__ or error from None
        self.ready = True

    async def refresh(self) -> Iterable[str]:
        """Looks again for what lies there; returns the names."""
        found = await self._found()
        for name in found:
            self.entries.setdefault(name, Entry(reason="not loaded"))
        return found

    async def _found(self) -> dict[str, Found]:
        source, name = self.settings.source, self.settings.name
        result: dict[str, Found] = await self._loader.submit(
            lambda: layout.find_models(source, name)
        )
        return result

    async def load(self, name: str) -> None:
        """Loads a model, or loads it again as it lies there now, in this process alone.

        Raises:
            Missing: There is none of that name.
            ServeError: It cannot be loaded.
        """
        self._apply(await self.prepare("load", name))

    async def unload(self, name: str) -> None:
        """Forgets a model's sessions, in this process alone; one that is not loaded stays so.

        Raises:
            Missing: There is none of that name.
        """
        self._apply(await self.prepare("unload", name))

    def _apply(self, change: Change) -> None:
        self.commit(change)
        self.settle(change)

    async def prepare(self, action: str, name: str) -> Change:
        """Does all of a change (``load`` or ``unload``) that can fail; requests see none of it.

        What it returns is handed to ``commit`` and then to ``settle``, or to ``discard``.

        Raises:
            Missing: There is no model of that name.
            ServeError: It cannot be loaded.
        """
        async with self._lock:
            if action == "unload":
                if (entry := self.entries.get(name)) is None:
                    raise Missing(f"there is no model {shown(name)}")
                entry.state = UNLOADING if entry.versions else entry.state
                return Change(name, {})
            found = (await self._found()).get(name)
            if found is None:
                raise Missing(f"there is no model {shown(name)} in the repository")
            entry = self.entries.setdefault(name, Entry())
            entry.state = entry.state if entry.versions else LOADING
            try:
                return await self._loader.submit(lambda: self._opened(found))  # type: ignore[no-any-return]
            except (TenonnxError, OSError, ServeError) as error:
                log.error("model %s cannot be loaded: %s", name, error)
                self.discard(Change(name, {}))
                if not entry.versions:
                    entry.reason = str(error)
                raise Unavailable(f"model {shown(name)} cannot be loaded: {error}") from error

    def commit(self, change: Change) -> None:
        """Has requests see a change. A model that was not there is not said to be ready yet."""
        entry = self.entries[change.name]
        entry.versions = {number: self._queue_of(one) for number, one in change.versions.items()}
        entry.reason = "" if change.versions else "unloaded"
        if not change.versions:
            entry.state = UNAVAILABLE

    def settle(self, change: Change) -> None:
        """Says that a change is seen wherever it is to be: a model that was loaded is ready."""
        if change.versions:
            self.entries[change.name].state = READY

    def discard(self, change: Change) -> None:
        """Forgets a change that was prepared."""
        entry = self.entries[change.name]
        entry.state = READY if entry.versions else UNAVAILABLE

    def _opened(self, found: Found) -> Change:
        """Opens the versions that are to be served; in the loader's thread."""
        before = layout.digest(found)
        versions = self._open(found)
        if layout.digest(found) != before:
            raise Unavailable("its files changed while they were read; load it again")
        return Change(found.name, versions, before)

    def _open(self, found: Found) -> dict[int, Model]:
        said = config.read(found.config) if found.config else config.empty()
        config.check(said, found.name)
        if not found.versions:
            raise NoSuchFile(f"model {found.name!r} has no version", hint="NAME/1/model.onnx")
        root, file = Path(self.settings.source), said.default_model_filename
        models = {}
        for number in config.versions_of(said, found.versions):
            path = layout.model_file(found.versions[number], root, file)
            session = open_session(str(path), self.settings, said)
            batching = self.settings.batching
            models[number] = Model(found.name, str(number), session, said, batching)
            warm_up(models[number])
        return models

    async def statistics(self) -> list[dict[str, Any]]:
        """Returns what became of the requests to each version that is loaded, in this process."""
        models = [q.model for entry in self.entries.values() for q in entry.versions.values()]
        return [model.statistics.told(model.name, model.version) for model in models]

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """Returns every model that lies there or is loaded: name, version, state and reason."""
        told = []
        for name, entry in sorted(self.entries.items()):
            versions = [str(number) for number in sorted(entry.versions)] or [""]
            for version in versions:
                said = {"name": name, "version": version, "state": entry.state}
                told.append({key: text for key, text in said.items() if text})
                if entry.reason:
                    told[-1]["reason"] = entry.reason
        return [one for one in told if one["state"] == READY] if ready_only else told

    async def close(self) -> None:
        """Forgets all models and ends the loader's thread."""
        self.entries.clear()
        await asyncio.to_thread(self._loader.stop)
