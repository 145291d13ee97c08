"""``Engine``: one model that answers many requests at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tenonnx_generate.decoder import Decoder
from tenonnx_generate.engine_values import EngineCapabilities, EngineEventBuffer, EngineLoad
from tenonnx_generate.errors import Refused, Unsupported
from tenonnx_generate.model import Model
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.request import Request, Turn
from tenonnx_generate.slots import Slots
from tenonnx_generate.tokenizer import Tokenizer
from tenonnx_generate.turns import (
    EngineEvent,
    FinishReason,
    RequestOptions,
)

NDArray = np.ndarray[Any, np.dtype[Any]]

# The number of requests that a step serves, unless the engine is told otherwise.
DEFAULT_ROWS = 4

# The most turns that wait for a slot.
MAX_WAITING_TURNS = 256

# Tokens of prompts that are run between two tokens of the others.
MAX_PROMPT_TOKENS_PER_STEP = 512


class Engine:
    """The turns of many requests, a token of each in one step of the model.

    Any thread may begin, cancel and close at any time. One runs the engine at a time; others that
    would wait.

    A turn that fits takes a slot of the caches when the prompts before it have been run. Its own is
    run by itself, in pieces, between the steps of the others. Then it is a row of each step until
    it ends; what it leaves in the slot stays for those that begin with the same tokens.

    Args:
        model: The model; its graph writes caches in place (``past_present_share_buffer``).
        max_batch_size: How many requests a step serves.
        max_total_tokens: How many tokens the turns that are run may have together, at their
            ends; 0: as many as the slots hold.
        max_waiting_turns: How many turns may wait.
        max_scheduled_tokens: How many tokens of prompts a step runs beside the others' rows.
        max_kept_tokens: How many tokens of ended turns may keep their caches; without, as many
            as a request may have.

    Raises:
        Refused: One of them is less than it can be.
        Unsupported: The model's caches do not stay in place, or it has an encoder.
        RuntimeException: There is no room for the caches.
    """

    def __init__(
        self,
        model: Model,
        *,
        max_batch_size: int = DEFAULT_ROWS,
        max_total_tokens: int = 0,
        max_waiting_turns: int = MAX_WAITING_TURNS,
        max_scheduled_tokens: int = MAX_PROMPT_TOKENS_PER_STEP,
        max_kept_tokens: int | None = None,
    ) -> None:
        params = GeneratorParams(model)
        _check_kind(model, params)
        self.model, length = model, params.max_length
        for name, value, least in (
            ("max_batch_size", max_batch_size, 1),
            ("max_total_tokens", max_total_tokens, 0),
            ("max_waiting_turns", max_waiting_turns, 1),
            ("max_scheduled_tokens", max_scheduled_tokens, 1),
        ):
            if value < least:
                raise Refused(f"{name} is {value}; expected at least {least}")
        self._can = EngineCapabilities(
            max_batch_size,
            max_scheduled_tokens,
            length,
            max_total_tokens or max_batch_size * length,
            max_waiting_turns,
        )
        self._decoder = Decoder(model, max_batch_size, length, in_place=True)
        self._slots = Slots(self._decoder, length if max_kept_tokens is None else max_kept_tokens)
        self.lock = threading.RLock()
        """Held for what is short: never while the model runs."""
        self._changed = threading.Condition(self.lock)
        self._running = False
        self._waiting: deque[Turn] = deque()
        self._active: list[Turn] = []
        self._events: deque[EngineEvent] = deque()
        self._tokenizer: Tokenizer | None = None

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, for turns that ask for text."""
        if self._tokenizer is None:
            self._tokenizer = Tokenizer(self.model)
        return self._tokenizer

    def create_request(self, *, options: RequestOptions | None = None) -> Request:
        """Return a request without turns.

        Raises:
            Refused: The options ask for more tokens than there may be, or for an adapter that
                there is not.
        """
        most = self._can.max_request_length
        asked = None if options is None else options.max_session_tokens
        limit = most if asked is None else asked
        if not 1 <= limit <= most:
            raise Refused(
                f"max_session_tokens is {limit}; expected 1 to {most}, the model's max_length"
            )
        made = Request(self, limit, "" if options is None else options.cache_salt)
        if options is not None and options.adapter is not None:
            adapters, name = options.adapter
            made.adapter = adapters.used_by(made, self.model, name)
        return made

    def create_event_buffer(self, capacity: int) -> EngineEventBuffer:
        """Return what ``run`` puts events into."""
        return EngineEventBuffer(capacity)

    def get_capabilities(self) -> EngineCapabilities:
        """Return what the engine can do at most."""
        return self._can

    def get_load(self) -> EngineLoad:
        """Return what the engine does now."""
        with self.lock:
            held, rows = sum(self._decoder.lengths), len(self._decoder.lengths)
            share = held / (rows * self._can.max_request_length)
            return EngineLoad(len(self._active), len(self._waiting), share)

    def has_pending_requests(self) -> bool:
        """Return whether turns are on, or events are there that ``run`` has not returned."""
        with self.lock:
            return bool(self._active or self._waiting or self._events)

    def run(self, buffer: EngineEventBuffer) -> EngineEventBuffer:
        """Run a step, unless events of an earlier one are left; fill the buffer with events.

        Waits while another thread runs the engine.
        """
        self.advance(lambda: bool(self._events))
        with self.lock:
            count = min(buffer.capacity, len(self._events))
            buffer.events = [self._events.popleft() for _ in range(count)]
        return buffer

    def advance(self, reached: Callable[[], bool]) -> None:
        """Wait for the step that another thread runs; run one unless something is so by then."""
        with self.lock:
            while self._running and not reached():
                self._changed.wait()
            if reached():
                return
            self._running = True
        try:
            self._step()
        finally:
            with self.lock:
                self._running = False
                self._changed.notify_all()

    def wait(self, turn: Turn) -> None:
        """Take a turn that is to be run.

        Raises:
            Refused: It asks for more than can be, or too many wait.
        """
        if turn.end > self._can.max_total_tokens:
            raise Refused(
                f"the turn may have {turn.end} tokens; the engine has room for "
                f"{self._can.max_total_tokens}",
                hint="set_max_generated_tokens says how many come at most",
            )
        if len(self._waiting) >= self._can.max_waiting_turns:
            raise Refused(
                f"{len(self._waiting)} turns wait already, as many as may",
                hint="begin it again when others have ended",
            )
        self._waiting.append(turn)

    def finish(self, turn: Turn, event: EngineEvent) -> None:
        """End a turn with an event; its slot is free, and what it has may be of use."""
        turn.over, turn.request.turn = True, None
        if turn.slot is None:
            self._waiting.remove(turn)
        else:
            self._active.remove(turn)
            self._slots.leave(turn.slot, turn.request.tokens[: self._decoder.lengths[turn.slot]])
        self._post(turn, event)

    def _post(self, turn: Turn, event: EngineEvent) -> None:
        (self._events if turn.mail is None else turn.mail).append(event)

    def _step(self) -> None:
        """Run pieces of prompts, and a token of each turn that had its prompt run before."""
        # Chosen ahead of the prompts: a turn whose prompt ends in this step has a token by then.
        with self.lock:
            rows = [turn for turn in self._active if self._new(turn) <= 1]
        left = self._can.max_scheduled_tokens
        while left > 0 and (turn := self._next_prompt()) is not None:
            left -= self._run_prompt(turn, left)
        if rows:
            self._run_rows(rows)

    def _new(self, turn: Turn) -> int:
        assert turn.slot is not None
        return turn.request.count - self._decoder.lengths[turn.slot]

    def _next_prompt(self) -> Turn | None:
        """Return the turn whose prompt is run next; one that waited takes its slot with that."""
        with self.lock:
            for turn in self._active:
                if self._new(turn) > 1:
                    return turn
            if not self._waiting:
                return None
            # The oldest turn alone: a large one would wait for ever if small ones went past it.
            turn = self._waiting[0]
            reserved = sum(each.end for each in self._active)
            if reserved + turn.end > self._can.max_total_tokens:
                return None
            scope = _number(turn), turn.request.cache_salt
            # Chances of a prompt's tokens come of running them: no caches of others will do.
            known = turn.request.tokens if turn.chances is None else turn.request.tokens[:1]
            found = self._slots.take(known, scope)
            if found is None:
                return None
            turn.slot, turn.cached = found
            turn.taken = time.perf_counter()
            self._active.append(self._waiting.popleft())
            return turn

    def _run_prompt(self, turn: Turn, most: int) -> int:
        """Run at most so many tokens of a prompt; return how many."""
        with self.lock:
            if turn.over:
                return 0
            row, request = turn.slot, turn.request
            assert row is not None
            had = self._decoder.lengths[row]
            part = request.tokens[had : had + min(most, turn.piece)].copy()
        every = turn.chances is not None
        try:
            logits = self._decoder.run(row, part[None], {row: request.adapter}, every=every)
            if every:
                turn.tell_prompt(had, logits[0])
                logits = logits[:, -1]
        except Exception as error:
            self._fail(turn, error)
            return len(part)
        # Cancelled while the model ran: its slot may belong to another turn by now.
        with self.lock:
            if not turn.over:
                self._slots.written(row, request.tokens[: had + len(part)])
        if had + len(part) == request.count:
            self._choose(turn, logits[0])
        return len(part)

    def _run_rows(self, turns: list[Turn]) -> None:
        """Run a token of each of some turns, all in one run if their adapters can be in one."""
        if self.model.adapter_inputs.share_a_run(turn.request.adapter for turn in turns):
            self._run_together(turns)
            return
        for number in sorted(set(map(_number, turns))):
            self._run_together([turn for turn in turns if _number(turn) == number])

    def _run_together(self, turns: list[Turn]) -> None:
        """Run a token of each of some turns; one by one if that fails, to find who fails it."""
        with self.lock:
            turns = sorted((turn for turn in turns if not turn.over), key=_slot)
            if not turns:
                return
            moved = self._slots.closed_up(list(map(_slot, turns)))
            if moved is not None:
                turns[-1].slot = moved[1]
                turns.sort(key=_slot)
            first, count = _slot(turns[0]), _slot(turns[-1]) - _slot(turns[0]) + 1
            tokens = np.zeros((count, 1), np.int32)
            for turn in turns:
                tokens[_slot(turn) - first] = turn.request.tokens[-1]
                # Where an earlier step was broken off after its run, the token is run again.
                self._decoder.lengths[_slot(turn)] = turn.request.count - 1
            # A run is of consecutive rows. Those in between take part with a token of no meaning;
            # their lengths are put back, so that nothing of it counts.
            gaps = set(range(first, first + count)) - set(map(_slot, turns))
            for row in gaps:
                self._slots.settle(row)
            lengths = {row: self._decoder.lengths[row] for row in gaps}
            adapters = {_slot(turn): turn.request.adapter for turn in turns}
        try:
            logits = self._decoder.run(first, tokens, adapters)
        except Exception as error:
            if len(turns) == 1:
                self._fail(turns[0], error)
            else:
                for turn in turns:
                    self._run_together([turn])
            return
        for row, length in lengths.items():
            self._decoder.lengths[row] = length
        for turn in turns:
            self._choose(turn, logits[_slot(turn) - first])

    def _choose(self, turn: Turn, logits: NDArray) -> None:
        """Choose a turn's next token, and tell of it."""
        try:
            token = turn.search.choose(logits, turn.request.tokens)
            with self.lock:
                if turn.over:
                    return
                event = turn.event(token, logits)
                if event.finish_reason:
                    self.finish(turn, event)
                else:
                    self._post(turn, event)
        except Exception as error:
            self._fail(turn, error)

    def _fail(self, turn: Turn, error: Exception) -> None:
        with self.lock:
            if not turn.over:
                self.finish(turn, turn.ended(FinishReason.FAILED, error))


def _slot(turn: Turn) -> int:
    assert turn.slot is not None
    return turn.slot


def _number(turn: Turn) -> int:
    """Return the number of a turn's adapter, of which its caches are; 0 without one."""
    adapter = turn.request.adapter
    return 0 if adapter is None else adapter.number


def _check_kind(model: Model, params: GeneratorParams) -> None:
    if model.encoder is not None or model.vision is not None:
        raise Unsupported(
            f"an engine runs no model with an encoder, such as one of the type {model.type!r}",
            hint="a Generator runs it",
        )
    if model.states:
        raise Unsupported(
            f"an engine shares caches that go back, and the states of {model.type} cannot",
            hint="a Generator runs it",
        )
    options = params.get_search_options()
    if not options["past_present_share_buffer"]:
        raise Unsupported(
            "an engine's caches stay in place",
            hint="set past_present_share_buffer, if the graph has GroupQueryAttention",
        )
    if (beams := options["num_beams"]) > 1:
        raise Unsupported(
            f"search has num_beams {beams}; the engine continues each request by one beam",
            hint='config.overlay(\'{"search": {"num_beams": 1}}\') before the model is made',
        )
