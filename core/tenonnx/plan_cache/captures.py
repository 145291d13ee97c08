"""Captures of a plan's first run, kept beside the plan for later processes.

That is which kernels are launched, for inputs of its shapes. A plan is kept before it runs, and
its captures when it has run, in a file of their own.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.plan_cache import NotCacheable, files
from tenonnx.weights.mapping import Identity

if TYPE_CHECKING:
    from tenonnx.interface.session_info import Session
    from tenonnx.planning.plan import GeneratedCode
    from tenonnx.weights.mapping import Mapping as Mapped

log = logging.getLogger("tenonnx.plans")


def take(path: str, identity: Identity, session: Session, mapped: Mapping[str, Mapped]) -> bool:
    """Have the captures of a session's plan replayed, if they are cached; return whether they are.

    Args:
        path: The plan's file.
        identity: That file's.
        session: It, with the plan as it was loaded.
        mapped: The files that weights lie in.
    """
    from tenonnx.plan_cache import unpickling

    namespace = session._plan._code.namespace
    try:
        file = files.read(path_of(path))
        if unpickling.plain(file.checks) != tuple(identity):
            raise NotCacheable("they are of another file")
        found = unpickling.loaded(file, mapped, session._options, session.registry)
        cells = dict(_cells(namespace))
        for name, each in found.items():
            cells[name].add_stored_captures(each, namespace)
    except OSError:
        return False
    except Exception as error:  # a damaged file may say anything
        log.info("captures of %s are not used: %s", path, error)
        return False
    return True


def path_of(plan: str | os.PathLike[str]) -> str:
    """Return where the captures of a plan are, or are to be."""
    return os.path.splitext(plan)[0] + files.CAPTURES


def store_after_first_run(session: Session, plan: str) -> None:
    """Store the captures of a session's plan, which is in a file, when it has run."""
    own = session._plan
    cells = [cell for _, cell in _cells(own._code.namespace)]
    if not cells:
        return
    for cell in cells:
        cell.capture_first_run()
    # The plan has these, so that neither it nor the session may be held.
    there = weakref.ref(session)

    def watched(code: GeneratedCode) -> GeneratedCode:
        def run(*inputs: Any) -> tuple[Any, ...]:
            outputs = code.run(*inputs)
            if (session := there()) is not None and session._plan.unwatch(run, code):
                _keep(session, plan)
            return outputs

        return code._replace(run=run)

    own.watch(watched)


def _cells(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what has captures of steps, by the names that the plan's code has for these."""
    for name, called in namespace.items():
        cell = getattr(getattr(called, "__self__", None), "capture_cell", None)
        if cell is not None:
            yield name, cell


def _kept(namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what can be kept of them."""
    names = {id(each): name for name, each in namespace.items() if isinstance(each, np.ndarray)}
    for name, cell in _cells(namespace):
        try:
            if made := cell.captures_to_store(names):
                yield name, made
        except NotCacheable as why:
            log.debug("captures of %s are not kept: %s", name, why)


def _keep(session: Session, plan: str) -> None:
    from tenonnx.plan_cache.pickling import pickled, plain
    from tenonnx.plan_cache.weights import Stores

    try:
        identity = plain(tuple(Identity.of(os.stat(plan))))
        if found := dict(_kept(session._plan._code.namespace)):
            surroundings = session._options, session._providers
            content = pickled(found, Stores(), *surroundings, later=True)
            files.write(path_of(plan), identity, *content)
    except (NotCacheable, OSError) as why:
        log.debug("captures are not kept: %s", why)
