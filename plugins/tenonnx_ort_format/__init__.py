"""onnxruntime's ``.ort`` files, read and written; weights are viewed in the mapped file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenonnx import Format, hookimpl

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import WeightRegistry

# Bytes 4 to 8 of a flatbuffer of onnxruntime's schema.
IDENTIFIER = b"ORTM"


@hookimpl
def register_formats(register: Callable[[Format], None]) -> None:
    """Announce the format; reader and writer are imported when they are needed."""
    register(Format("ort", _load, lambda h: h[4:8] == IDENTIFIER, suffixes=(".ort",), save=_save))


def _load(source: Any, registry: WeightRegistry) -> ir.Model:
    from tenonnx_ort_format.read import read_model

    return read_model(source, registry)


def _save(model: ir.Model, path: Path) -> None:
    from tenonnx_ort_format.write import write_model

    write_model(model, path, IDENTIFIER)
