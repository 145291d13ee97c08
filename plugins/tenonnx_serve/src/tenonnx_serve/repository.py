"""The server's models: those in the repository, those that are loaded, loading and unloading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx import EPFail, NoSuchFile, TenonnxError
from tenonnx_serve import config, layout
from tenonnx_serve.batching import Queue
from tenonnx_serve.errors import BadRequest, Missing, ServeError, Unavailable, Unsupported
from tenonnx_serve.layout import FoundModel
from tenonnx_serve.model import Model
from tenonnx_serve.requests import quoted
from tenonnx_serve.samples import samples
from tenonnx_serve.sessions import open_session
from tenonnx_serve.settings import Settings
from tenonnx_serve.threads import Threads
from tenonnx_serve.warming import warm_up, warm_up_language

if TYPE_CHECKING:
    from tenonnx_serve.openai.generations import Generations
    from tenonnx_serve.openai.language_model import LanguageModel

log = logging.getLogger("tenonnx.serve")

READY, LOADING, UNLOADING, UNAVAILABLE = "READY", "LOADING", "UNLOADING", "UNAVAILABLE"


@dataclass
class Entry:
    """A model's state.

    Attributes:
        versions: The loaded versions, by number.
        state: The state of the whole model.
        reason: Why it is not ready.
    """

    versions: dict[int, Queue | Generations] = field(default_factory=dict)
    state: str = UNAVAILABLE
    reason: str = ""

    @property
    def latest(self) -> Queue | Generations | None:
        """The loaded version with the highest number."""
        return self.versions[max(self.versions)] if self.versions else None


@dataclass(frozen=True)
class Change:
    """A model that is opened and not served yet, or that is about to be unloaded.

    Attributes:
        name: The model's.
        versions: The versions that are open; none to unload the model.
        digest: The digest of their files.
    """

    name: str
    versions: dict[int, Model | LanguageModel]
    digest: str = ""


def refuse_parameters(given: Any) -> None:
    """Refuse parameters of a load: a model is loaded as it is in the repository.

    Raises:
        Unsupported: There are parameters.
    """
    if given:
        raise Unsupported(f"parameters of a load are not supported: {quoted(sorted(given))}")


class Repository:
    """The models of a server. Its methods are called in the event loop's thread.

    If a load fails, the model stays as it was. Runs of a version that is replaced or unloaded end
    undisturbed.

    Args:
        settings: Where the models are, and how to open them.
        queue_of: Makes the queue of a loaded model.
    """

    def __init__(
        self,
        settings: Settings,
        queue_of: Callable[[Model | LanguageModel], Queue | Generations],
    ) -> None:
        self.settings = settings
        self._queue_of = queue_of
        self.ready = False
        self.entries: dict[str, Entry] = {}
        self._loader = Threads(1, "tenonnx-load")
        self._lock = asyncio.Lock()

    def find(self, name: str, version: str = "") -> Queue:
        """Return the queue of a loaded model that takes tensors.

        Raises:
            Missing: The model or the version does not exist.
            Unavailable: The model is not loaded.
            BadRequest: It is a language model.
        """
        found = self.version(name, version)
        if not isinstance(found, Queue):
            raise BadRequest(
                f"model {quoted(name)} is a language model: it takes texts, at "
                "/v1/chat/completions and /v1/completions"
            )
        return found

    def find_language(self, name: str) -> Generations:
        """Return what generates for a loaded language model.

        Raises:
            Missing: There is none of that name.
            Unavailable: The model is not loaded.
        """
        found = self.version(name)
        if isinstance(found, Queue):
            raise Missing(f"model {quoted(name)} is no language model")
        return found

    def language_models(self) -> list[Generations]:
        """Return what generates for each loaded language model, by name."""
        latest = [entry.latest for _, entry in sorted(self.entries.items())]
        return [one for one in latest if one is not None and not isinstance(one, Queue)]

    def version(self, name: str, version: str = "") -> Queue | Generations:
        """Return what serves a version of a loaded model.

        Raises:
            Missing: The model or the version does not exist.
            Unavailable: The model is not loaded.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise Missing(f"there is no model {quoted(name)}")
        if not version:
            if (queue := entry.latest) is None:
                raise Unavailable(
                    f"model {quoted(name)} is not loaded: {entry.reason or 'unloaded'}"
                )
            return queue
        number = int(version) if layout.VERSION_FOLDER.fullmatch(version) else 0
        if (queue := entry.versions.get(number)) is None:
            raise Missing(f"model {quoted(name)} has no loaded version {quoted(version)}")
        return queue

    async def start(self) -> None:
        """Load the models that are loaded at the start; the others are only listed.

        Raises:
            TenonnxError: A model cannot be loaded.
        """
        wanted = self.settings.startup
        for name in await self.refresh():
            if wanted is None or name in wanted:
                try:
                    await self.load(name)
                except ServeError as error:
                    # The operator at the command line gets the error, not the client's sentence.
                    raise error.__cause__ or error from None
        self.ready = True

    async def refresh(self) -> Iterable[str]:
        """Search the repository again; return the names."""
        found = await self._found()
        for name in found:
            self.entries.setdefault(name, Entry(reason="not loaded"))
        return found

    async def _found(self) -> dict[str, FoundModel]:
        source, name = self.settings.source, self.settings.name
        result: dict[str, FoundModel] = await self._loader.submit(
            lambda: layout.find_models(source, name)
        )
        return result

    async def load(self, name: str) -> None:
        """Load a model, or load its present files again, in this process alone.

        Raises:
            Missing: The model does not exist.
            ServeError: It cannot be loaded.
        """
        self._apply(await self.prepare("load", name))

    async def unload(self, name: str) -> None:
        """Forget a model's sessions in this process alone; do nothing if it is not loaded.

        Raises:
            Missing: The model does not exist.
        """
        self._apply(await self.prepare("unload", name))

    def _apply(self, change: Change) -> None:
        self.commit(change)
        self.settle(change)

    async def prepare(self, action: str, name: str) -> Change:
        """Do the part of a change (``load`` or ``unload``) that can fail; requests see nothing.

        The result goes to ``commit`` and then to ``settle``, or to ``discard``.

        Raises:
            Missing: The model does not exist.
            ServeError: It cannot be loaded.
        """
        async with self._lock:
            if action == "unload":
                if (entry := self.entries.get(name)) is None:
                    raise Missing(f"there is no model {quoted(name)}")
                entry.state = UNLOADING if entry.versions else entry.state
                return Change(name, {})
            found = (await self._found()).get(name)
            if found is None:
                raise Missing(f"there is no model {quoted(name)} in the repository")
            entry = self.entries.setdefault(name, Entry())
            entry.state = entry.state if entry.versions else LOADING
            try:
                return await self._loader.submit(lambda: self._opened(found))  # type: ignore[no-any-return]
            except (TenonnxError, OSError, ServeError) as error:
                log.error("model %s cannot be loaded: %s", name, error)
                self.discard(Change(name, {}))
                if not entry.versions:
                    entry.reason = str(error)
                raise Unavailable(f"model {quoted(name)} cannot be loaded: {error}") from error

    def commit(self, change: Change) -> None:
        """Make a change visible to requests. A new model is not ready yet."""
        entry = self.entries[change.name]
        _close(entry)
        entry.versions = {number: self._queue_of(one) for number, one in change.versions.items()}
        entry.reason = "" if change.versions else "unloaded"
        if not change.versions:
            entry.state = UNAVAILABLE

    def settle(self, change: Change) -> None:
        """Complete a change that all workers have committed: a loaded model is ready."""
        if change.versions:
            self.entries[change.name].state = READY

    def discard(self, change: Change) -> None:
        """Drop a prepared change."""
        entry = self.entries[change.name]
        entry.state = READY if entry.versions else UNAVAILABLE

    def _opened(self, found: FoundModel) -> Change:
        """Open the versions to serve; in the loader's thread."""
        # Each worker opens the files by itself, and their digests are compared before any of them
        # serves the model. A file that is replaced meanwhile would be in one and not in the other.
        before = layout.digest(found)
        versions = self._open(found)
        if layout.digest(found) != before:
            raise Unavailable("its files changed while they were read; load it again")
        return Change(found.name, versions, before)

    def _open(self, found: FoundModel) -> dict[int, Model | LanguageModel]:
        said = config.read(found.config) if found.config else config.empty()
        config.check(said, found.name)
        if not found.versions:
            raise NoSuchFile(f"model {found.name!r} has no version", hint="add NAME/1/model.onnx")
        root, file = Path(self.settings.source), said.default_model_filename
        models: dict[int, Model | LanguageModel] = {}
        for number in config.versions_of(said, found.versions):
            if layout.is_language(found.versions[number]):
                models[number] = self._language_model(found, number, said)
                continue
            path = layout.model_file(found.versions[number], root, file)
            session = open_session(str(path), self.settings, said)
            batching = self.settings.batching
            models[number] = made = Model(
                found.name, str(number), session, said, batching, path.parent
            )
            declared = samples(made, found.config.parent, root) if found.config else ()
            # Before it is served, so that no request waits for kernels to be compiled.
            warm_up(made, list(declared))
        return models

    def _language_model(self, found: FoundModel, number: int, said: Any) -> LanguageModel:
        try:
            from tenonnx_serve.openai.language_model import LanguageModel
        except ModuleNotFoundError as error:
            if error.name != "tenonnx_generate":
                raise
            raise EPFail(
                f"model {found.name!r} needs tenonnx-generate, which is not installed",
                hint="pip install tenonnx-generate",
            ) from error
        folder, root = found.versions[number], Path(self.settings.source)
        if folder != root:
            layout.check_inside(folder, root)
        made = LanguageModel(found.name, str(number), folder, self.settings, said)
        warm_up_language(made)
        return made

    async def statistics(self) -> list[dict[str, Any]]:
        """Return the statistics of each loaded version in this process."""
        models = [q.model for entry in self.entries.values() for q in entry.versions.values()]
        return [model.statistics.as_json(model.name, model.version) for model in models]

    def index(self, *, ready_only: bool = False) -> list[dict[str, str]]:
        """Return every model in the repository or in memory: name, version, state and reason."""
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
        """Forget all models and end the loader's thread."""
        for entry in self.entries.values():
            _close(entry)
        self.entries.clear()
        await asyncio.to_thread(self._loader.stop)


def _close(entry: Entry) -> None:
    """Have the threads of language models end, once what they generate has."""
    for version in entry.versions.values():
        if not isinstance(version, Queue):
            version.close()
