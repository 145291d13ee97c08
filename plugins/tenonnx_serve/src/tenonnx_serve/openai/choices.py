"""One text of an answer: its pieces, its end and the reason, and the tools that it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_generate import StopStrings, Tokenizer
from tenonnx_serve.openai.steps import Job, Step
from tenonnx_serve.openai.tools import CallReader, Form

STOP, LENGTH, TOOL_CALLS = "stop", "length", "tool_calls"


@dataclass(frozen=True)
class Piece:
    """The piece that a token adds to an answer.

    Attributes:
        text: Some of it, or nothing.
        step: The token, if a client asked for probabilities.
        calls: Tools that are called.
        finish: Why the text has ended, with its last piece.
    """

    text: str = ""
    step: Step | None = None
    calls: Sequence[dict[str, Any]] = ()
    finish: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell."""
        return not (self.text or self.step or self.calls or self.finish)

    @property
    def parts(self) -> Sequence[Piece]:
        """The piece in the order that a stream tells it: why a text has ended comes by itself."""
        if not self.finish:
            return (self,)
        return Piece(self.text, self.step, self.calls), Piece(finish=self.finish)


class Choice:
    """One text of an answer.

    Args:
        job: What generates it.
        tokenizer: The model's.
        stops: Strings that it ends before.
        form: How calls are written, if it may have some.

    Attributes:
        tokens: How many were generated, the one that ended it among them.
        ended: Its last piece was told.
    """

    def __init__(
        self,
        job: Job,
        tokenizer: Tokenizer,
        stops: Sequence[str] = (),
        form: Form | None = None,
    ) -> None:
        self._job = job
        self.tokens, self.ended = 0, False
        self._stream, self._stops = tokenizer.create_stream(), StopStrings(stops)
        self._reader = None if form is None else CallReader(form)
        marks = (form.begin, form.end) if form is not None else ()
        # Special tokens have no text, and these are looked for in it.
        self._marks = {tokenizer.to_token_id(mark): mark for mark in marks if mark}
        self._marks = {
            token: mark
            for token, mark in self._marks.items()
            if token >= 0 and not tokenizer.decode([token])
        }

    def take(self, step: Step) -> Piece:
        """Return what a token adds; the last piece says why the text has ended."""
        if self._job.is_empty:
            return self._ended(Piece(finish=LENGTH))
        self.tokens += 1
        said = step if step.chances and not step.ends else None
        if step.ends:
            return self._last(STOP, said)
        text = self._stream.decode(step.token) + self._marks.get(step.token, "")
        text = self._stops.take(self._reader.take(text) if self._reader else text)
        if self._stops.stopped:
            return self._ended(Piece(text, said, finish=STOP))
        return Piece(text, said)

    def finish(self) -> Piece:
        """Return the last piece of a text that is as long as it may be."""
        return self._last(LENGTH, None)

    def _last(self, why: str, step: Step | None) -> Piece:
        rest, calls = self._stream.finish(), list[dict[str, Any]]()
        if self._reader is not None:
            said = self._reader.take(rest)
            more, calls = self._reader.finish()
            rest = said + more
        text = self._stops.take(rest) + self._stops.finish()
        if self._stops.stopped:
            return self._ended(Piece(text, step, finish=STOP))
        return self._ended(Piece(text, step, calls, TOOL_CALLS if calls and why == STOP else why))

    def _ended(self, piece: Piece) -> Piece:
        self._job.finish()
        self.ended = True
        return piece
