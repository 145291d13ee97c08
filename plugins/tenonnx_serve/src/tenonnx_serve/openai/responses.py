"""Requests of OpenAI's Responses API, as chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.messages import (
    CalledFunction,
    ChatMessage,
    ChatRequest,
    Function,
    NamedFunction,
    NamedTool,
    Part,
    ResponseFormat,
    Schema,
    Tool,
    ToolCall,
)

# Kinds of parts here, and in chats.
CHAT_PARTS = {"input_text": "text", "output_text": "text", "input_image": "image_url"}


class Item(Struct):  # type: ignore[misc]  # the checker sees no msgspec
    """An item of the input: a message, a call of an earlier answer, or its result."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: str | list[Part] = ""
    call_id: str = ""
    name: str = ""
    arguments: str = "{}"
    output: str | list[Part] = ""


class FunctionTool(Struct):  # type: ignore[misc]  # likewise
    """A function that the model may call."""

    type: str
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]{1,128}$")] = "unnamed"
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedChoice(Struct):  # type: ignore[misc]  # likewise
    """The tool that is to be called."""

    type: Literal["function"]
    name: str


class TextFormat(Struct):  # type: ignore[misc]  # likewise
    """The form of the answer."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    schema: dict[str, Any] | None = None


class TextOptions(Struct):  # type: ignore[misc]  # likewise
    """Options of the answer's text."""

    format: TextFormat | None = None
    verbosity: Any = None


class Reasoning(Struct):  # type: ignore[misc]  # likewise
    """Options of thinking."""

    effort: str | None = None
    summary: Any = None


class ResponsesRequest(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """A request that is to be answered. Nothing is stored, so it names no earlier one."""

    model: str
    input: str | Annotated[list[Item], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stream: bool | None = None
    text: TextOptions | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    previous_response_id: str | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    include: Any = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    stream_options: Any = None
    truncation: Literal["auto", "disabled"] | None = None
    user: Any = None


def chat_of(asked: ResponsesRequest) -> ChatRequest:
    """Return a request as a chat.

    Raises:
        Wrong: It needs what is not to be had here.
    """
    for name in ("background", "conversation", "previous_response_id", "prompt"):
        if getattr(asked, name):
            raise Wrong(f"{name} is not to be had here", name, "unsupported_parameter")
    given = [Item(content=asked.input)] if isinstance(asked.input, str) else asked.input
    messages = list(_messages(given))
    if asked.instructions:
        messages.insert(0, ChatMessage("system", asked.instructions))
    choice = asked.tool_choice
    if isinstance(choice, NamedChoice):
        choice = NamedTool("function", NamedFunction(choice.name))
    return ChatRequest(
        model=asked.model,
        messages=messages,
        max_completion_tokens=asked.max_output_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stream=asked.stream,
        response_format=_format(asked.text),
        tools=[_tool(tool) for tool in asked.tools] if asked.tools else None,
        tool_choice=choice,
        parallel_tool_calls=asked.parallel_tool_calls,
        reasoning_effort=None if asked.reasoning is None else asked.reasoning.effort,
    )


def _messages(items: list[Item]) -> Iterator[ChatMessage]:
    """Yield messages; the calls of one answer are one message."""
    calls: list[ToolCall] = []
    for number, item in enumerate(items):
        if item.type == "function_call":
            calls.append(ToolCall(CalledFunction(item.name, item.arguments), item.call_id))
            continue
        if calls:
            yield ChatMessage("assistant", None, tool_calls=calls)
            calls = []
        if item.type == "function_call_output":
            yield ChatMessage("tool", _parts(item.output), tool_call_id=item.call_id)
        elif item.type == "message":
            yield ChatMessage(item.role, _parts(item.content))
        elif item.type != "reasoning":  # which an answer of another server may have
            raise Wrong(f"an item is {item.type!r:.40}; expected a message", f"input[{number}]")
    if calls:
        yield ChatMessage("assistant", None, tool_calls=calls)


def _parts(content: str | list[Part]) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [
        Part(CHAT_PARTS.get(part.type, part.type), part.text, part.image_url, part.detail)
        for part in content
    ]


def _tool(tool: FunctionTool) -> Tool:
    if tool.type != "function":
        raise Wrong(f"a tool is {tool.type!r:.40}; expected a function", "tools")
    return Tool("function", Function(tool.name, tool.description, tool.parameters, tool.strict))


def _format(text: TextOptions | None) -> ResponseFormat | None:
    form = None if text is None else text.format
    if form is None:
        return None
    schema = Schema(form.name, schema=form.schema) if form.type == "json_schema" else None
    return ResponseFormat(form.type, schema)
