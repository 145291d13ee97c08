"""Calls of an engine, and what a generator alone answers."""

from __future__ import annotations

from typing import Any

from tenonnx_generate import (
    Engine,
    EngineEvent,
    Generator,
    GeneratorParams,
    Model,
    Request,
    TurnOptions,
)

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
