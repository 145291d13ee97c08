"""Opening a session from a plan that an earlier one kept."""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.cores import bound
from tenonnx.digest import digest
from tenonnx.errors import Fail
from tenonnx.interface.session_facts import Session
from tenonnx.lazy_modules import logger
from tenonnx.plans import Unkept, captures, files, key
from tenonnx.plans.admitted import global_of
from tenonnx.plans.key import PATH, STATE, TRUST_VARIABLE
from tenonnx.records import NamedTuple
from tenonnx.weights.locks import Locks
from tenonnx.weights.registry import default_registry

if TYPE_CHECKING:
    from tenonnx.operators import OperatorTable
    from tenonnx.options import SessionOptions
    from tenonnx.planning.plan import Observer, Plan
    from tenonnx.plans.kept import Parts
    from tenonnx.plans.unpickling import Surroundings
    from tenonnx.plans.weights import Pool
    from tenonnx.provider import Provider
    from tenonnx.weights.mapping import Mapping as File
    from tenonnx.weights.registry import WeightRegistry

log = logger("tenonnx.plans")

MANY = 4000
"""Nodes and weights of a model that is not held any longer than until its plan is kept."""


class Wanted(NamedTuple):
    """A plan that is looked for.

    Attributes:
        facts: What it depends on.
        path: Where it is, or is to be.
    """

    facts: tuple[Any, ...]
    path: Any


class Found(NamedTuple):
    """A plan that was found.

    Attributes:
        parts: Its parts.
        path: The model's.
        state: The model's file's.
        captured: Whether it has captures of a first run.
        pool: Its small weights, if captures are to be kept.
    """

    parts: Parts
    path: str
    state: tuple[int, ...]
    captured: bool
    pool: Pool | None = None


def may_be_claimed(options: SessionOptions) -> bool:
    """Says whether options or the environment say of any compiled file that it is the caller's."""
    return options.trust_compiled_plan or TRUST_VARIABLE in os.environ


def wanted(
    source: Any,
    options: SessionOptions,
    requests: Sequence[Any] | None,
    provider_options: Sequence[Mapping[str, Any]] | None,
    disabled: Sequence[str],
) -> Wanted:
    """Returns what to look for.

    Raises:
        Unkept: Plans of such sessions are not kept.
    """
    if not isinstance(source, str | os.PathLike):
        raise Unkept(f"the model is no file, but {type(source).__name__}")
    if os.environ.get("TENONNX_PLANS") == "0" or files.folder() is None:
        raise Unkept("TENONNX_PLANS or TENONNX_CACHE is 0")
    found = key.facts(os.fspath(source), options, requests, provider_options, disabled)
    return Wanted(found, files.path_of(digest(repr(found))))


def opened(
    plan: Wanted, options: SessionOptions, registry: WeightRegistry
) -> tuple[Parts, bool, Pool] | None:
    """Returns what was kept of a plan, whether its captures were, and its small weights.

    ``None`` if nothing fits.
    """
    try:
        file = files.read(plan.path)
    except OSError:
        return None
    except Exception as error:  # a damaged file may say anything
        log.info("%s is damaged and will be made again: %s", plan.path, error)
        return None
    try:
        return _opened(plan.path, file, options, registry)
    except Exception as error:  # what the file names may be gone
        log.info("%s is not used: %s", plan.path, error, exc_info=True)
        return None


def _opened(
    path: str, file: files.File, options: SessionOptions, registry: WeightRegistry
) -> tuple[Parts, bool, Pool]:
    from tenonnx.plans import unpickling  # for those who find a plan

    checks = unpickling.plain(file.checks)
    for module, name, facts in checks["providers"]:
        if repr(global_of(module, name).depends_on()) != facts:
            raise Unkept(f"{name} would compile otherwise now")
    _refuse_changed(checks["files"])
    mapped = {each: registry.map(each) for each in checks["files"]}
    parts, surroundings = revived(file.parts, file.apart, mapped, options, registry)
    _refuse_changed(checks["files"])
    captured = captures.take(path, file.mapping.identity, parts.namespace, surroundings)
    return parts, captured, surroundings.stores.settled()


def revived(
    content: memoryview,
    apart: Sequence[memoryview],
    mapped: Mapping[str, File],
    options: SessionOptions,
    registry: WeightRegistry,
) -> tuple[Parts, Surroundings]:
    """Returns a plan's parts, whose providers have what sessions give them, and what they found.

    Args:
        content: A pickle of them.
        apart: The arrays beside it.
        mapped: The files that weights lie in, by the paths that the pickle has.
        options: The session's.
        registry: Where weights are to be.

    Raises:
        Unkept: They cannot be used here; so may whatever an object of theirs raises.
    """
    from tenonnx.plans import unpickling  # for those who find a plan
    from tenonnx.plans.weights import Opened

    found = unpickling.Surroundings(Opened(registry, dict(mapped)), options, [])
    parts, found = unpickling.unpickled(content, apart, found)
    for provider in parts.providers:
        provider.__dict__["look_up"] = functools.partial(_operators, provider, options)
        if why := provider.reopened():
            raise Unkept(why)
    return parts, found


def _refuse_changed(states: Mapping[str, tuple[int, ...]]) -> None:
    for path, state in states.items():
        if key.state_of(path) != state:
            raise Unkept(f"{path} has changed")


def _operators(provider: Provider, options: SessionOptions) -> OperatorTable:
    from tenonnx.plugins.choosing import operators_for  # few runs ask, and plug-ins are imported

    return operators_for(type(provider), options)


