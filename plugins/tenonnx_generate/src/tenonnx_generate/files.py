"""Reading the files of a folder that a stranger made."""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from tenonnx_generate.errors import Missing, NotInstalled, Refused

# Bytes of a configuration or a chat template.
CONFIG_LIMIT = 4 << 20

# Bytes of a tokenizer: the largest published one has 34 MB.
TOKENIZER_LIMIT = 256 << 20

INSTALL = "pip install tenonnx-generate"


def needed(module: str) -> Any:
    """Return a library that tenonnx-generate requires.

    Raises:
        NotInstalled: It is not there; the hint says what installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".")[0]:
            raise
        raise NotInstalled(f"{module} is not installed", hint=INSTALL) from error


def inside(folder: str, name: str) -> str:
    """Return the path of a file that a configuration names.

    Raises:
        Refused: It would lie outside the folder.
        Missing: It is not there.
    """
    parts = name.replace(os.altsep or os.sep, os.sep).split(os.sep)
    rooted = os.path.isabs(name) or os.path.splitdrive(name)[0]
    if not name or "\0" in name or rooted or os.pardir in parts:
        raise Refused(f"{name!r} is no file inside of {folder}")
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        raise Missing(f"{path} does not exist", hint="the folder is not whole: fetch it again")
    return path


def read_text(path: str | os.PathLike[str], limit: int) -> str:
    """Return a file's text.

    Raises:
        Missing: It is not there.
        Refused: It has more bytes than ``limit``, or is no UTF-8.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise Missing(f"{path} does not exist") from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > limit:
        raise Refused(f"{path} has more than {limit >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def parse_object(text: str, what: str) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        Refused: The text is none.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{what} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(f"{what} is a JSON {type(found).__name__}; expected an object")
    return found
