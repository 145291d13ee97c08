"""Requests to an engine and its answers: options of a turn, and events."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenonnx_generate.errors import Refused
from tenonnx_generate.options import GeneratorParams
from tenonnx_generate.stops import StopStrings

if TYPE_CHECKING:
    from tenonnx_generate.adapters import Adapters
    from tenonnx_generate.request import Request


class FinishReason(enum.IntEnum):
    """Why a turn ended."""

    NONE = 0
    EOS = 1
    STOP_STRING = 2
    MAX_GENERATED_TOKENS = 3
    MAX_SESSION_TOKENS = 4
    CANCELLED = 5
    FAILED = 6


class EngineErrorCode(enum.IntEnum):
    """The reason why a turn failed; ``EngineEvent.error`` says it in words."""

    NONE = 0
    CAPACITY_DEFERRED = 1
    EXECUTION_CAPACITY_EXCEEDED = 2
    RETRYABLE_EXECUTION = 3
    REQUEST_UNSERVICEABLE = 4
    ENGINE_CONTRACT_FAILURE = 5
    ENGINE_EXECUTION_FAILURE = 6


class EngineEventFlags(enum.IntFlag):
    """The contents of an event."""

    NONE = 0
    TOKEN = 1
    TURN_FINISHED = 2
    CAPACITY_BLOCKED = 4
    FAILED = 8
    RETRYABLE = 16


@dataclass(frozen=True)
class TurnUsage:
    """The numbers of a turn's tokens; of one that goes on, all are 0.

    Attributes:
        prompt_tokens: Those that it was begun with.
        generated_tokens: Those that were appended to them.
        cached_prompt_tokens: Of the sequence up to the prompt's end, those whose caches were there.
        queue_seconds: How long the turn waited for a slot of the caches.
    """

    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_prompt_tokens: int = 0
    queue_seconds: float = 0.0


@dataclass(frozen=True)
class EngineEvent:
    """A token that came, a turn that ended, or both.

    Attributes:
        flags: Which of them.
        request: Whose it is.
        turn_id: What ``begin_turn`` returned.
        token: The token; ``None`` if none came: what ends a text is none.
        finish_reason: Why the turn ended; ``NONE`` if it goes on.
        matched_stop_string_index: Which of the stop strings ended it.
        error_code: What went wrong.
        usage: Of a turn that ended, how many tokens it had.
        text: What is to be said now, where the turn has stop strings or asks for text.
        logprobs: Where the turn asks for it, as ``Generator.get_next_logprobs`` has them.
        error: The exception that a turn failed with.
        prompt_logprobs: With the first token, where the turn asks for it: for each token of the
            prompt but the first, the same as ``logprobs``.
    """

    flags: EngineEventFlags
    request: Request
    turn_id: int
    token: int | None = None
    finish_reason: FinishReason = FinishReason.NONE
    matched_stop_string_index: int | None = None
    error_code: EngineErrorCode = EngineErrorCode.NONE
    usage: TurnUsage = TurnUsage()
    text: str = ""
    logprobs: list[tuple[int, float]] | None = None
    error: Exception | None = None
    prompt_logprobs: list[list[tuple[int, float]]] | None = None


class RequestOptions:
    """The options of all turns of a request."""

    def __init__(self) -> None:
        self.max_session_tokens: int | None = None
        self.adapter: tuple[Adapters, str] | None = None
        self.cache_salt = ""

    def set_max_session_tokens(self, count: int) -> None:
        """Set how many tokens all turns may have together; checked by ``create_request``."""
        self.max_session_tokens = int(count)

    def set_active_adapter(self, adapters: Adapters, adapter_name: str) -> None:
        """Set the adapter that the request's tokens are run with; ``create_request`` finds it."""
        self.adapter = (adapters, adapter_name)

    def set_cache_salt(self, salt: str) -> None:
        """Set a text; only requests with the same one share the caches of equal prompts.

        How long a prompt takes then tells nobody else whether another request had it.
        """
        self.cache_salt = salt


