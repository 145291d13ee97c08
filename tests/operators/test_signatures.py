"""A kernel's signature is its operator's schema: the attributes and defaults of that version."""

from __future__ import annotations

import inspect
from typing import Any

import onnx.defs
import pytest
from onnx.helper import get_attribute_value

from tenonnx.operators import Kernel
from tenonnx_array import (
    generate,
    index,
    pad,
    sampling,
    scatter,
    sequence,
    shape,
    slicing,
    strings,
    tfidf,
)

MODULES = [generate, index, pad, sampling, scatter, sequence, shape, slicing, strings, tfidf]
OWN_DEFAULTS = {("Concat", "axis"), ("SequenceEmpty", "dtype"), ("StringNormalizer", "locale")}
"""Defaults that the schema has in words only."""

PAIRS = [
    pytest.param(schema, kernel, id=f"{schema.name}-{schema.since_version}")
    for schema in onnx.defs.get_all_schemas_with_history()
    for module in MODULES
    if (kernel := module.table.find(schema.domain, schema.name, schema.since_version))
]


def default(attribute: Any) -> Any:
    if not attribute.default_value.type:
        return None
    value = get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


@pytest.mark.parametrize(("schema", "kernel"), PAIRS)
def test_attributes_are_the_schemas(schema: onnx.defs.OpSchema, kernel: Kernel) -> None:
    ours = {n: d for n, d in kernel.attributes.items() if not n.startswith("_")}
    assert ours.keys() == schema.attributes.keys()
    for name, attribute in schema.attributes.items():
        if attribute.required:
            assert ours[name] is inspect.Parameter.empty
        elif ours[name] in (None, (), inspect.Parameter.empty):
            assert default(attribute) is None
        elif (schema.name, name) not in OWN_DEFAULTS:
            assert ours[name] == default(attribute)


def test_every_version_is_served() -> None:
    served = {(p.values[0].name, p.values[0].since_version) for p in PAIRS}
    names = {name for name, _ in served}
    versions = {
        (schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name in names and not schema.domain
    }
    assert served == versions
