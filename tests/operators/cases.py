"""Every row of the ``cases_*.py`` tables, and its model of one node."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from case import Case
from onnx import helper, numpy_helper

CASES: list[Case] = [
    case
    for path in sorted(Path(__file__).parent.glob("cases_*.py"))
    for case in importlib.import_module(path.stem).CASES
]


def model_of(case: Case) -> onnx.ModelProto:
    """A model whose inputs are the case's, named by position."""
    node = helper.make_node(case.op, [], [f"y{i}" for i in range(len(case.answers()))])
    node.domain = case.domain
    node.input.extend("" if array is None else f"x{i}" for i, array in enumerate(case.inputs))
    node.attribute.extend(attributes(case))
    inputs = [
        helper.make_value_info(f"x{i}", type_of(array))
        for i, array in enumerate(case.inputs)
        if array is not None
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    imports = {"": onnx.defs.onnx_opset_version(), case.domain: case.version}
    return helper.make_model(
        helper.make_graph([node], case.id, inputs, outputs),
        opset_imports=[helper.make_opsetid(*item) for item in imports.items()],
    )


def attributes(case: Case) -> Iterator[onnx.AttributeProto]:
    known = {}
    if onnx.defs.has(case.op, case.version, case.domain):
        known = onnx.defs.get_schema(case.op, case.version, case.domain).attributes
    for name, value in case.attributes.items():
        kind = known[name].type.value if name in known else None
        is_tensor = isinstance(value, np.ndarray)
        given = numpy_helper.from_array(value) if is_tensor else value
        yield helper.make_attribute(name, given, attr_type=kind)


def type_of(value: Any) -> onnx.TypeProto:
    """The type of an input; without an element type where the value does not show it."""
    if isinstance(value, list):
        return helper.make_sequence_type_proto(type_of(value[0])) if value else onnx.TypeProto()
    if isinstance(value, Mapping):
        return onnx.TypeProto()
    array = np.asarray(value)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def feeds_of(case: Case) -> dict[str, Any]:
    return {f"x{i}": value for i, value in enumerate(case.inputs) if value is not None}
