"""Keeping a session's plan for other processes."""

from __future__ import annotations

import io
import marshal
import os
import pickle
from collections.abc import Iterable
from typing import Any

from tenonnx.formats import HEADER_BYTES
from tenonnx.interface.metadata import metadata_of
from tenonnx.interface.session_facts import Session
from tenonnx.plans import Unkept, files, key
from tenonnx.plans.kept import Parts
from tenonnx.plans.key import STATE
from tenonnx.plans.pickling import pickled
from tenonnx.plans.rewriting import writes_of
from tenonnx.plans.weights import Pool, Stores
from tenonnx.plugins.catalogue import Catalogue
from tenonnx.plugins.choosing import plugins_of
from tenonnx.records import names_of

BESIDE = frozenset({"__builtins__", "clock"})
"""Names that every plan has, and this one's code does not use."""


def keep(facts: tuple[Any, ...], path: str, session: Session, mapped: Iterable[str]) -> Pool:
    """Keeps a session's plan for other processes; returns the small weights that are with it.

    Args:
        facts: What it depends on.
        path: Where it is to be.
        session: It.
        mapped: The files that its model was read from.

    Raises:
        Unkept: It cannot be kept; the message says why.
    """
    refuse(session)
    stores = Stores(session.registry)
    parts, apart = pickled(parts_of(session), stores, session._options)
    named = [(type(each), each.depends_on()) for each in session._providers]
    checks = {
        "files": _states(mapped, stores),
        "providers": [(c.__module__, c.__qualname__, repr(told)) for c, told in named],
    }
    own = key.state_of(os.fspath(session._recipe[0]))
    if own != facts[STATE]:
        raise Unkept("the model has changed meanwhile")
    text = io.BytesIO()
    pickle.Pickler(text, pickle.HIGHEST_PROTOCOL).dump(checks)
    try:
        files.write(path, text.getvalue(), parts, [each.raw() for each in apart])
    except OSError as error:
        raise Unkept(f"{path} cannot be written: {error.strerror}") from error
    return stores.pool


def _states(mapped: Iterable[str], stores: Stores) -> dict[str, tuple[int, ...]]:
    """Returns the states of the files that a model was read from, and that its weights lie in."""
    states = {path: key.state_of(path) for path in sorted({*mapped, *stores.files})}
    for path, known in stores.files.items():
        if states[path][: len(known.identity)] != known.identity:
            raise Unkept(f"{path} has changed meanwhile")
    return states


def parts_of(session: Session) -> Parts:
    """Returns what is kept of a session."""
    plan, model = session._plan, session._model
    code = plan._code
    namespace = {k: v for k, v in code.namespace.items() if k not in BESIDE}
    return Parts(
        session._providers,
        (marshal.dumps(code.compiled), code.source),
        plan._filename,
        namespace,
        session._signature,
        session._said,
        _fields(metadata_of(model)),
        session._weights,
        model.graph.name or "",
        writes_of(plan._lowering, code),
        session._placed.counts(),
        tuple(map(_fields, session._reports)),
    )


def _fields(made: Any) -> tuple[Any, ...]:
    """Returns the values of a record; ``dataclasses.astuple`` copies them, and what they hold."""
    return tuple(getattr(made, name) for name in names_of(type(made)))


def refuse(session: Session) -> None:
    """Raises Unkept for a session that is more than a plan, or whose plan is not done."""
    for provider in session._providers:
        if provider.depends_on() is None:
            raise Unkept(f"steps of {provider.name} cannot be kept")
    if any(kernel.state == "compiling" for kernel in session.kernels.values()):
        raise Unkept("kernels are still being compiled")
    plugins = plugins_of(session._options)
    _refuse_format(session._recipe[0], plugins)
    for record in plugins.records:
        if "create_observer" in record.hooks and not record.error:
            raise Unkept(f"the plug-in {record.name} observes plans")
    requests = session._recipe[2] or session._options._providers
    asked = requests or plugins.unasked()
    if len(asked) != len(session._providers):
        raise Unkept("not all providers that were asked for can be used here")


def _refuse_format(path: Any, plugins: Catalogue) -> None:
    """Raises Unkept for a model that a plug-in of others reads, from whatever files it likes."""
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
    for name, candidate in plugins.formats.items():
        owner = plugins.owner("format", name)
        if candidate.sniff(header) and not any(
            r.builtin for r in plugins.records if r.name == owner
        ):
            raise Unkept(f"the plug-in {owner} reads the model")
