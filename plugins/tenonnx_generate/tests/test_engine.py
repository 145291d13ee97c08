"""Engines: requests in one batch against each alone in a generator."""

from __future__ import annotations

import mmap
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from folders import CONTEXT, VOCABULARY, write_folder
from processes import in_a_process_of_its_own
from tenonnx_generate import (
    Engine,
    EngineEvent,
    EngineEventFlags,
    FinishReason,
    Generator,
    GeneratorParams,
    Model,
    Request,
    RequestOptions,
    TurnOptions,
)
from tenonnx_generate.errors import Refused, Unsupported

PROMPTS = [[84, 104, 101, 32], [7, 8, 9, 10, 11, 12, 13], [200], [84, 104, 40, 41, 42], [3, 1]]


def alone(model: Model, prompt: list[int], count: int, **options: Any) -> list[int]:
    """Return a generator's tokens after a prompt."""
    params = GeneratorParams(model)
    params.set_search_options(max_length=len(prompt) + count, **options)
    made = Generator(model, params)
    made.append_tokens(prompt)
    while not made.is_done():
        made.generate_next_token()
    return made.get_sequence(0).tolist()[len(prompt) :]


def begin(request: Request, prompt: list[int], count: int, **options: Any) -> int:
    held = TurnOptions(request)
    held.set_max_generated_tokens(count)
    held.set_search_options(**options)
    return request.begin_turn(prompt, held)


def events(engine: Engine) -> list[EngineEvent]:
    """All events until nothing is pending."""
    found: list[EngineEvent] = []
    buffer = engine.create_event_buffer(3)
    while engine.has_pending_requests():
        found += engine.run(buffer)
    return found


def said(told: list[EngineEvent], request: Request) -> list[int]:
    return [e.token for e in told if e.request is request and e.token is not None]


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


