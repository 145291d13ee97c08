"""Requests of OpenAI's API: their fields, types and ranges."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from tenonnx.errors import did_you_mean
from tenonnx_serve.openai.errors import Wrong

MOST_CHOICES = 128
MOST_STOPS = 16
MOST_LOGPROBS = 20
MOST_COMPLETION_LOGPROBS = 5

Tokens = Annotated[int, Meta(ge=0)]
Token = Annotated[int, Meta(ge=0, lt=1 << 31)]
Text = Annotated[str, Meta(min_length=1)]


class ImageUrl(Struct):  # type: ignore[misc]  # the checker sees no msgspec
    """An image of a message; the model's own operations say how many details it sees."""

    url: str
    detail: Any = None


class Part(Struct):  # type: ignore[misc]  # likewise
    """A part of a message's content: a text, or an image in the form of chats or responses."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None
    detail: Any = None


class CalledFunction(Struct):  # type: ignore[misc]
    """A function that the model called, with its arguments in JSON."""

    name: str
    arguments: str = "{}"


class ToolCall(Struct):  # type: ignore[misc]
    """A call of an earlier answer."""

    function: CalledFunction
    id: str = ""
    type: str = "function"


class ChatMessage(Struct):  # type: ignore[misc]
    """A message; what clients send back of an answer and nobody needs is ignored."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Function(Struct):  # type: ignore[misc]
    """A function that a model may call."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.\-]{1,128}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct):  # type: ignore[misc]
    """A tool; all are functions."""

    type: Literal["function"]
    function: Function


class NamedFunction(Struct):  # type: ignore[misc]
    """A function by its name."""

    name: str


class NamedTool(Struct):  # type: ignore[misc]
    """The tool that is to be called."""

    type: Literal["function"]
    function: NamedFunction


class Schema(Struct):  # type: ignore[misc]
    """A JSON schema with a name."""

    name: str = ""
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseFormat(Struct):  # type: ignore[misc]
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None


class StreamOptions(Struct):  # type: ignore[misc]
    """Further contents of a stream."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Structured(Struct):  # type: ignore[misc]
    """The form that a text is held to, by vLLM's names; one of them."""

    json: dict[str, Any] | str | None = None
    regex: str | None = None
    choice: Annotated[list[Text], Meta(min_length=1)] | None = None
    grammar: str | None = None


class Sampling(Struct, kw_only=True):  # type: ignore[misc, call-arg]
    """The fields that chats and completions have in common.

    ``top_k``, ``min_p``, ``repetition_penalty``, ``min_tokens``, ``stop_token_ids``,
    ``cache_salt`` and what guides a text are none of OpenAI's, but vLLM's. What says who asks and
    why is ignored.
    """

    model: str
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 27)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[Token, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_token_ids: list[Token] | None = None
    cache_salt: str | None = None
    structured_outputs: Structured | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    max_tokens: Tokens | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    seed: int | None = None
    stop: Text | Annotated[list[Text], Meta(max_length=MOST_STOPS)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    service_tier: Any = None
    store: Any = None
    user: Any = None

    @property
    def stops(self) -> list[str]:
        """The strings that end the text."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def structured(self) -> Structured:
        """The form that the text is held to."""
        return self.structured_outputs or Structured(
            self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar
        )

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with what was used."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatRequest(Sampling, kw_only=True):  # type: ignore[call-arg]
    """Messages that are to be answered."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MOST_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    modalities: list[str] | None = None
    verbosity: Any = None
    audio: Any = None
    function_call: Any = None
    functions: Any = None
    prediction: Any = None
    web_search_options: Any = None


class CompletionRequest(Sampling, kw_only=True):  # type: ignore[call-arg]
    """Texts, or tokens, that are to be continued."""

    prompt: str | list[str | int | list[int]]
    best_of: int | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MOST_COMPLETION_LOGPROBS)] | None = None
    suffix: str | None = None


R = TypeVar("R", bound=Struct)

WHERE = re.compile(r"^(.*) - at `\$\.?(.*)`$", re.DOTALL)

# Fields of OpenAI's that ask for what is not to be had here, unless they ask for nothing.
REFUSED = (
    "audio",
    "best_of",
    "function_call",
    "functions",
    "prediction",
    "suffix",
    "web_search_options",
)


def parsed(body: bytes | bytearray, kind: type[R], ignores_unknown: bool = False) -> R:
    """Return a request.

    Args:
        body: Its JSON.
        kind: Its type.
        ignores_unknown: Fields that the type lacks are ignored.

    Raises:
        Wrong: The body is none, or asks for what is not to be had.
    """
    try:
        found: R = msgspec.json.decode(body, type=kind)
        given = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError as error:
        parts = WHERE.match(str(error))
        message, param = parts.groups() if parts else (str(error), "")
        raise Wrong(f"{param}: {message}" if param else message, param or None) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Wrong(f"the body is no JSON: {error}") from None
    fields = kind.__struct_fields__
    for name in given if not ignores_unknown else ():
        if name not in fields:
            raise Wrong(f"unknown field {name!r:.60}{did_you_mean(name, fields)}", name[:60])
    for name in REFUSED if not ignores_unknown else ():
        if getattr(found, name, None):
            raise Wrong(f"{name} is not to be had here", name, "unsupported_parameter")
    if getattr(found, "modalities", None) not in (None, ["text"]):
        raise Wrong("modalities other than text are not to be had here", "modalities")
    return found
