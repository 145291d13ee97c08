"""A model's metadata."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tenonnx.by_name import cacheable

# onnxruntime's value for a model without a version.
UNVERSIONED = 2**63 - 1


@cacheable
@dataclass(frozen=True)
class ModelMetadata:
    """A model's description of itself, as onnxruntime reports it.

    Attributes:
        producer_name: The program that made it.
        graph_name: Its graph's name.
        domain: Its domain, as a reversed host name.
        description: A description in words.
        graph_description: The same of its graph.
        version: Its version; 9223372036854775807 if it has none.
        custom_metadata_map: Its other metadata entries.
    """

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = UNVERSIONED
    custom_metadata_map: dict[str, str] = field(default_factory=dict)


def metadata_of(model: Any) -> ModelMetadata:
    """Return the metadata of an ``onnx_ir.Model``."""
    return ModelMetadata(
        producer_name=model.producer_name or "",
        graph_name=model.graph.name or "",
        domain=model.domain or "",
        description=model.doc_string or "",
        graph_description=model.graph.doc_string or "",
        version=UNVERSIONED if model.model_version is None else model.model_version,
        custom_metadata_map=dict(model.metadata_props),
    )
