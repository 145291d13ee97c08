"""Engines whose requests fail, are cancelled, are too much or go: the others are served."""

from __future__ import annotations

import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_calls import PROMPTS, alone, begin, events, said
from folders import CONTEXT, VOCABULARY, write_folder
from processes import in_a_process_of_its_own
from tenonnx_generate import (
    Engine,
    EngineEventFlags,
    FinishReason,
    Model,
    TurnOptions,
)
from tenonnx_generate.errors import Refused, Unsupported


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


def test_requests_that_are_gone_leave_nothing(folder: Path) -> None:
    code = f"""
        from tenonnx.cli.memory import private_bytes
        from tenonnx_generate import Engine, Model
        from engine_calls import begin
        from folders import CONTEXT, VOCABULARY
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
