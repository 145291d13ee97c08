"""Requests as jobs: tokens of their prompts, and how the next ones are chosen."""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx_generate import GeneratorParams
from tenonnx_generate.encoder import TOKENS
from tenonnx_generate.errors import Refused
from tenonnx_serve.openai import forms, tools
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.language_model import LanguageModel, NDArray
from tenonnx_serve.openai.messages import (
    ChatMessage,
    ChatRequest,
    CompletionRequest,
    Part,
    Sampling,
    Tool,
)
from tenonnx_serve.openai.steps import Job

# Tokens that a text is continued by at most unless a request says otherwise, as OpenAI's.
DEFAULT_COMPLETION = 16

# Of one request.
MOST_TEXTS = 2048

# The head of an image that is in its address.
DATA_URL = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.ASCII | re.IGNORECASE)

# Fields that are search options of the same name.
SAME_NAME = ("repetition_penalty", "frequency_penalty", "presence_penalty", "min_p")


@dataclass(frozen=True)
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
    """Return the jobs of a chat.

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
    # They would replace arguments of the call below.
    if set(values) & {"messages", "tools", "template_str"}:
        raise Wrong("chat_template_kwargs has a name that is taken", "chat_template_kwargs")
    contents: list[bytes] | None = None if model.model.vision is None else []
    text = model.tokenizer.apply_chat_template(
        [message(each, n, contents) for n, each in enumerate(asked.messages)],
        tools=[_described(tool) for tool in offered] or None,
        **values,
    )
    images = dict(model.pictured(text, contents)) if contents else {}
    # The template has written the special tokens already.
    prompt = images.pop(TOKENS) if images else model.encode(text, "messages", special=False)
    asked_most = asked.max_tokens
    if asked.max_completion_tokens is not None:
        asked_most = asked.max_completion_tokens
    most = model.check_length(len(prompt), asked_most, limit, "messages")
    guidance = forms.guidance(asked)
    schema = forms.schema(asked)
    if guidance and (schema or form is not None):
        raise Wrong("structured_outputs, tools and response_format exclude each other")
    if form is not None:
        rules = tools.grammar(model.tokenizer, form, offered, asked, schema)
        guidance = ("lark_grammar", rules)
    elif schema:
        guidance = ("json_schema", schema)
    top = (asked.top_logprobs or 0) if asked.logprobs else -1
    jobs = _jobs(model, asked, [(prompt, most)], guidance, top)
    for job in jobs:
        job.images = images
    return Prepared(jobs, len(prompt), form)


def completion(model: LanguageModel, asked: CompletionRequest, limit: int) -> Prepared:
    """Return the jobs of texts that are to be continued.

    Raises:
        Wrong: A part of the request cannot be.
    """
    tokens = [encoded(model, prompt, "prompt") for prompt in prompts(asked.prompt, "prompt")]
    if len(tokens) * (asked.n or 1) > MOST_TEXTS:
        raise Wrong(f"a request may ask for {MOST_TEXTS} texts", "prompt")
    most = []
    for prompt in tokens:
        room = model.check_length(len(prompt), asked.max_tokens, limit, "prompt")
        most.append(min(room, DEFAULT_COMPLETION) if asked.max_tokens is None else room)
    top = -1 if asked.logprobs is None else asked.logprobs
    jobs = _jobs(model, asked, list(zip(tokens, most, strict=True)), forms.guidance(asked), top)
    for job in jobs:
        job.tells_prompt = bool(asked.echo) and top >= 0
    echoes = [model.tokenizer.decode(job.prompt) for job in jobs] if asked.echo else ()
    return Prepared(jobs, sum(map(len, tokens)), None, echoes)


def _jobs(
    model: LanguageModel,
    asked: Sampling,
    prompts: Sequence[tuple[NDArray, int]],
    guidance: tuple[str, str] | None,
    top: int,
) -> list[Job]:
    """Return a job for each choice of each prompt; each draws numbers of its own.

    A prompt comes with how many tokens may follow it.
    """
    options, jobs = _options(model, asked), list[Job]()
    held = None
    for prompt, most in prompts:
        for choice in range(asked.n or 1):
            params = model.params()
            params.set_search_options(**options)
            params.set_search_options(max_length=len(prompt) + max(most, 1))
            _bias(params, asked)
            if asked.min_tokens:
                params.set_search_options(min_length=len(prompt) + asked.min_tokens)
            if asked.seed is not None:
                params.set_search_options(random_seed=(asked.seed + choice) % (1 << 53))
            if guidance is not None and held is None:
                params.set_guidance(*guidance)
                held = params.guidance
            params.guidance = held
            jobs.append(Job(prompt, params, top, cache_salt=asked.cache_salt or ""))
            jobs[-1].adapter = adapter_of(asked.model)
            jobs[-1].is_empty = not most
    return jobs


def _options(model: LanguageModel, asked: Sampling) -> dict[str, Any]:
    """Return search options: those of the folder, unless the request says otherwise."""
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
    for name in SAME_NAME:
        if (value := getattr(asked, name)) is not None:
            options[name] = value
    return options


def adapter_of(name: str) -> str:
    """Return the adapter in a model's name, ``base:adapter``, or nothing."""
    return name.partition(":")[2]