class ReopenedSession(Session):
    """A session that opens a plan which was kept, or keeps its own."""

    _keeps = True
    _sought: Wanted | None = None
    _embedded: bool
    _disabled: tuple[str, ...]
    _observers: list[Observer]

    def _reopen(self, unopened: Callable[[str], Session]) -> bool:
        """Takes a plan that was kept, or that the model's file has; says whether there is one.

        Args:
            unopened: Makes a session of the same options, of a path, that opens no plan.

        Raises:
            Fail: The file has a plan, is said to be trusted, and does not fit.
        """
        self._reader = self._told = self._sought = None
        start = time.perf_counter_ns()
        try:
            if not self._keeps:
                return False
            if self._embedded:
                raise Unkept("the model may say with which options to run it")
            found = self._shipped() or self._kept()
        except Unkept as why:
            # Whoever keeps what is logged would keep the session: the exception has its frames.
            log.info("no plan is looked for or kept: %s", str(why))
            return False
        if found is None:
            return False
        self._take(found, unopened)
        self._moments = (start, time.perf_counter_ns())
        self._keep_captures(found)
        return True

    def _keep_captures(self, found: Found) -> None:
        if self._sought is not None and not found.captured and found.pool is not None:
            captures.keep_after_first_run(self, self._sought.path, found.pool)

    def _shipped(self) -> Found | None:
        """Returns the plan of a compiled file that is said to be trusted."""
        if os.environ.get("TENONNX_PLANS") == "0" or not may_be_claimed(self._options):
            return None
        from tenonnx.plans import shipped  # for those who say so

        source, _, providers, more = self._recipe
        if not shipped.is_claimed(source, self._options):
            return None
        path = os.path.abspath(source)
        state, registry = key.state_of(path), default_registry()
        asked = self._options, providers, more, self._disabled
        return Found(shipped.opened(path, *asked, registry), path, state, captured=False)

    def _kept(self) -> Found | None:
        """Returns the plan that an earlier session kept."""
        source, _, providers, more = self._recipe
        self._sought = wanted(source, self._options, providers, more, self._disabled)
        found = opened(self._sought, self._options, default_registry())
        facts = self._sought.facts
        if found is None:
            return None
        parts, captured, pool = found
        return Found(parts, facts[PATH], facts[STATE], captured, pool)

    def _take(self, found: Found, unopened: Callable[[str], Session]) -> None:
        from tenonnx.plans.kept import KeptPlan  # for those who find one

        parts, path, state = found[:3]
        self._registry = default_registry()
        self._providers, self._signature, self._said = parts.providers, parts.signature, parts.said
        self._observers, self._weights, self._told = [], parts.weights, parts.metadata
        self._counts, self._reported = parts.counts, parts.reports
        threads = bound(self._options.intra_op_num_threads)
        self._reader = reader = Reader(path, state, functools.partial(unopened, path))
        self._plan = KeptPlan(parts, threads, reader.plan)
        name = self._options.logid or parts.name or "session"
        self._registry.attach(self, name)

    def _keep(self, mapped: Iterable[str], unopened: Callable[[str], Session]) -> None:
        """Keeps the plan for later processes, if it can be.

        Args:
            mapped: The files that it was read from.
            unopened: As for ``_reopen``.
        """
        if self._sought is None:
            return
        from tenonnx import keeping_modules  # for those who find none
        from tenonnx.plans.keeping import keep

        try:
            pool = keep(self._sought.facts, self._sought.path, self, mapped)
        except Unkept as why:
            log.info("the plan is not kept: %s", why)
        else:
            keeping_modules.keep_at_exit()
            if not (self._is_large() and self._slim(unopened)):
                captures.keep_after_first_run(self, self._sought.path, pool)

    def _is_large(self) -> bool:
        graph = self._read.graph
        return len(graph) + len(graph.initializers) >= MANY

    def _slim(self, unopened: Callable[[str], Session]) -> bool:
        """Takes the plan that was just kept in place of the model and all that was made of it.

        A model's nodes and weights take some 4 KiB each, of which runs need a tenth.
        """
        from tenonnx.memory import trim  # for large models

        moments = self._moments
        if (found := self._kept()) is None:
            return False
        for name in ("_read", "_placed", "_reports", "_plan"):
            del vars(self)[name]
        self._take(found, unopened)
        gc.collect()
        trim()
        self._moments = (*moments, time.perf_counter_ns())
        self._keep_captures(found)
        return True


class Reader:
    """Reads the model of a session that opened a plan, when more is asked than that has.

    Args:
        path: The model's file.
        state: The file's, when the plan was opened.
        make: Makes a session that reads it.
    """

    def __init__(self, path: str, state: tuple[int, ...], make: Callable[[], Session]) -> None:
        self._path, self._state, self._make = path, state, make
        self._locks = Locks()

    @functools.cached_property
    def session(self) -> Session:
        """The session that read it; there is one.

        Raises:
            Fail: The file is not what it was.
        """
        with self._locks.only_one("read"):
            if (made := vars(self).get("session")) is not None:
                return made  # type: ignore[no-any-return]  # another thread made it meanwhile
            if key.state_of(self._path) != self._state:
                raise Fail(
                    f"{self._path} has changed since the session was opened, which was made of "
                    "what an earlier one kept; more is asked of it now than that",
                    hint="open another session",
                )
            made = vars(self)["session"] = self._make()
            return made

    def plan(self) -> Plan:
        """Returns the plan of that session."""
        return self.session._plan
