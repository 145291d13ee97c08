"""Answers in OpenAI's form: whole, and in chunks."""

from __future__ import annotations

import abc
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import tenonnx
from tenonnx_serve.openai import logprobs
from tenonnx_serve.openai.choices import Piece
from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.openai.steps import Job

FINGERPRINT: Final = f"tenonnx-{tenonnx.__version__}"


class Answers(abc.ABC):
    """The form of the answers to one request."""

    @abc.abstractmethod
    def whole(self, texts: Sequence[Sequence[Piece]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, of all pieces of all its texts."""

    @abc.abstractmethod
    def chunks(
        self, index: int, piece: Piece, *, first: bool, tells_usage: bool
    ) -> Iterable[dict[str, Any]]:
        """Return what a stream tells of a piece of a text."""

    @abc.abstractmethod
    def ends(self, usage: dict[str, Any], *, tells_usage: bool) -> Iterable[dict[str, Any]]:
        """Return what a stream tells after all pieces."""


class ChoiceAnswers(Answers):
    """Answers that are choices, one for each text.

    Args:
        model: Who answers.
        name: What the client calls the model: it may name an adapter, too.

    Attributes:
        kind: What the answer is called.
        chunk_kind: What a chunk is called.
        prefix: What its name begins with.
    """

    kind, chunk_kind, prefix = "", "", ""

    def __init__(self, model: LanguageModel, name: str) -> None:
        self.model = model
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "object": self.kind,
            "created": int(time.time()),
            "model": name,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, texts: Sequence[Sequence[Piece]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, of all pieces of all its texts."""
        choices = [self._choice(index, pieces) for index, pieces in enumerate(texts)]
        return {**self._head, "choices": choices, "usage": usage}

    def chunks(
        self, index: int, piece: Piece, *, first: bool, tells_usage: bool
    ) -> Iterable[dict[str, Any]]:
        """Return a chunk with a piece of a text."""
        choices = [self._delta(index, piece, first)]
        head = {**self._head, "object": self.chunk_kind, "choices": choices}
        return [{**head, "usage": None} if tells_usage else head]

    def ends(self, usage: dict[str, Any], *, tells_usage: bool) -> Iterable[dict[str, Any]]:
        """Return the chunk that tells what was used, if it is asked for."""
        head = {**self._head, "object": self.chunk_kind, "choices": []}
        return [{**head, "usage": usage}] if tells_usage else []

    @abc.abstractmethod
    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]: ...


class ChatAnswers(ChoiceAnswers):
    """Answers to chats."""

    kind, chunk_kind, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        calls = [call for piece in pieces for call in piece.calls]
        message: dict[str, Any] = {"role": "assistant", "content": text or None if calls else text}
        message["refusal"] = None
        if calls:
            message["tool_calls"] = calls
        return {
            "index": index,
            "message": message,
            "logprobs": self._chances(pieces),
            "finish_reason": pieces[-1].finish,
        }

    def _delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": "assistant", "content": ""} if first else {}
        if piece.text:
            delta["content"] = piece.text
        if piece.calls:
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(piece.calls)]
        return {
            "index": index,
            "delta": delta,
            "logprobs": self._chances([piece]),
            "finish_reason": piece.finish or None,
        }

    def _chances(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        steps = [piece.step for piece in pieces if piece.step is not None]
        return logprobs.of_chat(self.model, steps) if steps else None


class CompletionAnswers(ChoiceAnswers):
    """Texts that were continued.

    Args:
        model: Who continues them.
        name: What the client calls the model.
        jobs: The texts.
        echoes: What each begins with, if it is told again.
    """

    kind = chunk_kind = "text_completion"
    prefix = "cmpl"

    def __init__(
        self, model: LanguageModel, name: str, jobs: Sequence[Job], echoes: Sequence[str] = ()
    ) -> None:
        super().__init__(model, name)
        self._jobs, self._echoes = jobs, echoes
        self._offsets: dict[int, int] = {}

    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        return self._choice_of(index, pieces, first=True)

    def _delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        return self._choice_of(index, [piece], first=first)

    def _choice_of(self, index: int, pieces: Sequence[Piece], *, first: bool) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        return {
            "index": index,
            "text": (self._echoes[index] if first and self._echoes else "") + text,
            "logprobs": self._chances(index, pieces, first=first),
            "finish_reason": pieces[-1].finish or None,
        }

    def _chances(
        self, index: int, pieces: Sequence[Piece], *, first: bool
    ) -> dict[str, Any] | None:
        chances: list[logprobs.Chances] = []
        job = self._jobs[index]
        if first and job.tells_prompt:
            chances += [[(int(job.prompt[0]), None)], *job.prompt_chances]
        chances += [piece.step.chances for piece in pieces if piece.step is not None]
        if not chances:
            return None
        start = self._offsets.get(index, 0)
        told = logprobs.of_completion(self.model, chances, start)
        self._offsets[index] = start + sum(map(len, told["tokens"]))
        return told
