"""``Request``: a session of turns that an engine answers beside others."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.search import log_probabilities, search_of
from tenonnx_generate.stops import StopStrings
from tenonnx_generate.tensor import Tensor
from tenonnx_generate.turns import (
    EngineErrorCode,
    EngineEvent,
    EngineEventFlags,
    FinishReason,
    TurnOptions,
    TurnUsage,
)

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapter
    from tenonnx_generate.engine import Engine
    from tenonnx_generate.model import Model
    from tenonnx_generate.tokenizer import Tokenizer

NDArray = np.ndarray[Any, np.dtype[Any]]


# Logits of a prompt's tokens that are there at once, where their chances are asked for.
MAX_LOGITS = 1 << 23


class Turn:
    """One turn of a request: a prompt, and the tokens after it.

    Args:
        request: Whose it is.
        number: Which of the request's turns it is.
        options: How tokens are chosen.
        start: How many tokens the request had before.
        mail: Where its events go, if not to whoever runs the engine.
        reader: What makes text of tokens, if that is asked for.
    """

    def __init__(
        self,
        request: Request,
        number: int,
        options: TurnOptions,
        start: int,
        mail: deque[EngineEvent] | None,
        reader: Tokenizer | None,
    ) -> None:
        self.request, self.number, self.start, self.mail = request, number, start, mail
        self.prompt = request.count
        most = options.max_generated
        self.end = request.limit if most is None else min(request.limit, self.prompt + most)
        least = self.prompt + options.min_generated
        self.search = search_of(options.params, 0, min_length=least)
        self.search.begin = self.prompt
        self._ends = options.params.ends
        self._top, self._prompt_top = options.logprobs, options.prompt_logprobs
        self.chances: list[list[tuple[int, float]]] | None = None
        self.piece = self.prompt
        if self._prompt_top is not None:
            self.chances = []
            self.piece = max(MAX_LOGITS // request.model.description.vocabulary, 1)
        self._stops = StopStrings(options.stops)
        self._stream = None if reader is None else reader.create_stream()
        self.slot: int | None = None
        self.cached = 0
        self.over = False
        self._began = self.taken = time.perf_counter()
        """The times when it began to wait and when it took its slot, in seconds."""

    def tell_prompt(self, start: int, logits: NDArray) -> None:
        """Take the logits [tokens, vocabulary] that follow some tokens of the prompt."""
        if self.chances is not None and self._prompt_top is not None:
            followed = self.request.tokens[start + 1 : self.prompt]
            for token, each in zip(followed, logits, strict=False):  # the last is of the answer
                self.chances.append(log_probabilities(each, int(token), self._prompt_top))

    def event(self, token: int, logits: NDArray) -> EngineEvent:
        """Return what the choice of a token comes to; the request has the token from then on."""
        request = self.request
        ends = token in self._ends
        if not ends:
            request.append(token)
        text = "" if ends or self._stream is None else self._stops.take(self._stream.decode(token))
        reason = self._reason(ends)
        if reason and not self._stops.stopped:
            text += self._rest()
        flags = EngineEventFlags.NONE if ends else EngineEventFlags.TOKEN
        if reason:
            flags |= EngineEventFlags.TURN_FINISHED
        found = None if self._top is None else log_probabilities(logits, token, self._top)
        chances, self.chances = self.chances, None
        return EngineEvent(
            flags=flags,
            request=request,
            turn_id=self.number,
            token=None if ends else token,
            finish_reason=reason,
            matched_stop_string_index=self._stops.matched,
            usage=self._usage() if reason else TurnUsage(),
            text=text,
            logprobs=found,
            prompt_logprobs=chances,
        )

    def ended(self, reason: FinishReason, error: Exception | None = None) -> EngineEvent:
        """Return the event of a turn that is cut off."""
        failed = EngineEventFlags.FAILED if error is not None else EngineEventFlags.NONE
        code = EngineErrorCode.ENGINE_EXECUTION_FAILURE if error else EngineErrorCode.NONE
        return EngineEvent(
            flags=EngineEventFlags.TURN_FINISHED | failed,
            request=self.request,
            turn_id=self.number,
            finish_reason=reason,
            error_code=code,
            usage=self._usage(),
            error=error,
        )

    def _reason(self, ends: bool) -> FinishReason:
        if ends:
            return FinishReason.EOS
        if self._stops.stopped:
            return FinishReason.STOP_STRING
        if self.request.count < self.end:
            return FinishReason.NONE
        if self.end == self.request.limit:
            return FinishReason.MAX_SESSION_TOKENS
        return FinishReason.MAX_GENERATED_TOKENS

    def _rest(self) -> str:
        if self._stream is None:
            return ""
        return self._stops.take(self._stream.finish()) + self._stops.finish()

    def _usage(self) -> TurnUsage:
        return TurnUsage(
            self.prompt - self.start,
            self.request.count - self.prompt,
            self.cached,
            self.taken - self._began,
        )


class Request:
    """A sequence of turns, each a prompt and an answer, that an engine runs beside others.

    Made by ``Engine.create_request``. Between turns it has tokens, and the engine keeps their
    caches as long as there is room; it runs them again otherwise.

    Attributes:
        engine: The engine.
        limit: How many tokens all turns may have.
        cache_salt: Requests share caches with those that have the same one.
        adapter: The adapter that its tokens are run with, if any.
    """

    def __init__(self, engine: Engine, limit: int, cache_salt: str = "") -> None:
        self.engine, self.limit, self.cache_salt = engine, limit, cache_salt
        self.adapter: Adapter | None = None
        self._tokens = np.zeros(limit, np.int32)
        self.count = 0
        self._starts: list[int] = []
        self.turn: Turn | None = None
        self._closed = False

    @property
    def model(self) -> Model:
        """The engine's model."""
        return self.engine.model

    @property
    def tokens(self) -> NDArray:
        """The tokens of all turns so far."""
        return self._tokens[: self.count]

    def append(self, token: int) -> None:
        """Append a token that came."""
        self._tokens[self.count] = token
        self.count += 1

    def begin_turn(self, tokens: Any, turn_options: TurnOptions | None = None) -> int:
        """Begin a turn: the engine runs it with those of other requests.

        Args:
            tokens: The prompt's ids; what the request had before comes before them.
            turn_options: How tokens are chosen; what is changed later has no effect.

        Returns:
            The turn's number.

        Raises:
            Refused: The tokens cannot be, or are too many, a turn is on, or as many wait as may;
                the request is as before.
        """
        return self._begun(tokens, turn_options, None).number

    def stream(self, tokens: Any, turn_options: TurnOptions | None = None) -> TurnStream:
        """Begin a turn, and return its events to iterate over; they go nowhere else.

        For programs that have a thread for each request: the threads that wait for events take
        turns in running the engine.

        Raises:
            Refused: As ``begin_turn`` says.
        """
        mail: deque[EngineEvent] = deque()
        return TurnStream(self._begun(tokens, turn_options, mail), mail)

    def set_draft_tokens(self, tokens: Any) -> None:  # noqa: ARG002 - onnxruntime-genai's
        """Refuse drafted tokens: the steps of an engine check none.

        Raises:
            Unsupported: Always.
        """
        raise Unsupported(
            "an engine takes no draft tokens",
            hint="a Generator checks them: see GeneratorParams.set_draft_model",
        )

    def cancel_turn(self, turn_id: int) -> bool:
        """End a turn where it is: its slot is free for others. Return whether it was on."""
        with self.engine.lock:
            turn = self.turn
            if turn is None or turn.number != turn_id:
                return False
            self.engine.finish(turn, turn.ended(FinishReason.CANCELLED))
            return True

    def rewind_to_start_of_turn(self, turn_id: int) -> None:
        """Go back to where a turn began; its number and those after it are not used again.

        Raises:
            Refused: There was no such turn, one is on, or the request is closed.
        """
        with self.engine.lock:
            self._check()
            if not 1 <= turn_id <= len(self._starts) or self._starts[turn_id - 1] > self.count:
                raise Refused(f"there was no turn {turn_id} to go back to")
            self.count = self._starts[turn_id - 1]

    def close(self) -> None:
        """End the turn that is on, if any, and the request."""
        with self.engine.lock:
            if self.turn is not None:
                self.cancel_turn(self.turn.number)
            if self.adapter is not None:
                self.adapter.users.discard(self)
            self._closed = True

    def __enter__(self) -> Request:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self) -> None:
        if self._closed:
            raise Refused("the request is closed", hint="make another with create_request")
        if self.turn is not None:
            raise Refused(
                f"turn {self.turn.number} is on", hint="run the engine to its end, or cancel it"
            )

    def _begun(
        self, tokens: Any, options: TurnOptions | None, mail: deque[EngineEvent] | None
    ) -> Turn:
        added = self._checked(tokens)
        held = TurnOptions(self) if options is None else options
        reader = self.engine.tokenizer if held.text or held.stops else None
        with self.engine.lock:
            self._check()
            start = self.count
            if start + len(added) >= self.limit:
                raise Refused(
                    f"{len(added)} tokens after {start} leave no room for an answer: the request "
                    f"may have {self.limit} in all",
                    hint="RequestOptions.set_max_session_tokens sets how many",
                )
            self._tokens[start : start + len(added)] = added
            self.count = start + len(added)
            try:
                turn = Turn(self, len(self._starts) + 1, held, start, mail, reader)
                self.engine.wait(turn)
            except BaseException:
                self.count = start
                raise
            self._starts.append(start)
            self.turn = turn
            return turn

    def _checked(self, tokens: Any) -> NDArray:
        array = np.asarray(tokens.as_numpy() if isinstance(tokens, Tensor) else tokens)
        if not array.size or array.dtype.kind not in "iu" or array.ndim > 2:
            raise Refused(f"tokens are {array.dtype}{list(array.shape)}; expected whole numbers")
        if array.ndim == 2 and len(array) != 1:
            raise Refused(f"tokens are of {len(array)} sequences; a request has one")
        array, most = array.reshape(-1), self.model.description.vocabulary
        if (outside := (array < 0) | (array >= most)).any():
            raise Refused(f"there is no token {array[outside][0]}: they are 0 to {most - 1}")
        return array


class TurnStream:
    """The events of a turn, in order; ends after the one that says why it did.

    Args:
        turn: The turn.
        mail: Where its events come.
    """

    def __init__(self, turn: Turn, mail: deque[EngineEvent]) -> None:
        self._turn, self._mail = turn, mail

    @property
    def turn_id(self) -> int:
        """The turn's number."""
        return self._turn.number

    def __iter__(self) -> TurnStream:
        return self

    def __next__(self) -> EngineEvent:
        engine = self._turn.request.engine
        while not self._mail:
            if self._turn.over:
                raise StopIteration
            engine.advance(lambda: bool(self._mail))
        return self._mail.popleft()

    def close(self) -> None:
        """Cancel the turn, if it is on."""
        self._turn.request.cancel_turn(self._turn.number)

    def __enter__(self) -> TurnStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
