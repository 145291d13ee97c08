"""Model formats: who can read a file. ONNX itself is built in; plug-ins add others."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx.errors import NotSupported, PluginError, TenonnxError
from tenonnx.formats.in_memory_data import NO_DATA, Supplied

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.weights.registry import WeightRegistry

log = logging.getLogger("tenonnx")

# The bytes of a file or buffer that a format's ``sniff`` sees.
HEADER_BYTES = 64


@dataclass(frozen=True)
class Format:
    """A way to read models.

    Attributes:
        name: For messages and listings.
        load: Takes a path or buffer and a registry; returns a model whose weights live there.
        sniff: Recognizes the first bytes.
        suffixes: File name endings, for listings and for choosing a format to write.
        save: Writes a model to a path; ``None`` if the format is only read.
    """

    name: str
    load: Callable[[Any, WeightRegistry], ir.Model]
    sniff: Callable[[bytes], bool]
    suffixes: tuple[str, ...] = ()
    save: Callable[[ir.Model, Path], None] | None = None


def load_model(
    source: Any,
    registry: WeightRegistry,
    formats: Sequence[Format] = (),
    allowed_roots: Iterable[str] = (),
    supplied: Supplied = NO_DATA,
) -> ir.Model:
    """Load a model in whichever format recognizes it; ONNX if none does.

    Args:
        source: A path, a buffer, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        registry: Where the weights go.
        formats: Formats to try first, in order.
        allowed_roots: Folders outside the model's own that external data may come from.
        supplied: Initializers and files of external data that the caller has in memory.

    Raises:
        NotSupported: Something is supplied for a model of another format than ONNX.
        PluginError: A format failed, or loads what is no model.
    """
    header = _header(source) if formats else b""
    for candidate in formats:
        if header and _recognizes(candidate, header):
            if supplied:
                raise NotSupported(f"initializers cannot be supplied for a {candidate.name} model")
            return _load(candidate, source, registry)
    from tenonnx.formats.load import load

    return load(source, registry, allowed_roots=allowed_roots, supplied=supplied)


def _load(candidate: Format, source: Any, registry: WeightRegistry) -> ir.Model:
    import onnx_ir as ir

    try:
        model = candidate.load(source, registry)
    except TenonnxError:
        raise
    except Exception as error:  # a stranger's code may raise anything
        raise PluginError(f"format {candidate.name!r} failed to load it: {error!r}") from error
    if not isinstance(model, ir.Model):
        raise PluginError(
            f"format {candidate.name!r} loads {type(model).__name__}; expected an onnx_ir.Model"
        )
    return model


def _recognizes(candidate: Format, header: bytes) -> bool:
    try:
        return candidate.sniff(header)
    except Exception as error:  # a stranger's code may raise anything, about anybody's files
        log.warning("format %r cannot tell its files: %r", candidate.name, error)
        return False


def _header(source: Any) -> bytes:
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if not os.path.isfile(path):  # noqa: PTH113 - a name that is too long is no error there
            return b""
        with path.open("rb") as file:
            return file.read(HEADER_BYTES)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(memoryview(source)[:HEADER_BYTES])
    return b""
