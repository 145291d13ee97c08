"""Functions that a model may call: the grammar of its calls, and what it called."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tenonnx_generate import StopStrings, Tokenizer
from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.messages import ChatRequest, NamedTool, Tool

NEXT = re.compile(r"\s*(?=\S)")

# Tokens that may be part of a text.
THINKING = ("<think>", "</think>")


@dataclass(frozen=True)
class Form:
    """The form in which a model writes calls.

    Attributes:
        begin: Comes before a call, or before the list of them.
        gap: Stands between the marks and the call.
        end: Comes after it.
        arguments: What a call's arguments are called.
        listed: All calls are one list.
    """

    begin: str
    gap: str
    end: str
    arguments: str = "arguments"
    listed: bool = False


# The form in which templates write arguments, so that there is one way to write them.
AS_TEMPLATES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

# Of Hermes, Qwen and SmolLM; of Phi; of Mistral.
FORMS = (
    Form("<tool_call>", "\n", "</tool_call>"),
    Form("<|tool_call|>", "", "<|/tool_call|>", listed=True),
    Form("[TOOL_CALLS]", "", "", listed=True),
)

# Of Llama and others: an answer that is an object is a call.
BARE = Form("", "", "", arguments="parameters")


def form_of(tokenizer: Tokenizer) -> Form:
    """Return how a model writes calls, by its chat template and its tokens.

    Raises:
        Wrong: Its template takes no tools.
    """
    template = tokenizer.chat_template(with_tools=True)
    if "tools" not in template:
        raise Wrong("the model's chat template takes no tools", "tools", "unsupported_parameter")
    for form in FORMS:
        if form.begin in template:
            return form
    there = (form for form in FORMS if tokenizer.to_token_id(form.begin) >= 0)
    return next(there, BARE)


def offered(asked: ChatRequest) -> Sequence[Tool]:
    """Return the tools that an answer may call.

    Raises:
        Wrong: It has to call one that there is not, or none is there.
    """
    tools, choice = asked.tools or [], asked.tool_choice
    if choice == "none":
        return ()
    if isinstance(choice, NamedTool):
        tools = [each for each in tools if each.function.name == choice.function.name]
    if not tools and choice not in (None, "auto"):
        raise Wrong("tool_choice asks for a tool that is not among tools", "tool_choice")
    return tools


def grammar(
    tokenizer: Tokenizer, form: Form, tools: Sequence[Tool], asked: ChatRequest, text: str
) -> str:
    """Return a grammar of Lark's for answers that may call tools, or must.

    Args:
        tokenizer: The model's.
        form: How it writes calls.
        tools: Those that it may call.
        asked: Returns whether it must, and how many it may.
        text: A JSON schema that an answer without calls keeps to, or nothing.
    """
    several = asked.parallel_tool_calls is not False
    calls = " | ".join(f"call_{number}" for number in range(len(tools)))
    rules = [f"called: {calls}"]
    for number, tool in enumerate(tools):
        head = f'{{"name": {json.dumps(tool.function.name)}, "{form.arguments}": '
        parameters = tool.function.parameters or {"type": "object"}
        schema = json.dumps({"x-guidance": AS_TEMPLATES, **parameters})
        rules.append(f'call_{number}: {json.dumps(head)} %json {schema} "}}"')
    gap = json.dumps(form.gap) if form.gap else ""
    begin, end = _mark(tokenizer, form.begin), _mark(tokenizer, form.end)
    more = f'("\\n"? {begin} {gap} called {gap} {end})*' if several and form.begin else ""
    body = f"{gap} called {gap}"
    if form.listed:
        body, more = '"[" called (", " called)* "]"' if several else '"[" called "]"', ""
    rules.append(f"calls: {body} {end} {more}")
    rules += ["TEXT: /(.|\\n)*/", r"WORDS: /[^{](.|\n)*/"]
    return "\n".join((_start(tokenizer, form, begin, asked, text), *rules))


def _start(tokenizer: Tokenizer, form: Form, begin: str, asked: ChatRequest, text: str) -> str:
    """Return the first rules: where calls may stand."""
    if asked.tool_choice not in (None, "auto"):
        return f"start: {begin} calls"
    if text:
        return f"start: %json {text} | {begin} calls"
    if not form.begin:
        return 'start: calls | WORDS | ""'
    thoughts = [_mark(tokenizer, mark) for mark in THINKING if tokenizer.to_token_id(mark) >= 0]
    words = f"words: TEXT (({' | '.join(thoughts)}) TEXT)*" if thoughts else "words: TEXT"
    if begin.startswith("<["):
        return f"start: words ({begin} calls)?\n{words}"
    return f"start: head calls | words\nhead[lazy]: TEXT {begin}\n{words}"


def _mark(tokenizer: Tokenizer, text: str) -> str:
    """Return a mark as the grammar has it: a token if it is one, else its letters."""
    if not text:
        return ""
    token = tokenizer.to_token_id(text)
    return f"<[{token}]>" if token >= 0 else json.dumps(text)


class CallReader:
    """Parts a text into what is said and the calls that follow.

    Args:
        form: How calls are written.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        self._before = StopStrings([form.begin] if form.begin else ())
        self._text, self._said = "", 0

    def take(self, piece: str) -> str:
        """Return what is to be said of the text so far, and has not been yet."""
        self._text += piece
        if self._form.begin:
            said = self._before.take(piece)
        else:
            said = "" if self._text.lstrip()[:1] in ("", "{") else self._text[self._said :]
        self._said += len(said)
        return said

    def finish(self) -> tuple[str, list[dict[str, Any]]]:
        """Return the rest of what is said, and the calls; those that are not whole are said."""
        rest = self._text[self._said :]
        if self._form.begin and not self._before.stopped:
            return rest, []
        calls = _calls(self._form, rest)
        return ("", calls) if calls else (rest, [])


def _calls(form: Form, text: str) -> list[dict[str, Any]]:
    """Return the calls of a text as answers have them; none if it is not made of calls."""
    for mark in (form.begin, form.end):
        text = text.replace(mark, "\n") if mark else text
    decoder, place, found = json.JSONDecoder(), 0, list[Any]()
    try:
        while start := NEXT.match(text, place):
            value, place = decoder.raw_decode(text, start.end())
            found += value if isinstance(value, list) else [value]
        return [_call(each["name"], each[form.arguments]) for each in found]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _call(name: str, arguments: Any) -> dict[str, Any]:
    # Nine letters and digits: some templates take no other names for calls.
    return {
        "id": secrets.token_hex(5)[:9],
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
    }
