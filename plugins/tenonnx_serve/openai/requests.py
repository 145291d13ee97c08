"""Requests as jobs: tokens of their prompts, and how the next ones are chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenonnx.records import record
from tenonnx_generate import GeneratorParams
from tenonnx_serve.openai import tools
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.language_model import LanguageModel, NDArray
from tenonnx_serve.openai.messages import (
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Sampling,
    Tool,
)
from tenonnx_serve.openai.steps import Job

DEFAULT_COMPLETION = 16
"""Tokens that a text is continued by at most unless a request says otherwise, as OpenAI's."""

MOST_TEXTS = 2048
"""Of one request."""

ANY_OBJECT = '{"type": "object"}'


@record
class Prepared:
    """A request that may be admitted.

    Attributes:
        jobs: A text each.
        prompt_tokens: Of all prompts.
        form: How the model writes calls, if it may call tools.
        echoes: What each text begins with in the answer.
    """

    jobs: list[Job]
    prompt_tokens: int
    form: tools.Form | None = None
    echoes: Sequence[str] = ()


def chat(model: LanguageModel, asked: ChatRequest, limit: int) -> Prepared:
    """Returns the jobs of a chat.

    Args:
        model: The model.
        asked: What is asked for.
        limit: Tokens of an answer at most, or 0.

    Raises:
        Wrong: A part of the request cannot be.
        Refused: The template or the library of guidance says no.
    """
    if asked.top_logprobs is not None and not asked.logprobs:
        raise Wrong("top_logprobs asks for logprobs to be true", "top_logprobs")
    offered = tools.offered(asked)
    form = tools.form_of(model.tokenizer) if offered else None
    values = {**(asked.chat_template_kwargs or {})}
    if asked.reasoning_effort:
        values.setdefault("reasoning_effort", asked.reasoning_effort)
    if set(values) & {"messages", "tools", "template_str"}:
        raise Wrong("chat_template_kwargs has a name that is taken", "chat_template_kwargs")
    text = model.tokenizer.apply_chat_template(
        [_message(message, n) for n, message in enumerate(asked.messages)],
        tools=[_described(tool) for tool in offered] or None,
        **values,
    )
    prompt = model.encode(text, "messages", special=False)
    asked_most = asked.max_completion_tokens or asked.max_tokens
    most = model.check_length(len(prompt), asked_most, limit, "messages")
    guidance = None
    schema = _schema(asked)
    if form is not None:
        rules = tools.grammar(model.tokenizer, form, offered, asked, schema)
        guidance = ("lark_grammar", rules)
    elif schema:
        guidance = ("json_schema", schema)
    top = (asked.top_logprobs or 0) if asked.logprobs else -1
    return Prepared(_jobs(model, asked, [(prompt, most)], guidance, top), len(prompt), form)


def completion(model: LanguageModel, asked: CompletionRequest, limit: int) -> Prepared:
    """Returns the jobs of texts that are to be continued.

    Raises:
        Wrong: A part of the request cannot be.
    """
    if asked.echo and asked.logprobs is not None:
        raise Wrong("logprobs of an echo are not to be had here", "echo", "unsupported_parameter")
    prompts = [_encoded(model, prompt) for prompt in _prompts(asked.prompt)]
    if len(prompts) * (asked.n or 1) > MOST_TEXTS:
        raise Wrong(f"a request may ask for {MOST_TEXTS} texts", "prompt")
    most = []
    for prompt in prompts:
        room = model.check_length(len(prompt), asked.max_tokens, limit, "prompt")
        most.append(room if asked.max_tokens else min(room, DEFAULT_COMPLETION))
    top = -1 if asked.logprobs is None else asked.logprobs
    jobs = _jobs(model, asked, list(zip(prompts, most, strict=True)), None, top)
    echoes = [model.tokenizer.decode(job.prompt) for job in jobs] if asked.echo else ()
    return Prepared(jobs, sum(map(len, prompts)), None, echoes)


