"""Sessions as recipes: what is pickled is how to build one, not the one that was built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tenonnx.errors import InvalidArgument
from tenonnx.options import SessionOptions
from tenonnx.provider import Provider


class Unkept:
    """Stands for a source that a session keeps no reference to."""


def kept(source: Any) -> Any:
    """Returns what a session keeps of its source.

    A ``ModelProto`` would keep a second copy of the weights.
    """
    if isinstance(source, (str, bytes, os.PathLike)):
        return source
    import onnx

    return Unkept() if isinstance(source, onnx.ModelProto) else source


def refuse_unkept(source: Any) -> None:
    """Refuses to build a session anew from what it did not keep.

    Raises:
        InvalidArgument: It was built from a ``ModelProto``.
    """
    if isinstance(source, Unkept):
        raise InvalidArgument(
            "the session was built from an onnx.ModelProto, which it does not keep",
            hint="build it from a path or bytes, or build another one",
        )


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
    elif not isinstance(source, bytes):
        kind = "ModelProto" if isinstance(source, Unkept) else type(source).__name__
        raise TypeError(f"a session of a {kind} cannot be pickled; build it from a path")
    if any(isinstance(provider, Provider) for provider in providers or ()):
        raise TypeError(
            "a session whose providers are instances cannot be pickled; give names and options"
        )
    return source, options, providers, provider_options
