"""Sessions as recipes: what is pickled is how to build one, not the one that was built."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from tenonnx import errors
from tenonnx.errors import InvalidArgument
from tenonnx.interface.config import DATA_FOLDER
from tenonnx.options import SessionOptions
from tenonnx.provider import Provider

# The most bytes of a model that travels as its bytes.
MAX_PICKLED_MODEL_BYTES = 16 << 20


class Unkept:
    """A source that a session keeps no reference to."""


def kept(source: Any) -> Any:
    """Return what a session keeps of its source.

    A path is kept so that it leads to the same file whatever folder the process goes to. A
    ``ModelProto`` would keep a second copy of the weights.
    """
    if isinstance(source, bytes):
        return source
    if isinstance(source, str | os.PathLike):
        return source if os.path.isabs(source) else absolute(source)  # noqa: PTH117 - as above
    import onnx

    return Unkept() if isinstance(source, onnx.ModelProto) else source


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path from the root; its links and ``..`` stay as they are."""
    return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118 - pathlib takes its time


def refuse_unkept(source: Any) -> None:
    """Refuse to build a session anew from what it did not keep.

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
    """Return arguments that build the same session in another process.

    A path stays a path, so that processes share what they map; bytes are copied.

    Raises:
        TypeError: Something of it belongs to this process, or it is larger than what travels.
    """
    if isinstance(source, str | os.PathLike):
        source = os.fspath(source)
    elif isinstance(source, bytes | bytearray | memoryview):
        source = _few(source)
    else:
        kind = "ModelProto" if isinstance(source, Unkept) else type(source).__name__
        raise TypeError(f"a session of a {kind} cannot be pickled; build it from a path")
    if any(isinstance(provider, Provider) for provider in providers or ()):
        raise TypeError(
            "a session whose providers are instances cannot be pickled; give names and options"
        )
    return source, _with_whole_paths(options), providers, provider_options


def _few(source: bytes | bytearray | memoryview) -> bytes:
    size = memoryview(source).nbytes
    if size > MAX_PICKLED_MODEL_BYTES:
        raise TypeError(
            f"a session of {size >> 20} MiB in memory cannot be pickled, for each process would "
            f"get a copy; at most {MAX_PICKLED_MODEL_BYTES >> 20} MiB travel: build it from a path"
        )
    return bytes(source)


def _with_whole_paths(options: SessionOptions) -> SessionOptions:
    """Return options with absolute folders, which any process can use."""
    folder = options.entry(DATA_FOLDER)
    if not folder and not options.allowed_roots:
        return options
    whole = options.copy()
    whole.allowed_roots = [absolute(root) for root in options.allowed_roots]
    if folder:
        whole._config[DATA_FOLDER] = absolute(folder)
    return whole


def rebuilt(build: Callable[..., Any], source: Any) -> Any:
    """Build a session from its recipe, where that arrives.

    Raises:
        TenonnxError: As for building one; of a path it says that the files did not travel.
    """
    try:
        return build(source)
    except (errors.NoSuchFile, errors.InvalidGraph) as error:
        if isinstance(source, str):
            here = f"A session travels as its path: put the model and its data at {source} here."
            error.hint = f"{error.hint} {here}" if error.hint else here
        raise
