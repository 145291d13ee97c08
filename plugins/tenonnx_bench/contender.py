"""A contender of ``tenonnx bench``: a provider of tenonnx, or another runtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.cli.opening import Request, check_names, open_session, parse_provider
from tenonnx.errors import InvalidArgument, did_you_mean
from tenonnx_bench.peers import ONNXRUNTIME, Open, peer_opener

if TYPE_CHECKING:
    from tenonnx import InferenceSession
    from tenonnx.cli.state import State

PEER = ONNXRUNTIME
FALLBACK = "cpu"


class Opened:
    """A session, called as ``Run`` is."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Return the outputs."""
        return self._session.run(None, feeds)

    def providers(self) -> dict[str, int]:
        """Return how many nodes each provider runs."""
        return self._session.placement.counts()


def session_opener(state: State, request: Request) -> Open:
    """Return the function that opens a model for a request.

    Raises:
        InvalidArgument: No such provider, option of a provider, or transform.
    """
    check_names(state, request)
    return lambda model: Opened(open_session(state, model, request, as_programs_do=True)[0])


def opener(state: State, text: str, request: Request, behind: Sequence[str] = ()) -> Open:
    """Return the function that opens a model for a contender.

    Args:
        state: The plug-ins to use.
        text: The value of ``--provider``; the peer is called ``onnxruntime``.
        request: The other settings for opening a model.
        behind: Providers that run the nodes which this one declines.

    Raises:
        InvalidArgument: No such provider or option, or the peer is not installed.
    """
    name, options = parse_provider(text)
    if name == PEER and PEER not in state.plugins.providers:
        return _peer_opener(options, request)
    names = (text, *(other for other in behind if other != name))
    return session_opener(state, dataclasses.replace(request, providers=names))


def _peer_opener(options: Mapping[str, str], request: Request) -> Open:
    for option in options:
        if option != "provider":
            raise InvalidArgument(
                f"{PEER} has no option {option!r}{did_you_mean(option, ['provider'])}"
            )
    return peer_opener(PEER, request.threads, **options)
