"""The place of a session's plan in the cache: where it is loaded from, or stored."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.errors import Fail
from tenonnx.plan_cache import NotCacheable, captures, files, key
from tenonnx.plan_cache.admitted import global_of
from tenonnx.plan_cache.key import TRUST_VARIABLE
from tenonnx.process import memory
from tenonnx.process.later import Later
from tenonnx.weights.digest import digest
from tenonnx.weights.mapping import noted
from tenonnx.weights.registry import default_registry

if TYPE_CHECKING:
    from tenonnx.interface.session_info import Session, SessionParts
    from tenonnx.options import SessionOptions
    from tenonnx.weights.mapping import Identity, State
    from tenonnx.weights.mapping import Mapping as Mapped

log = logging.getLogger("tenonnx.plans")


MAY_SAY_OPTIONS = "the model may say with which options to run it"

# Nodes and weights of a model that is held no longer than until its plan is cached: they take
# some 4 KiB each, and a run needs none of them.
MIN_LARGE_PARTS = 4000

# Bytes of a plan's file that leave as much memory to the allocator as is worth giving back: 40 MiB
# of the 78 that 20,000 nodes take then, in 3.5 MB.
MIN_LARGE_PLAN_BYTES = 1 << 20


class CachePlace:
    """The file of a session's plan in the cache.

    Args:
        recipe: The session's source, given options, providers and their options.
        options: Its options, with the process's defaults.
        disabled: Transforms not to run.
        uncached: Why no plan is looked for or stored, if none is.

    Attributes:
        uncached: Why the plan is not cached; ``""`` if it is.
    """

    def __init__(
        self,
        recipe: tuple[Any, ...],
        options: SessionOptions,
        disabled: Sequence[str],
        uncached: str = "",
    ) -> None:
        self._source, _, self._requests, self._more = recipe
        self._options, self._disabled, self.uncached = options, disabled, uncached
        self._is_large = False
        self._path = ""
        self._model: tuple[str, State] | None = None
        self._found: tuple[Identity, dict[str, Mapped]] | None = None

    def load(self) -> SessionParts | None:
        """Return the parts of a session whose plan is cached, or in the model's file.

        Raises:
            Fail: The file has a plan, is said to be trusted, and does not fit.
        """
        try:
            if self.uncached:
                raise NotCacheable(self.uncached)
            return self._shipped() or self._cached()
        except NotCacheable as why:
            # Whoever keeps what is logged would keep the session: the exception has its frames.
            self.uncached = str(why)
            log.debug("no plan is looked for or cached: %s", self.uncached)
            return None

    def store(self, session: Session, mapped: Mapping[str, State]) -> None:
        """Cache a session's plan for other processes, if it can be.

        Args:
            session: It.
            mapped: The files that its model was read from, and their states then.
        """
        if self.uncached or self._model is None:
            return
        from tenonnx.plan_cache import storing

        try:
            storing.refuse(session, self._requests or self._options._providers or ())
            storing.store(session, self._path, self._model, mapped)
        except NotCacheable as why:
            self.uncached = str(why)
            log.info("the plan is not cached: %s", why)
        else:
            self.take_captures(session)

    def finish(self, session: Session) -> None:
        """Take the captures of a plan that was opened, and give back what opening it took."""
        self.take_captures(session)
        if self._is_large:
            memory.trim()

    def take_captures(self, session: Session) -> None:
        """Have the captures beside a session's plan replayed, or stored after its first run."""
        if self._found is not None:
            identity, mapped = self._found
            self._found = None
            if captures.take(self._path, identity, session, mapped):
                return
        if self._path:
            captures.store_after_first_run(session, self._path)

    def release_model(self, session: Session) -> None:
        """Have a session whose plan is stored hold a large model no longer."""
        graph = session._model.open().graph
        if not self.uncached and len(graph) + len(graph.initializers) >= MIN_LARGE_PARTS:
            from tenonnx.process import collector

            del graph
            session._model = self.model_later(session)
            collector.release()

    def model_later(self, session: Session) -> Later:
        """Return the model as it runs, which is read when somebody asks for it.

        It raises Fail then if the file is not what it was. It does not hold the session.
        """
        registry, providers = session.registry, session._providers

        def read() -> Any:
            from tenonnx import session_builder

            if self._model is not None and key.state_of(self._model[0]) != self._model[1]:
                raise Fail(
                    f"{self._model[0]} has changed since the session was opened; its model is "
                    "wanted now, which would be another one",
                    hint="open another session",
                )
            options, disabled = self._options, self._disabled
            plugins, _ = session_builder.surroundings(options)
            model = session_builder.read_model(self._source, registry, options, plugins)
            return session_builder.prepare(model, providers, plugins, options, disabled).model

        return Later(make=read)

    def _shipped(self) -> SessionParts | None:
        """Return the parts in a compiled file that is said to be trusted."""
        claimed = self._options.trust_compiled_plan or TRUST_VARIABLE in os.environ
        if os.environ.get("TENONNX_PLANS") == "0" or not claimed:
            return None
        from tenonnx.plan_cache import shipped

        if not shipped.is_claimed(self._source, self._options):
            return None
        path = os.path.abspath(self._source)
        self._model = path, key.state_of(path)
        given = self._options, self._requests, self._more, self._disabled
        return shipped.loaded(path, *given, default_registry())

    def _cached(self) -> SessionParts | None:
        """Return the parts that an earlier session stored; ``None`` if there are none that fit.

        Raises:
            NotCacheable: Plans of such sessions are not cached.
        """
        if not isinstance(self._source, str | os.PathLike):
            raise NotCacheable(f"the model is no file, but {type(self._source).__name__}")
        if os.environ.get("TENONNX_PLANS") == "0" or files.folder() is None:
            raise NotCacheable("TENONNX_PLANS or TENONNX_CACHE is 0")
        path = os.path.abspath(self._source)
        state = key.state_of(path)
        given = self._options, self._requests, self._more, self._disabled
        self._model = path, state
        self._path = files.path_of(digest(repr(key.facts(path, state, *given))))
        try:
            file = files.read(self._path)
        except OSError:
            return None
        except Exception as error:  # a damaged file may say anything
            log.info("%s is damaged and will be made again: %s", self._path, error)
            return None
        try:
            return self._loaded(file)
        except Exception as error:  # what the file names may be gone
            log.info("%s is not used: %s", self._path, error, exc_info=True)
            return None

    def _loaded(self, file: files.File) -> SessionParts:
        from tenonnx.plan_cache import unpickling

        checks, registry = unpickling.plain(file.checks), default_registry()
        for package, distribution, state in checks["code"]:
            if key.state_of_code(package, distribution) != state:
                raise NotCacheable(f"the code of {package} is another one")
        for module, name, facts in checks["providers"]:
            if repr(global_of(module, name).depends_on()) != facts:
                raise NotCacheable(f"{name} would compile otherwise now")
        with noted() as states:
            mapped = {each: registry.map(each) for each in checks["files"]}
        for path, state in checks["files"].items():
            if states[path] != state or key.state_of(path) != state:
                raise NotCacheable(f"{path} has changed")
        parts = unpickling.session_parts(file, mapped, self._options, registry)
        self._found = file.mapping.identity, mapped
        self._is_large = sum(map(len, (file.parts, *file.apart))) >= MIN_LARGE_PLAN_BYTES
        return parts
