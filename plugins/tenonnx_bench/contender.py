"""Whoever takes part in ``tenonnx bench``: a provider of tenonnx, or a peer."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tenonnx.cli.opening import (
    Request,
    check_provider,
    open_session,
    parse_provider,
    wait_for_kernels,
)
from tenonnx.errors import Fail, InvalidArgument, did_you_mean

if TYPE_CHECKING:
    from tenonnx import InferenceSession
    from tenonnx.cli.state import State

PEER = "onnxruntime"
FALLBACK = "cpu"

Run: TypeAlias = Callable[[Mapping[str, Any]], list[Any]]
"""Takes inputs by name, returns outputs."""


class Opened:
    """A session, called as ``Run`` is."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Returns the outputs."""
        return self._session.run(None, feeds)

    def wait(self, show: Callable[[str, float], None]) -> float:
        """Waits until kernels are compiled; returns the seconds that took."""
        return wait_for_kernels(self._session, show)


Open: TypeAlias = Callable[[str | bytes], Run]
"""Takes a model's path or bytes."""


def opener(state: State, text: str, request: Request, behind: Sequence[str] = ()) -> Open:
    """Returns what opens a model for a contender.

    Args:
        state: The plugins to use.
        text: ``--provider``; the peer is called ``onnxruntime``.
        request: Everything else that matters for opening a model.
        behind: Providers that take what this one does not run.

    Raises:
        InvalidArgument: No such provider or option, or the peer is not installed.
    """
    name, options = parse_provider(text)
    if name == PEER and PEER not in state.plugins.providers:
        return _peer_opener(options, request)
    check_provider(state, text)

    def open_model(model: str | bytes) -> Run:
        names = (text, *(other for other in behind if other != name))
        alone = Request(names, request.level, request.without, request.roots, request.threads)
        return Opened(open_session(state, model, alone)[0])

    return open_model


def _peer_opener(options: Mapping[str, str], request: Request) -> Open:
    for option in options:
        if option != "provider":
            raise InvalidArgument(
                f"{PEER} has no option {option!r}{did_you_mean(option, ['provider'])}"
            )
    if not is_peer_here():
        raise InvalidArgument(f"{PEER} is not installed", hint=f"pip install {PEER}")
    ort: Any = importlib.import_module(PEER)

    def open_model(model: str | bytes) -> Run:
        session_options = ort.SessionOptions()
        session_options.intra_op_num_threads = request.threads
        session_options.log_severity_level = 4  # what it logs, its exceptions say too
        provider = options.get("provider", "CPUExecutionProvider")
        with _translated():
            session = ort.InferenceSession(model, session_options, providers=[provider])

        def run(feeds: Mapping[str, Any]) -> list[Any]:
            with _translated():
                return list(session.run(None, dict(feeds)))

        return run

    return open_model


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turns the peer's exceptions, which share no base class, into one of tenonnx's."""
    try:
        yield
    except Exception as error:
        raise Fail(str(error).strip()) from error


def is_peer_here() -> bool:
    """Says whether the peer is installed."""
    return importlib.util.find_spec(PEER) is not None
