"""The forms that texts are held to: JSON schemas, regular expressions, choices, grammars."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from tenonnx_serve.openai.errors import Wrong
from tenonnx_serve.openai.messages import ChatRequest, Sampling

ANY_OBJECT: Final = {"type": "object"}

# Texts without blanks: a model could go on with them to the end of its tokens.
COMPACT: Final = {"x-guidance": {"whitespace_flexible": False}}


def guidance(asked: Sampling) -> tuple[str, str] | None:
    """Return the kind and the text of the form that vLLM's fields ask for, if they do.

    Raises:
        Wrong: There are several, or one is none.
    """
    wanted = asked.structured
    given: list[tuple[str, str]] = []
    if wanted.json is not None:
        given.append(("json_schema", compact(wanted.json)))
    if wanted.regex is not None:
        given.append(("regex", wanted.regex))
    if wanted.choice is not None:
        given.append(("lark_grammar", "start: " + " | ".join(map(json.dumps, wanted.choice))))
    if wanted.grammar is not None:
        given.append(("lark_grammar", wanted.grammar))
    if len(given) > 1:
        raise Wrong("structured_outputs has several forms; expected one", "structured_outputs")
    return given[0] if given else None


def schema(asked: ChatRequest) -> str:
    """Return the schema that OpenAI's ``response_format`` asks for, or nothing.

    Raises:
        Wrong: It has no schema.
    """
    wanted = asked.response_format
    if wanted is None or wanted.type == "text":
        return ""
    if wanted.type == "json_object":
        return compact(ANY_OBJECT)
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise Wrong("response_format has no json_schema.schema", "response_format")
    return compact(wanted.json_schema.schema)


def compact(given: dict[str, Any] | str) -> str:
    """Return a schema whose texts have no blanks, unless it says otherwise.

    Raises:
        Wrong: It is no object.
    """
    try:
        found = msgspec.json.decode(given, type=dict) if isinstance(given, str) else given
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Wrong(f"the JSON schema is no object: {error}") from None
    return json.dumps({**COMPACT, **found})
