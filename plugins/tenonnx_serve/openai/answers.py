"""Answers in OpenAI's form: whole, and in chunks."""

from __future__ import annotations

import abc
import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

import tenonnx
from tenonnx_serve.openai import logprobs
from tenonnx_serve.openai.choices import Piece
from tenonnx_serve.openai.language_model import LanguageModel
from tenonnx_serve.openai.steps import Step

FINGERPRINT: Final = f"tenonnx-{tenonnx.__version__}"


class Answers(abc.ABC):
    """The form of the answers to one request.

    Args:
        model: Who answers.
        kind: What the answer is called.
        prefix: What its name begins with.
    """

    kind, prefix = "", ""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "object": self.kind,
            "created": int(time.time()),
            "model": model.name,
            "system_fingerprint": FINGERPRINT,
        }

    def whole(self, texts: Sequence[Sequence[Piece]], usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer, of all pieces of all its texts."""
        choices = [self._choice(index, pieces) for index, pieces in enumerate(texts)]
        return {**self._head, "choices": choices, "usage": usage}

    def chunk(self, index: int, piece: Piece, first: bool, usage: bool) -> dict[str, Any]:
        """Returns a chunk with a piece of a text."""
        head = {**self._head, "choices": [self._delta(index, piece, first)]}
        return {**head, "usage": None} if usage else head

    def end(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the chunk that tells what was used."""
        return {**self._head, "choices": [], "usage": usage}

    @abc.abstractmethod
    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]: ...

    @abc.abstractmethod
    def _delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]: ...


class ChatAnswers(Answers):
    """Answers to chats."""

    kind, prefix = "chat.completion", "chatcmpl"

    def chunk(self, index: int, piece: Piece, first: bool, usage: bool) -> dict[str, Any]:
        """Returns a chunk, which has a name of its own."""
        return {**super().chunk(index, piece, first, usage), "object": "chat.completion.chunk"}

    def end(self, usage: dict[str, Any]) -> dict[str, Any]:
        """Returns the last chunk."""
        return {**super().end(usage), "object": "chat.completion.chunk"}

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


class CompletionAnswers(Answers):
    """Texts that were continued.

    Args:
        model: Who continues them.
        echoes: What each begins with, if it is told again.
    """

    kind, prefix = "text_completion", "cmpl"

    def __init__(self, model: LanguageModel, echoes: Sequence[str] = ()) -> None:
        super().__init__(model)
        self._echoes = echoes
        self._offsets: dict[int, int] = {}

    def _choice(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        text = "".join(piece.text for piece in pieces)
        return {
            "index": index,
            "text": (self._echoes[index] if self._echoes else "") + text,
            "logprobs": self._chances(index, pieces),
            "finish_reason": pieces[-1].finish,
        }

    def _delta(self, index: int, piece: Piece, first: bool) -> dict[str, Any]:
        return {
            "index": index,
            "text": (self._echoes[index] if first and self._echoes else "") + piece.text,
            "logprobs": self._chances(index, [piece]),
            "finish_reason": piece.finish or None,
        }

    def _chances(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        steps: list[Step] = [piece.step for piece in pieces if piece.step is not None]
        if not steps:
            return None
        start = self._offsets.get(index, 0)
        told = logprobs.of_completion(self.model, steps, start)
        self._offsets[index] = start + sum(map(len, told["tokens"]))
        return told
