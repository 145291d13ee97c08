"""Engines: requests in one batch against each alone in a generator."""

from __future__ import annotations

import threading

import pytest

from engine_calls import PROMPTS, alone, begin, events, said
from folders import CONTEXT
from tenonnx_generate import (
    Engine,
    EngineEvent,
    EngineEventFlags,
    FinishReason,
    Model,
    RequestOptions,
    TurnOptions,
)
from tenonnx_generate.errors import Refused


def test_requests_that_join_and_leave_answer_as_alone(model: Model) -> None:
    engine = Engine(model, max_batch_size=3)
    counts = [20, 3, 30, 9, 14]
    requests = [engine.create_request() for _ in PROMPTS]
    told: list[EngineEvent] = []
    buffer = engine.create_event_buffer(16)
    for request, prompt, count in zip(requests, PROMPTS, counts, strict=True):
        assert begin(request, prompt, count) == 1
        told += engine.run(buffer)
        told += engine.run(buffer)
    told += events(engine)
    for request, prompt, count in zip(requests, PROMPTS, counts, strict=True):
        assert said(told, request) == alone(model, prompt, count)
        last = [event for event in told if event.request is request][-1]
        came = len(said(told, request))
        assert (last.usage.prompt_tokens, last.usage.generated_tokens) == (len(prompt), came)
        if came == count:
            assert last.finish_reason is FinishReason.MAX_GENERATED_TOKENS
            assert last.flags == EngineEventFlags.TOKEN | EngineEventFlags.TURN_FINISHED
        else:
            assert (last.finish_reason, last.token) == (FinishReason.EOS, None)
            assert last.flags == EngineEventFlags.TURN_FINISHED
    assert not engine.has_pending_requests()
    assert len(engine.run(buffer)) == 0


def test_turns_continue_and_go_back(model: Model) -> None:
    engine = Engine(model)
    with engine.create_request() as request:
        assert begin(request, PROMPTS[0], 5) == 1
        first = said(events(engine), request)
        whole = [*PROMPTS[0], *first, *PROMPTS[1]]
        assert begin(request, PROMPTS[1], 4) == 2
        told = events(engine)
        assert said(told, request) == alone(model, whole, 4)
        assert told[-1].usage.cached_prompt_tokens == len(PROMPTS[0]) + 4
        with pytest.raises(Refused, match="no turn 3"):
            request.rewind_to_start_of_turn(3)
        request.rewind_to_start_of_turn(2)
        assert request.tokens.tolist() == [*PROMPTS[0], *first]
        begin(request, PROMPTS[2], 4)
        expected = alone(model, [*PROMPTS[0], *first, *PROMPTS[2]], 4)
        assert said(events(engine), request) == expected
    with pytest.raises(Refused, match="closed"):
        request.begin_turn([1])


def test_the_end_of_a_session_ends_a_turn(model: Model) -> None:
    engine, options = Engine(model), RequestOptions()
    options.set_max_session_tokens(9)
    request = engine.create_request(options=options)
    request.begin_turn(PROMPTS[0])
    told = events(engine)
    assert said(told, request) == alone(model, PROMPTS[0], 5)
    assert told[-1].finish_reason is FinishReason.MAX_SESSION_TOKENS
    with pytest.raises(Refused, match="leave no room for an answer"):
        request.begin_turn([1])
    for wrong in (0, CONTEXT + 1):
        options.set_max_session_tokens(wrong)
        with pytest.raises(Refused, match="max_session_tokens is"):
            engine.create_request(options=options)


@pytest.mark.parametrize("kept", [CONTEXT, 0])
def test_prompts_that_begin_alike_are_run_once(model: Model, kept: int) -> None:
    engine = Engine(model, max_kept_tokens=kept)
    shared = list(range(20, 60))
    for tail in ([1, 2], [3], [4, 5, 6]):  # one after the other: only what is kept is there
        request = engine.create_request()
        begin(request, [*shared, *tail], 5)
        told = events(engine)
        assert said(told, request) == alone(model, [*shared, *tail], 5)
        cached = told[-1].usage.cached_prompt_tokens
        assert cached == (0 if tail == [1, 2] or not kept else len(shared))
    together = [engine.create_request() for _ in range(4)]
    for number, request in enumerate(together):
        begin(request, [*shared, number], 6)
    told = events(engine)
    for number, request in enumerate(together):
        assert said(told, request) == alone(model, [*shared, number], 6)
        last = [event for event in told if event.request is request][-1]
        assert number == 0 or last.usage.cached_prompt_tokens == len(shared)


