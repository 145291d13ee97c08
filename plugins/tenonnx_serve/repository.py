"""The models that are served: what lies there, what of it is loaded, loading and unloading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tenonnx import TenonnxError
from tenonnx_serve import layout
from tenonnx_serve.errors import Missing, ServeError, Unavailable
from tenonnx_serve.layout import Found
from tenonnx_serve.model import Model
from tenonnx_serve.opening import open_session
from tenonnx_serve.requests import shown
from tenonnx_serve.settings import Settings
from tenonnx_serve.threads import Threads

log = logging.getLogger("tenonnx.serve")

READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"


@dataclass
class Entry:
    """A model's state.

    Attributes:
        versions: Those that are loaded, by number.
        state: Of the whole.
        reason: Why it is not ready.
    """

    versions: dict[int, Model] = field(default_factory=dict)
    state: str = UNAVAILABLE
    reason: str = ""

    @property
    def latest(self) -> Model | None:
        """The loaded version with the highest number."""
        return self.versions[max(self.versions)] if self.versions else None


class Repository:
    """The models of a server. Its methods are called in the event loop's thread.

    A load that fails leaves what was loaded before as it was. Runs of a version that is replaced
    or unloaded end as if it were there.

    Args:
        settings: Where the models lie, and how to open them.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ready = False
        self.entries: dict[str, Entry] = {}
        self._loader = Threads(1, "tenonnx-load")
        self._lock = asyncio.Lock()

    def find(self, name: str, version: str = "") -> Model:
        """Returns a model that is loaded.

        Raises:
            Missing: There is none of that name, or no such version.
            Unavailable: It is not loaded.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise Missing(f"there is no model {shown(name)}")
        if not version:
            if (model := entry.latest) is None:
                raise Unavailable(
                    f"model {shown(name)} is not loaded: {entry.reason or 'unloaded'}"
                )
            return model
        number = int(version) if layout.VERSION.fullmatch(version) else 0
        if (model := entry.versions.get(number)) is None:
            raise Missing(f"model {shown(name)} has no version {shown(version)} that is loaded")
        return model

    async def start(self) -> None:
        """Loads the models that are to be there from the start; the others are only listed."""
        wanted = self.settings.startup
        for name in await self.refresh():
            if wanted is None or name in wanted:
                await self.load(name)
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
        """Loads a model, or loads it again as it lies there now.

        Raises:
            Missing: There is none of that name.
            ServeError: It cannot be loaded.
        """
        async with self._lock:
            found = (await self._found()).get(name)
            if found is None:
                raise Missing(f"there is no model {shown(name)} in the repository")
            entry = self.entries.setdefault(name, Entry())
            before, entry.state = entry.state, LOADING
            try:
                versions = await self._loader.submit(lambda: self._open(found))
            except (TenonnxError, OSError, ServeError) as error:
                log.error("model %s cannot be loaded: %s", name, error)
                entry.reason = str(error)
                raise Unavailable(f"model {shown(name)} cannot be loaded: {error}") from error
            else:
                entry.versions, entry.reason, before = versions, "", READY
            finally:
                entry.state = before

    def _open(self, found: Found) -> dict[int, Model]:
        """Opens the versions that are to be served; in the loader's thread."""
        if not found.versions:
            raise Missing(f"model '{found.name}' has no version")
        number = max(found.versions)
        path = layout.model_file(found.versions[number], Path(self.settings.source))
        session = open_session(str(path), self.settings)
        return {number: Model(found.name, str(number), session)}

    async def unload(self, name: str) -> None:
        """Forgets a model's sessions; one that is not loaded stays so.

        Raises:
            Missing: There is none of that name.
        """
        async with self._lock:
            if (entry := self.entries.get(name)) is None:
                raise Missing(f"there is no model {shown(name)}")
            entry.versions, entry.state, entry.reason = {}, UNAVAILABLE, "unloaded"

    async def close(self) -> None:
        """Forgets all models and ends the loader's thread."""
        self.entries.clear()
        await asyncio.to_thread(self._loader.stop)