def _bias(params: GeneratorParams, asked: Sampling) -> None:
    """Set the tokens that a request prefers, avoids or ends with."""
    for param, give in (
        ("logit_bias", params.set_logit_bias),
        ("stop_token_ids", params.set_stop_tokens),
    ):
        try:
            give(getattr(asked, param) or {})
        except Refused as error:
            raise Wrong(f"{param}: {error}", param) from None


def message(given: ChatMessage, number: int, images: list[bytes] | None = None) -> dict[str, Any]:
    """Return a message as templates have it: content as text, arguments as objects.

    Args:
        given: The message.
        number: Its place among the messages.
        images: The contents of its images are appended; ``None`` if the model takes none. The
            content of a message with images is a list of parts.
    """
    content: Any = given.content
    if isinstance(content, list):
        content = [_part(part, f"messages[{number}].content", images) for part in content]
        if all(part["type"] == "text" for part in content):
            content = "".join(part["text"] for part in content)
    role = "system" if given.role == "developer" else given.role
    made: dict[str, Any] = {"role": role, "content": content or ""}
    for key in ("name", "tool_call_id"):
        if (value := getattr(given, key)) is not None:
            made[key] = value
    if given.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": call.type,
                "function": {"name": call.function.name, "arguments": _arguments(call, number)},
            }
            for call in given.tool_calls
        ]
    return made


def _part(part: Part, where: str, images: list[bytes] | None) -> dict[str, str]:
    """Return a part of a message as templates have it."""
    if part.type == "text" and part.text is not None:
        return {"type": "text", "text": part.text}
    url = part.image_url if isinstance(part.image_url, str) else getattr(part.image_url, "url", "")
    if part.type != "image_url" or images is None or not url:
        takes = "text alone" if images is None else "text and images"
        raise Wrong(f"a part of a message is {part.type!r:.40}: the model takes {takes}", where)
    if not (head := DATA_URL.match(url)):
        raise Wrong(
            "the image is no data:image/...;base64,... address, and this server fetches none", where
        )
    try:
        images.append(binascii.a2b_base64(url[head.end() :], strict_mode=True))
    except (binascii.Error, ValueError) as error:
        raise Wrong(f"the image is no base64: {error}", where) from None
    return {"type": "image"}


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
        "function": {**said, "parameters": function.parameters or forms.ANY_OBJECT},
    }


def prompts(given: str | list[str | int | list[int]], param: str) -> list[str | list[int]]:
    """Return the prompts of a request: a text or several, tokens of one or of several."""
    if isinstance(given, str):
        return [given]
    numbers = [each for each in given if isinstance(each, int)]
    if numbers and len(numbers) == len(given):
        return [numbers]
    if not given or numbers:
        raise Wrong(f"{param} is no text, no texts and no tokens", param)
    return [each for each in given if not isinstance(each, int)]


def encoded(model: LanguageModel, prompt: str | list[int], param: str) -> NDArray:
    """Return the tokens of a prompt.

    Raises:
        Wrong: The model has no such token, or the text is longer than its context.
    """
    if isinstance(prompt, str):
        return model.encode(prompt, param, special=True)
    most = model.model.description.vocabulary - 1
    for token in prompt:
        if not 0 <= token <= most:
            raise Wrong(f"there is no token {token}: they are 0 to {most}", param)
    return np.array(prompt, np.int32)
