"""Messages as a prompt: chat templates in jinja2's sandbox."""

from __future__ import annotations

import datetime
import json
from typing import Any

from tenonnx_generate.errors import Refused
from tenonnx_generate.files import needed

# Characters that a template may make.
LONGEST_PROMPT = 64 << 20


def apply_template(template: str, values: dict[str, Any]) -> str:
    """Return what a chat template makes of values.

    Templates are strangers' programs: in the sandbox they reach neither files nor Python's
    objects, and change nothing that they are given. ``range`` is limited there; how long one
    takes is not.

    Raises:
        Refused: The template is none, fails, or refuses the messages itself.
    """
    jinja2, sandbox = needed("jinja2"), needed("jinja2.sandbox")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        extensions=["jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _as_json
    environment.globals.update(raise_exception=_refuse, strftime_now=_now)
    try:
        pieces, size = [], 0
        for piece in environment.from_string(template).generate(**values):
            pieces.append(piece)
            size += len(piece)
            if size > LONGEST_PROMPT:
                raise Refused(f"the chat template makes more than {LONGEST_PROMPT} characters")
    except jinja2.TemplateSyntaxError as error:
        raise Refused(f"the chat template is wrong in line {error.lineno}: {error}") from None
    except Refused:
        raise
    except Exception as error:  # a template's own: any that its expressions raise
        raise Refused(f"the chat template fails: {type(error).__name__}: {error}") from error
    return "".join(pieces)


def parse_messages(text: str, what: str) -> list[Any]:
    """Return a JSON array of objects.

    Raises:
        Refused: The text is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} are no JSON: {error}") from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Refused(f"{what} are {text!r:.60}; expected a JSON array of objects")
    return found


def _as_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """jinja2's own writes HTML's characters otherwise."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _refuse(message: object) -> None:
    raise Refused(f"the chat template refuses the messages: {message}")


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)