def test_long_prompts_do_not_hold_the_others_up(model: Model) -> None:
    engine = Engine(model, max_scheduled_tokens=8)
    quick, slow = engine.create_request(), engine.create_request()
    buffer = engine.create_event_buffer(8)
    begin(quick, PROMPTS[0], 9)
    engine.run(buffer)
    begin(slow, list(range(40)), 3)
    told = []
    for _ in range(4):  # of five that the prompt takes
        told += engine.run(buffer)
        assert [event.request for event in buffer] == [quick]
    told += events(engine)
    assert said(told, slow) == alone(model, list(range(40)), 3)
    assert said(told, quick) == alone(model, PROMPTS[0], 9)[1:]


def test_a_gap_is_closed_when_it_has_cost_enough(model: Model) -> None:
    engine = Engine(model, max_kept_tokens=0)
    requests = [engine.create_request() for _ in range(3)]
    for request, prompt, count in zip(requests, PROMPTS, (2, 40, 40), strict=False):
        begin(request, prompt, count)
    told = events(engine)
    for request, prompt, count in zip(requests, PROMPTS, (2, 40, 40), strict=False):
        assert said(told, request) == alone(model, prompt, count)
    assert max(engine._decoder.lengths[:2]) == 0
    assert engine._slots.left == 0


def test_options_are_of_each_turn(model: Model) -> None:
    engine = Engine(model)
    requests = [engine.create_request() for _ in range(4)]
    drawn = {"do_sample": True, "temperature": 2.0, "random_seed": 5}
    begin(requests[0], PROMPTS[0], 12, **drawn)
    begin(requests[1], PROMPTS[0], 12)
    held = TurnOptions(requests[2])
    held.set_guidance("regex", "(ab|cd){3}")
    held.set_text(True)
    requests[2].begin_turn(PROMPTS[1], held)
    held = TurnOptions(requests[3])
    held.set_logprobs(2)
    held.set_max_generated_tokens(2)
    requests[3].begin_turn(PROMPTS[0], held)
    told = events(engine)
    assert said(told, requests[0]) == alone(model, PROMPTS[0], 12, **drawn)
    assert said(told, requests[1]) == alone(model, PROMPTS[0], 12)
    text = "".join(event.text for event in told if event.request is requests[2])
    assert len(text) == 6
    assert {text[i : i + 2] for i in (0, 2, 4)} <= {"ab", "cd"}
    for event in told:
        if event.request is requests[3]:
            assert event.logprobs is not None
            assert len(event.logprobs) == 3
            assert event.logprobs[0] == event.logprobs[1]
            assert event.logprobs[0][0] == event.token


def test_stop_strings_end_a_turn(model: Model) -> None:
    engine = Engine(model)
    request = engine.create_request()
    held = TurnOptions(request)
    held.set_text(True)
    held.set_max_generated_tokens(8)
    held.set_min_generated_tokens(8)
    with request.stream(PROMPTS[0], held) as turn:
        text = "".join(event.text for event in turn)
    stop = next(letter for letter in text[2:] if letter.isascii() and letter not in text[:2])
    held.set_stop_strings(["\u2603", stop])
    request.rewind_to_start_of_turn(1)
    with request.stream(PROMPTS[0], held) as turn:
        told = list(turn)
    assert "".join(event.text for event in told) == text[: text.index(stop)]
    assert told[-1].finish_reason is FinishReason.STOP_STRING
    assert told[-1].matched_stop_string_index == 1
    for wrong in ("ab", ["a", ""], [3]):
        with pytest.raises(Refused, match="stop string"):
            held.set_stop_strings(wrong)  # type: ignore[arg-type]  # what is wrong


def test_threads_share_the_steps(model: Model) -> None:
    engine = Engine(model, max_batch_size=3)
    answers: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        request = engine.create_request()
        held = TurnOptions(request)
        held.set_max_generated_tokens(10 + number)
        with request.stream(PROMPTS[number], held) as turn:
            answers[number] = [event.token for event in turn if event.token is not None]
        request.close()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, prompt in enumerate(PROMPTS):
        assert answers[number] == alone(model, prompt, 10 + number)
    assert not engine.has_pending_requests()
