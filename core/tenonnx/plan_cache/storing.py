"""Storing a session's plan for other processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tenonnx.formats import HEADER_BYTES
from tenonnx.interface.session_info import Session
from tenonnx.plan_cache import NotCacheable, files, key, pickling
from tenonnx.plan_cache.weights import Stores
from tenonnx.plugins.catalogue import Catalogue
from tenonnx.plugins.choosing import plugins_of
from tenonnx.provider import Provider
from tenonnx.weights.mapping import State


def store(
    session: Session, target: str, model: tuple[str, State], mapped: Mapping[str, State]
) -> None:
    """Store a session's plan.

    Args:
        session: It.
        target: Where the plan is to be.
        model: The model's path, and the state of its file that the plan is named after.
        mapped: The files that its model was read from, and their states then.

    Raises:
        NotCacheable: It cannot be stored.
    """
    stores = Stores()
    content = pickling.pickled(session._parts, stores, session._options, session._providers)
    states = dict(mapped) | {path: each.state for path, each in stores.files.items()}
    for path, state in states.items():
        if key.state_of(path) != state:
            raise NotCacheable(f"{path} has changed meanwhile")
    if states.get(model[0]) != model[1]:
        raise NotCacheable("the model has changed meanwhile")
    named = [(type(each), each.depends_on()) for each in session._providers]
    checks = {
        "files": states,
        "code": key.states(),
        "providers": [(c.__module__, c.__qualname__, repr(told)) for c, told in named],
    }
    try:
        files.write(target, pickling.plain(checks), *content)
    except OSError as error:
        raise NotCacheable(f"{target} cannot be written: {error.strerror}") from error


def refuse(session: Session, requests: Sequence[Any] | None = None) -> None:
    """Raise NotCacheable for a session whose plan other processes cannot use.

    Args:
        session: It.
        requests: The providers that were asked for; ``None`` for those that it has.
    """
    _refuse_providers(session._providers)
    plugins = plugins_of(session._options)
    _refuse_format(session._recipe[0], plugins)
    for record in plugins.observing(session._options.observers):
        raise NotCacheable(f"the plug-in {record.name} observes plans")
    if requests is not None and len(requests or plugins.unasked()) != len(session._providers):
        raise NotCacheable("not all providers that were asked for can be used here")


def _refuse_providers(providers: Iterable[Provider]) -> None:
    for provider in providers:
        if provider.depends_on() is None:
            raise NotCacheable(f"{provider.name} does not say what its steps depend on")


def _refuse_format(path: Any, plugins: Catalogue) -> None:
    """Raise NotCacheable for a model that a plug-in of others reads, from whatever files."""
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
    for name, candidate in plugins.formats.items():
        owner = plugins.owner("format", name)
        if candidate.sniff(header) and not any(
            r.builtin for r in plugins.records if r.name == owner
        ):
            raise NotCacheable(f"the plug-in {owner} reads the model")