class TurnOptions:
    """The choice of a turn's tokens, at first as the folder's ``search`` says.

    Args:
        request: The request that gets the turn.
    """

    def __init__(self, request: Request) -> None:
        self._model = request.model
        self.reset()

    def reset(self) -> None:
        """Forget all that was set."""
        self.params = GeneratorParams(self._model)
        self.params.set_search_options(min_length=0)
        self.max_generated: int | None = None
        self.min_generated = 0
        self.stops: tuple[str, ...] = ()
        self.text = False
        self.logprobs: int | None = None
        self.prompt_logprobs: int | None = None

    def set_search_options(self, **options: bool | int | float) -> None:
        """Set search options by name, as ``GeneratorParams`` does.

        Raises:
            Refused: There is no such option for a turn, or it cannot have the value.
        """
        for name in ("batch_size", "max_length", "min_length"):
            if name in options:
                raise Refused(
                    f"a turn has no search option {name!r}",
                    hint="see set_max_generated_tokens and set_min_generated_tokens",
                )
        for name in ("num_beams", "num_return_sequences"):
            if options.get(name, 1) != 1:
                raise Refused(
                    f"a turn has no search option {name!r}", hint="a Generator searches by beams"
                )
        self.params.set_search_options(**options)

    def set_max_generated_tokens(self, count: int) -> None:
        """Set how many tokens may come; without, as many as the request may have.

        Raises:
            Refused: It is less than 1.
        """
        if count < 1:
            raise Refused(f"max_generated_tokens is {count}; expected at least 1")
        self.max_generated = int(count)

    def set_min_generated_tokens(self, count: int) -> None:
        """Set how many tokens come before one may end the text.

        Raises:
            Refused: It is less than 0.
        """
        if count < 0:
            raise Refused(f"min_generated_tokens is {count}; expected at least 0")
        self.min_generated = int(count)

    def set_do_sample(self, value: bool) -> None:
        """Set whether tokens are drawn at random; if not, the likeliest is taken."""
        self.set_search_options(do_sample=value)

    def set_temperature(self, value: float) -> None:
        """Set the temperature; a higher one draws unlikely tokens more often."""
        self.set_search_options(temperature=value)

    def set_top_p(self, value: float) -> None:
        """Draw from the likeliest tokens whose probabilities add up to this value."""
        self.set_search_options(top_p=value)

    def set_top_k(self, value: int) -> None:
        """Draw from this number of the likeliest tokens; 0 means all."""
        self.set_search_options(top_k=value)

    def set_repetition_penalty(self, value: float) -> None:
        """Lower the scores of tokens that the text has already by a factor; 1 changes nothing."""
        self.set_search_options(repetition_penalty=value)

    def set_no_repeat_ngram_size(self, value: int) -> None:
        """Allow each run of this many tokens once; 0 means no limit."""
        self.set_search_options(no_repeat_ngram_size=value)

    def set_seed(self, value: int) -> None:
        """Have turns with this seed draw the same numbers.

        Requests in the same batch can still decide a near tie, as kernels round differently.
        """
        self.set_search_options(random_seed=value)

    def clear_seed(self) -> None:
        """Draw other numbers in each turn."""
        self.set_search_options(random_seed=-1)

    def set_stop_strings(self, strings: Sequence[str]) -> None:
        """End the text before one of some strings; ``EngineEvent.text`` leaves it out.

        Raises:
            Refused: One is empty, or they are none.
        """
        if isinstance(strings, str) or not all(isinstance(each, str) for each in strings):
            raise Refused(f"stop strings are {strings!r:.60}; expected a list of texts")
        StopStrings(strings)
        self.stops = tuple(strings)

    def set_guidance(self, kind: str, data: str) -> None:
        """Hold what is generated to a schema or grammar, as ``GeneratorParams`` does."""
        self.params.set_guidance(kind, data)

    def clear_guidance(self) -> None:
        """Hold it to nothing."""
        self.params.guidance = None

    def set_text(self, value: bool) -> None:
        """Set whether events have the text of the answer."""
        self.text = bool(value)

    def set_logprobs(self, top: int | None) -> None:
        """Set how many of the likeliest tokens events have, besides the one that came."""
        self.logprobs = None if top is None else int(top)

    def set_prompt_logprobs(self, top: int | None) -> None:
        """Set how many of the likeliest tokens are told at each token of the prompt."""
        self.prompt_logprobs = None if top is None else int(top)

    def search_options(self) -> dict[str, Any]:
        """Return all search options."""
        return self.params.get_search_options()
