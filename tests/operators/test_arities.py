"""A kernel takes as many inputs as the operator's schema has, and no node that fits is refused."""

from __future__ import annotations

import importlib
import math

import onnx
import pytest

from tenonnx_array import TABLE

SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if not s.deprecated]


@pytest.mark.parametrize("domain", ["", "ai.onnx.ml"])
def test_no_kernel_is_stricter_than_its_schema(domain: str) -> None:
    single = onnx.defs.OpSchema.FormalParameterOption.Single
    for schema in SCHEMAS:
        kernel = TABLE.find(domain, schema.name, schema.since_version)
        if schema.domain != domain or kernel is None:
            continue
        least, most = kernel.arity()
        assert least <= schema.min_input, kernel
        assert most >= schema.max_input, kernel
        assert domain or all(formal.option == single for formal in schema.inputs[:least]), kernel


@pytest.mark.parametrize("package", ["tenonnx_jax", "tenonnx_torch"])
def test_functions_that_numpy_lacks_are_no_stricter(package: str) -> None:
    listing = importlib.import_module(f"{package}.provider").KERNEL_OPERATORS
    for module in listing:
        table = importlib.import_module(f"{package}.{module}").table
        for schema in SCHEMAS:
            kernel = table.find(schema.domain, schema.name, schema.since_version)
            if kernel is not None:
                least, most = kernel.arity()
                assert least <= schema.min_input, kernel
                assert most >= schema.max_input, kernel


def test_most_kernels_are_as_strict() -> None:
    exact = 0
    for schema in SCHEMAS:
        kernel = TABLE.find(schema.domain, schema.name, schema.since_version)
        if kernel is not None and not schema.domain:
            exact += kernel.arity()[0] == schema.min_input
    assert exact > 500


UNKNOWN = {"Where": "numpy's refuses another number itself"}
"""Operators of unknown arity, each with the reason."""


def test_no_kernel_takes_any_number_of_inputs_but_variadic_ones() -> None:
    """A universal function of numpy's would write its result to the input too many."""
    options = onnx.defs.OpSchema.FormalParameterOption
    variadic = {s.name for s in SCHEMAS if any(x.option == options.Variadic for x in s.inputs)}
    found = {kernel.op_type for kernel in TABLE if kernel.arity()[1] == math.inf}
    assert found - variadic == set(UNKNOWN)
