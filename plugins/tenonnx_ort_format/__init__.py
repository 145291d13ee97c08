"""Reads onnxruntime's ``.ort`` files; their weights are viewed in the mapped file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenonnx import Format, hookimpl

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import WeightRegistry

IDENTIFIER = b"ORTM"
"""Bytes 4 to 8 of a flatbuffer of onnxruntime's schema."""


@hookimpl
def register_formats(register: Callable[[Format], None]) -> None:
    """Announce the format; its reader is imported when a file of it is opened."""
    register(Format("ort", _load, lambda header: header[4:8] == IDENTIFIER, suffixes=(".ort",)))


def _load(source: Any, registry: WeightRegistry) -> ir.Model:
    from tenonnx_ort_format.read import read_model

    return read_model(source, registry)
