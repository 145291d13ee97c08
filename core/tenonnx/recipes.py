"""Sessions as recipes: what is pickled is how to build one, not the one that was built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import onnx

from tenonnx.options import SessionOptions
from tenonnx.provider import Provider


def recipe(
    source: Any,
    options: SessionOptions,
    providers: Sequence[Any] | None,
    provider_options: Sequence[Any] | None,
) -> tuple[Any, ...]:
    """Returns arguments that build the same session in another process.

    A path stays a path, so that processes share what they map; bytes are copied.

    Raises:
        TypeError: Something of it belongs to this process.
    """
    if isinstance(source, str | os.PathLike):
        source = os.path.abspath(source)  # noqa: PTH100 - a string, as it was given
    elif isinstance(source, bytearray | memoryview):
        source = bytes(source)
    elif not isinstance(source, bytes | onnx.ModelProto):
        raise TypeError(
            f"a session of a {type(source).__name__} cannot be pickled; build it from a path"
        )
    if any(isinstance(provider, Provider) for provider in providers or ()):
        raise TypeError(
            "a session whose providers are instances cannot be pickled; give names and options"
        )
    return source, options, providers, provider_options
