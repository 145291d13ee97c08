"""The set of loaded models: the same in all workers, even if one fails or dies.

A change has two phases. First every worker *prepares*: it opens a model and warms it up, or checks
that the model to unload is there. Requests are answered as before. If one worker fails, all
*discard* the change. Otherwise all *commit*, which cannot fail. When all have committed, the change
is *settled*: a loaded model reports that it is ready.

A worker that dies meanwhile is left out. Its replacement is told of the change, and is admitted
when it has the same models, from the same files.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tenonnx.errors import Fail
from tenonnx_serve.channel import ChannelClosed

logger = logging.getLogger("tenonnx.serve")

# Seconds that a worker may take to commit before it is killed.
COMMIT_SECONDS = 10.0


class Member(Protocol):
    """A worker that takes part in changes."""

    number: int

    async def call(self, method: str, /, **given: Any) -> Any:
        """Ask the worker; raise ``ChannelClosed`` if it has gone."""

    def kill(self) -> None:
        """End a worker that does not answer."""


class ModelSync:
    """Changes the loaded models in all workers, or in none.

    Args:
        load_seconds: How long preparing may take.

    Attributes:
        models: By name, the digest of the files that a model was loaded from, and the parameters
            it was loaded with. ``None`` until the first worker has said what it found.
    """

    def __init__(self, load_seconds: float) -> None:
        self.models: dict[str, tuple[str, Mapping[str, Any]]] | None = None
        self._load_seconds = load_seconds
        self._members: dict[int, Member] = {}
        self._lock = asyncio.Lock()
        self._tickets = itertools.count()

    async def change(self, action: str, name: str, parameters: Mapping[str, Any]) -> None:
        """Load a model (anew, if it is loaded) or unload one, in all workers or in none.

        Args:
            action: ``load`` or ``unload``.
            name: The model's.
            parameters: The parameters to load it with.

        Raises:
            TenonnxError: A worker failed; no worker has changed.
        """
        async with self._lock:
            await self._change(list(self._members.values()), action, name, parameters)

    async def admit(
        self, member: Member, found: Mapping[str, str], listen: Callable[[], Any]
    ) -> None:
        """Admit a worker once it has the models that all others have.

        Args:
            member: The worker.
            found: The digests of the models that the worker has loaded, by name.
            listen: Makes the worker take requests; awaited before any other change.

        Raises:
            TenonnxError: It cannot load the same models.
            ChannelClosed: It has gone.
        """
        async with self._lock:
            if self.models is None:
                self.models = {name: (digest, {}) for name, digest in found.items()}
            everybody = [*self._members.values(), member]
            for name, (digest, parameters) in list(self.models.items()):
                if found.get(name) != digest:
                    # The files that the others loaded may be deleted: all load the present ones.
                    await self._change(everybody, "load", name, parameters)
            for name in found:
                if name not in self.models:
                    await self._change([member], "unload", name, {})
            await listen()
            self._members[member.number] = member

    def leave(self, number: int) -> None:
        """Forget a worker that has died."""
        self._members.pop(number, None)

    async def _change(
        self, members: Sequence[Member], action: str, name: str, parameters: Mapping[str, Any]
    ) -> None:
        ticket = next(self._tickets)
        try:
            async with asyncio.timeout(self._load_seconds):
                prepared = await _all(
                    members,
                    "prepare",
                    ticket=ticket,
                    action=action,
                    name=name,
                    parameters=dict(parameters),
                )
            _check_same(prepared, name)
        except BaseException as error:
            # Also if the caller was cancelled: workers would keep a prepared model for good.
            await asyncio.shield(_all(members, "discard", ticket=ticket))
            if isinstance(error, TimeoutError):
                seconds = f"{self._load_seconds:g} s"
                raise Fail(f"{action} {name}: a worker took longer than {seconds}") from None
            raise
        assert self.models is not None, "a worker reports its models before it takes part"
        # Before the commits: a worker that dies in between is replaced by one with the change.
        if action == "load":
            self.models[name] = (prepared[0], parameters)
        else:
            self.models.pop(name, None)
        await asyncio.gather(*(_commit(member, ticket) for member in members))
        await _all(members, "settle", ticket=ticket)


async def _all(members: Sequence[Member], method: str, /, **given: Any) -> list[Any]:
    """Return the answers of the workers that live, once all have answered."""
    calls = (member.call(method, **given) for member in members)
    answers = await asyncio.gather(*calls, return_exceptions=True)
    there = [answer for answer in answers if not isinstance(answer, ChannelClosed)]
    for answer in there:
        if isinstance(answer, BaseException):
            raise answer
    return there


async def _commit(member: Member, ticket: int) -> None:
    try:
        async with asyncio.timeout(COMMIT_SECONDS):
            await member.call("commit", ticket=ticket)
    except ChannelClosed:
        pass  # its replacement gets the change
    except Exception as error:
        logger.error("worker %d did not commit (%r) and is killed", member.number, error)
        member.kill()


def _check_same(digests: Sequence[str], name: str) -> None:
    if not digests:
        raise Fail(f"{name}: no worker runs", hint="they are restarting; try again later")
    if len(set(digests)) > 1:
        raise Fail(f"{name}: its files changed while workers read them", hint="load it again")
