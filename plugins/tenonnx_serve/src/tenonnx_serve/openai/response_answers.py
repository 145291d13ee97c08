"""Answers in the form of OpenAI's Responses API: whole, and as events."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from tenonnx_serve.openai.answers import Answers
from tenonnx_serve.openai.choices import LENGTH, Piece
from tenonnx_serve.openai.responses import ResponsesRequest


class ResponseAnswers(Answers):
    """The answer to one request; it has one text.

    Args:
        asked: The request, of which the answer repeats some fields.
    """

    def __init__(self, asked: ResponsesRequest) -> None:
        self._asked = asked
        self._id, self._created = f"resp_{secrets.token_hex(12)}", time.time()
        self._message = f"msg_{secrets.token_hex(12)}"
        self._numbers = itertools.count()
        self._text, self._finish = "", ""
        self._output: list[dict[str, Any]] = []

    def whole(self, texts: Sequence[Sequence[Piece]], usage: dict[str, Any]) -> dict[str, Any]:
        """Return the answer."""
        for piece in texts[0]:
            for _ in self.chunks(0, piece, first=False, tells_usage=False):
                pass  # events that nobody waits for
        self._close_text()
        return self._response(usage)

    def chunks(
        self,
        index: int,  # noqa: ARG002 - there is one text
        piece: Piece,
        *,
        first: bool,
        tells_usage: bool,  # noqa: ARG002 - it is always told
    ) -> Iterator[dict[str, Any]]:
        """Yield the events of a piece."""
        if first:
            yield self._event("response.created", response=self._response(None))
            yield self._event("response.in_progress", response=self._response(None))
        self._finish = piece.finish or self._finish
        if piece.text:
            if not self._text:
                item = self._item("in_progress", [])
                yield self._event("response.output_item.added", output_index=0, item=item)
                yield self._part("response.content_part.added", part=_content(""))
            self._text += piece.text
            yield self._part("response.output_text.delta", delta=piece.text, logprobs=[])
        for call in piece.calls:
            yield from self._close_text()
            yield from self._called(call)

    def ends(
        self,
        usage: dict[str, Any],
        *,
        tells_usage: bool,  # noqa: ARG002 - it is always told
    ) -> Iterator[dict[str, Any]]:
        """Yield the last events."""
        yield from self._close_text()
        response = self._response(usage)
        yield self._event(f"response.{response['status']}", response=response)

    def _close_text(self) -> list[dict[str, Any]]:
        """Return the events that end the text, if there is one that has not ended."""
        if not self._text or self._output:
            return []
        content = _content(self._text)
        item = self._item("incomplete" if self._finish == LENGTH else "completed", [content])
        self._output.append(item)
        return [
            self._part("response.output_text.done", text=self._text, logprobs=[]),
            self._part("response.content_part.done", part=content),
            self._event("response.output_item.done", output_index=0, item=item),
        ]

    def _called(self, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
        place, said = len(self._output), call["function"]
        item = {
            "type": "function_call",
            "id": f"fc_{secrets.token_hex(12)}",
            "call_id": call["id"],
            "name": said["name"],
            "arguments": said["arguments"],
            "status": "completed",
        }
        self._output.append(item)
        begun = {**item, "arguments": "", "status": "in_progress"}
        yield self._event("response.output_item.added", output_index=place, item=begun)
        names = {"item_id": item["id"], "output_index": place}
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **names, delta=said["arguments"])
        told = {**names, "name": said["name"], "arguments": said["arguments"]}
        yield self._event(f"{kind}.done", **told)
        yield self._event("response.output_item.done", output_index=place, item=item)

    def _event(self, kind: str, **said: Any) -> dict[str, Any]:
        return {"type": kind, "sequence_number": next(self._numbers), **said}

    def _part(self, kind: str, **said: Any) -> dict[str, Any]:
        place = {"item_id": self._message, "output_index": 0, "content_index": 0}
        return self._event(kind, **place, **said)

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        item = {"type": "message", "id": self._message, "status": status, "role": "assistant"}
        return {**item, "content": content}

    def _response(self, usage: dict[str, Any] | None) -> dict[str, Any]:
        asked, cut = self._asked, self._finish == LENGTH
        status = "in_progress" if usage is None else "incomplete" if cut else "completed"
        return {
            "id": self._id,
            "object": "response",
            "created_at": int(self._created),
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": asked.model,
            "output": list(self._output),
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": asked.reasoning and asked.reasoning.effort, "summary": None},
            "store": False,
            "temperature": asked.temperature,
            "text": {"format": msgspec.to_builtins((asked.text and asked.text.format) or PLAIN)},
            "tool_choice": msgspec.to_builtins(asked.tool_choice or "auto"),
            "tools": msgspec.to_builtins(asked.tools or []),
            "top_p": asked.top_p,
            "truncation": "disabled",
            "usage": None if usage is None else _usage(usage),
        }


PLAIN = {"type": "text"}


def _content(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(used: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": used["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": used["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": used["total_tokens"],
    }