def _jobs(
    model: LanguageModel,
    asked: Sampling,
    prompts: Sequence[tuple[NDArray, int]],
    guidance: tuple[str, str] | None,
    top: int,
) -> list[Job]:
    """Returns a job for each choice of each prompt; each draws numbers of its own.

    A prompt comes with how many tokens may follow it.
    """
    options, jobs = _options(model, asked), list[Job]()
    held = None
    for prompt, most in prompts:
        for choice in range(asked.n or 1):
            params = GeneratorParams(model.model)
            params.set_search_options(**options)
            params.set_search_options(max_length=len(prompt) + most)
            if asked.min_tokens:
                params.set_search_options(min_length=len(prompt) + asked.min_tokens)
            if asked.seed is not None:
                params.set_search_options(random_seed=(asked.seed + choice) % (1 << 53))
            if guidance is not None and held is None:
                params.set_guidance(*guidance)
                held = params.guidance
            params.guidance = held
            jobs.append(Job(prompt, params, top))
    return jobs


def _options(model: LanguageModel, asked: Sampling) -> dict[str, Any]:
    """Returns search options: those of the folder, unless the request says otherwise."""
    options: dict[str, Any] = {"batch_size": 1, "random_seed": -1}
    drawn = asked.temperature is not None or asked.top_p is not None
    if drawn:
        options |= {"do_sample": asked.temperature != 0, "top_p": 1.0}
        options["top_k"] = model.model.description.search.get("top_k", 0)
    if asked.temperature:
        options["temperature"] = asked.temperature
    if asked.top_p is not None:
        options["top_p"] = asked.top_p
    if asked.top_k is not None:
        options["top_k"] = max(asked.top_k, 0)
    if asked.repetition_penalty is not None:
        options["repetition_penalty"] = asked.repetition_penalty
    return options


def _schema(asked: ChatRequest) -> str:
    """Returns the schema that an answer is to keep to, or nothing."""
    wanted = asked.response_format
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return ANY_OBJECT
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise Wrong("response_format has no json_schema.schema", "response_format")
    return json.dumps(wanted.json_schema.schema)


def _message(message: ChatMessage, number: int) -> dict[str, Any]:
    """Returns a message as templates have it: content as text, arguments as objects."""
    content = message.content
    if isinstance(content, list):
        for part in content:
            if part.type != "text" or part.text is None:
                raise Wrong(
                    f"a part of a message is {part.type!r:.40}: the model takes text alone",
                    f"messages[{number}].content",
                )
        content = "".join(part.text or "" for part in content)
    role = "system" if message.role == "developer" else message.role
    made: dict[str, Any] = {"role": role, "content": content or ""}
    for key in ("name", "tool_call_id"):
        if (value := getattr(message, key)) is not None:
            made[key] = value
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {"name": call.function.name, "arguments": _arguments(call, number)},
            }
            for call in message.tool_calls
        ]
    return made


def _arguments(call: Any, number: int) -> Any:
    try:
        return json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        where = f"messages[{number}].tool_calls"
        raise Wrong(f"{where}: arguments are no JSON", where) from None


def _described(tool: Tool) -> dict[str, Any]:
    function = tool.function
    said = {"name": function.name, "description": function.description or ""}
    return {
        "type": "function",
        "function": {**said, "parameters": function.parameters or json.loads(ANY_OBJECT)},
    }


def _prompts(given: str | list[str | int | list[int]]) -> list[str | list[int]]:
    """Returns the prompts of a request: a text or several, tokens of one or of several."""
    if isinstance(given, str):
        return [given]
    numbers = [each for each in given if isinstance(each, int)]
    if numbers and len(numbers) == len(given):
        return [numbers]
    if not given or numbers:
        raise Wrong("prompt is no text, no texts and no tokens", "prompt")
    return [each for each in given if not isinstance(each, int)]


def _encoded(model: LanguageModel, prompt: str | list[int]) -> NDArray:
    if isinstance(prompt, str):
        return model.encode(prompt, "prompt", special=True)
    most = model.model.description.vocabulary - 1
    for token in prompt:
        if not 0 <= token <= most:
            raise Wrong(f"there is no token {token}: they are 0 to {most}", "prompt")
    return np.array(prompt, np.int32)