def test_one_that_fails_leaves_the_others_alone(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(model)
    requests = [engine.create_request() for _ in range(3)]
    for request, prompt in zip(requests, PROMPTS, strict=False):
        begin(request, prompt, 10)
    run, buffer = engine._decoder.run, engine.create_event_buffer(9)
    engine.run(buffer)
    told = list(buffer)

    def fail(first: int, tokens: Any, adapters: Any) -> Any:
        turn = requests[1].turn
        if turn is not None and turn.slot in range(first, first + len(tokens)):
            raise ValueError("broken")
        return run(first, tokens, adapters)

    with monkeypatch.context() as patch:
        patch.setattr(engine._decoder, "run", fail)
        told += events(engine)
    (failed,) = (event for event in told if event.flags & EngineEventFlags.FAILED)
    assert (failed.request, failed.finish_reason) == (requests[1], FinishReason.FAILED)
    assert str(failed.error) == "broken"
    for request, prompt in list(zip(requests, PROMPTS, strict=False))[::2]:
        assert said(told, request) == alone(model, prompt, 10)
    begin(requests[1], [5], 3)  # a request may go on after that
    assert len(said(events(engine), requests[1])) == 3


def test_a_step_that_is_broken_off_is_run_again(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(model)
    request, other = engine.create_request(), engine.create_request()
    begin(request, PROMPTS[0], 8)
    begin(other, PROMPTS[1], 8)
    buffer = engine.create_event_buffer(9)
    told = list(engine.run(buffer))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    for place in ("_choose", "_run_rows"):
        with monkeypatch.context() as patch:
            patch.setattr(engine, place, fail)
            with pytest.raises(KeyboardInterrupt):
                engine.run(buffer)
    told += events(engine)
    assert said(told, request) == alone(model, PROMPTS[0], 8)
    assert said(told, other) == alone(model, PROMPTS[1], 8)


def test_cancelling_frees_a_slot(model: Model) -> None:
    engine = Engine(model, max_batch_size=1, max_kept_tokens=0)
    first, second = engine.create_request(), engine.create_request()
    buffer = engine.create_event_buffer(4)
    begin(first, PROMPTS[0], 50)
    begin(second, PROMPTS[1], 6)
    engine.run(buffer)
    assert [event.request for event in buffer] == [first]
    assert not first.cancel_turn(2)
    assert first.cancel_turn(1)
    assert not first.cancel_turn(1)
    assert engine._decoder.lengths == [0]
    told = events(engine)
    assert told[0].finish_reason is FinishReason.CANCELLED
    assert said(told, second) == alone(model, PROMPTS[1], 6)
    begin(second, PROMPTS[0], 9)
    begin(first, PROMPTS[2], 9)  # waits
    first.close()
    told = events(engine)
    assert [event.request for event in told if event.finish_reason] == [first, second]


def test_what_is_too_much_is_refused(model: Model, tmp_path: Path) -> None:
    engine = Engine(model, max_batch_size=2, max_total_tokens=30, max_waiting_turns=2)
    requests = [engine.create_request() for _ in range(3)]
    with pytest.raises(Refused, match="may have 32 tokens; the engine has room for 30"):
        begin(requests[0], [1, 2], 30)
    begin(requests[0], [1, 2], 18)
    begin(requests[1], [3], 19)  # waits for the room of the other
    with pytest.raises(Refused, match="2 turns wait already"):
        begin(requests[2], [1], 1)
    buffer = engine.create_event_buffer(4)
    told = list(engine.run(buffer))
    told += engine.run(buffer)
    assert {event.request for event in told} == {requests[0]}
    with pytest.raises(Refused, match="turn 1 is on"):
        requests[0].begin_turn([1])
    told += events(engine)
    assert said(told, requests[1]) == alone(model, [3], 19)
    for wrong, words in (
        ([], "whole numbers"),
        ([[1], [2]], "of 2 sequences"),
        ([1.5], "whole numbers"),
        ([VOCABULARY], "no token"),
        ([1] * CONTEXT, "no room for an answer"),
    ):
        with pytest.raises(Refused, match=words):
            requests[2].begin_turn(wrong)
    assert begin(requests[2], [1], 1) == 1
    options = TurnOptions(requests[2])
    for call, value, words in (
        (options.set_max_generated_tokens, 0, "max_generated_tokens is 0"),
        (options.set_min_generated_tokens, -1, "min_generated_tokens is -1"),
        (options.set_temperature, -1, "temperature is -1"),
        (engine.create_event_buffer, 0, "capacity is 0"),
    ):
        with pytest.raises(Refused, match=words):
            call(value)
    with pytest.raises(Refused, match="no search option 'max_length'"):
        options.set_search_options(max_length=3)
    with pytest.raises(Unsupported, match="takes no draft tokens"):
        requests[2].set_draft_tokens([1])
    with pytest.raises(Refused, match="max_batch_size is 0"):
        Engine(model, max_batch_size=0)
    changed = {"past_present_share_buffer": False}
    other = Model(write_folder(tmp_path / "folder", search=changed))
    with pytest.raises(Unsupported, match="stay in place"):
        Engine(other)


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


def test_requests_that_are_gone_leave_nothing(folder: Path) -> None:
    code = f"""
        from tenonnx.cli.memory import private_bytes
        from tenonnx_generate import Engine, Model
        from test_engine import CONTEXT, VOCABULARY, begin
        engine = Engine(Model({str(folder)!r}))
        buffer = engine.create_event_buffer(4)
        def one(number):
            with engine.create_request() as request:
                begin(request, [number % VOCABULARY, 3, 4, 5], 90)
                for _ in range(3):
                    engine.run(buffer)
        for number in range(20):
            one(number)
        before = private_bytes()
        for number in range(200):
            one(number)
        after = private_bytes()
        assert before is None or after is None or after - before < 5 << 20, after - before
        assert engine._slots.left <= CONTEXT
    """
    in_a_process_of_its_own(code)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere caches are plain arrays")
def test_memory_that_is_given_back_is_zeros(model: Model) -> None:
    engine = Engine(model, max_batch_size=2, max_kept_tokens=0)
    request = engine.create_request()
    begin(request, PROMPTS[0], 20)
    events(engine)
    for cache in engine._decoder._caches.values():
        whole = cache[0].nbytes // mmap.PAGESIZE * mmap.PAGESIZE
        assert not np.ascontiguousarray(cache[0]).view(np.uint8).reshape(-1)[:whole].any()
