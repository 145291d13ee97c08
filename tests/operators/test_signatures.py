"""A kernel's signature is its operator's schema: the attributes and defaults of that version."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import onnx.defs
import pytest
from onnx.helper import get_attribute_value

from tenonnx.operators import Kernel
from tenonnx_array import TABLE

OWN_DEFAULTS = {
    ("Concat", "axis"): "1 in version 1, in words only",
    ("GRU", "activations"): "in words only",
    ("GRU", "direction"): "misspelt in version 1",
    ("LSTM", "activations"): "in words only",
    ("SequenceEmpty", "dtype"): "in words only",
    ("StringNormalizer", "locale"): "left to the implementation",
}
NEEDED = {("RegexFullMatch", "pattern")}
"""Optional by the schema, without a meaning when absent."""
IDLE = {("BatchNormalization", "consumed_inputs")}
"""Required by the schema, without a meaning when there."""

PAIRS = [
    pytest.param(schema, kernel, id=f"{schema.name}-{schema.since_version}")
    for schema in onnx.defs.get_all_schemas_with_history()
    if (kernel := TABLE.find(schema.domain, schema.name, schema.since_version))
]


def default(attribute: Any) -> Any:
    if not attribute.default_value.type:
        return None
    return plain(get_attribute_value(attribute.default_value))


def plain(value: Any) -> Any:
    """Strings as str, lists as tuples, floats as a model file has them."""
    match value:
        case bytes():
            return value.decode()
        case float():
            return np.float32(value)
        case list() | tuple():
            return tuple(map(plain, value))
    return value


@pytest.mark.parametrize(("schema", "kernel"), PAIRS)
def test_attributes_are_the_schemas(schema: onnx.defs.OpSchema, kernel: Kernel) -> None:
    ours = {n: d for n, d in kernel.attributes.items() if not n.startswith("_")}
    assert ours.keys() == schema.attributes.keys()
    for name, attribute in schema.attributes.items():
        key = (schema.name, name)
        required = (attribute.required and key not in IDLE) or key in NEEDED
        assert (ours[name] is inspect.Parameter.empty) == required
        if not required and key not in OWN_DEFAULTS:
            found = plain(ours[name])
            assert found == default(attribute) or (found == () and default(attribute) is None)
