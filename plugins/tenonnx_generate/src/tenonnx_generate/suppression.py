"""Tokens that texts of a model do not have, such as sounds that are no words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenonnx_generate.errors import Refused
from tenonnx_generate.files import CONFIG_LIMIT, parse_object, read_text

# The file in which transformers keeps how a model generates, in the same folder.
GENERATION_CONFIG_FILE = "generation_config.json"


@dataclass(frozen=True)
class Suppressed:
    """Tokens that may not come.

    Attributes:
        always: They never do.
        first: They are not the first after a prompt.
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


NO_SUPPRESSION = Suppressed()


def suppressed_in(folder: str, vocabulary: int) -> Suppressed:
    """Return what a folder says; nothing if it has no such file.

    Raises:
        Refused: The file is no JSON, or a token is none of the model's.
    """
    path = os.path.join(folder, GENERATION_CONFIG_FILE)
    if not os.path.isfile(path):
        return NO_SUPPRESSION
    told = parse_object(read_text(path, CONFIG_LIMIT), path)
    lists = (_tokens(told, f"{which}suppress_tokens", vocabulary) for which in ("", "begin_"))
    return Suppressed(*lists)


def _tokens(told: Mapping[str, Any], key: str, vocabulary: int) -> tuple[int, ...]:
    listed = told.get(key) or []
    if not isinstance(listed, list) or len(listed) > vocabulary:
        raise Refused(
            f"{key} in {GENERATION_CONFIG_FILE} is {listed!r:.60}; expected a list of tokens"
        )
    for token in listed:
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary:
            raise Refused(
                f"{key} in {GENERATION_CONFIG_FILE} has {token!r:.60}; "
                f"expected numbers from 0 to {vocabulary - 1}"
            )
    return tuple(listed)
