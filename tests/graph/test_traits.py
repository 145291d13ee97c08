"""The table of traits says what operators do, and no other table says it again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sources import ROOT, modules
from tenonnx.graph import traits
from tenonnx_array import TABLE
from tenonnx_array.nonlinear import ACTIVATIONS
from tenonnx_cpu.activation import OPCODE_OF_NAME
from tenonnx_cuda.elementwise.formulas import ENDINGS

LATEST = onnx.defs.onnx_opset_version()
OPERATORS = {s.name for s in onnx.defs.get_all_schemas() if s.domain in ("", "ai.onnx.ml")}

LEAST = 3
"""Names of operators that make a table of a collection."""

ANSWERS = "facts of one kernel, or of one rewrite, that nothing else asks for"
OTHERS = "what another program has kernels for, or reads"
PLACES = {
    "core/tenonnx/graph/traits.py": "the table",
    "core/tenonnx/graph/sizes.py": "a rule of inference for each",
    "core/tenonnx/graph/__init__.py": "what the runtime runs itself, which everything imports",
    "core/tenonnx/graph/element_types.py": "where zero points are among the inputs",
    "providers/tenonnx_array/gates.py": "activations that recurrent layers know",
    "providers/tenonnx_array/logical.py": "numpy's names",
    "providers/tenonnx_cuda/elementwise/formulas.py": "formulas in C",
    "core/tenonnx/graph/affine.py": ANSWERS,
    "plugins/tenonnx_jax/declined.py": OTHERS,
    "providers/tenonnx_cpu/conv/patch_embedding.py": ANSWERS,
    "providers/tenonnx_cpu/conv/epilogue.py": "what its kernels do as they store",
    "providers/tenonnx_cpu/data_movement/transpose.py": ANSWERS,
    "providers/tenonnx_cpu/elementwise/operators.py": "what one kernel is registered for",
    "providers/tenonnx_cpu/reduce/reduction.py": "what one kernel is registered for",
    "providers/tenonnx_cpu/ml/feature_hashing.py": "what exporters write for one estimator",
    "providers/tenonnx_cuda/capture/capturable.py": "what cupy leaves to libraries that wait",
    "providers/tenonnx_cuda/provider.py": ANSWERS,
    "providers/tenonnx_array/tracing.py": ANSWERS,
    "plugins/tenonnx_fold/fold.py": "what reads numbers that are stored as codes",
    "plugins/tenonnx_fuse/__init__.py": "what a transform needs in a model",
    "plugins/tenonnx_fuse/conv.py": ANSWERS,
    "plugins/tenonnx_fuse/rewrite.py": "whose notes are passed on",
    "plugins/tenonnx_fuse/last_row.py": "what may come between the last product and its output",
    "plugins/tenonnx_fuse/widen_fp16.py": "what is faster in float32, and takes what it gives",
    "plugins/tenonnx_fuse/microsoft.py": "what onnxruntime ends a FusedGemm with",
    "plugins/tenonnx_fuse/nchwc.py": "what onnxruntime has blocks of channels for",
    "plugins/tenonnx_openvino/declined.py": OTHERS,
    "plugins/tenonnx_ort_format/write.py": OTHERS,
    "plugins/tenonnx_quant/choosing.py": "what is quantized, as a scheme's user is told",
    "plugins/tenonnx_quant/dynamic.py": "what is quantized, as a scheme's user is told",
    "plugins/tenonnx_quant/__init__.py": "what a transform looks for",
    "plugins/tenonnx_quant/moves.py": "what gives codes back as they are",
    "plugins/tenonnx_torch/provider.py": "what torch has no kernel for",
    "plugins/tenonnx_training/rules.py": "what no gradient flows through",
}
"""The places of collections of operators' names, and why they are no traits."""


def names_of(node: ast.AST) -> Iterator[str]:
    """Yield the operators that a collection or a text in columns names."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.split()
        yield from (words if len(words) >= LEAST and OPERATORS.issuperset(words) else ())
    for each in getattr(node, "elts", ()):
        if isinstance(each, ast.Constant) and each.value in OPERATORS:
            yield each.value


def is_lookup(node: ast.AST) -> bool:
    """Return whether a dictionary says plain facts of its keys, rather than dispatching on them."""
    return isinstance(node, ast.Dict) and all(isinstance(v, ast.Constant) for v in node.values)


def tables(path: Path) -> Iterator[int]:
    """Yield the lines of a file that list operators."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = set(names_of(node))
        if is_lookup(node):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            found = OPERATORS.intersection(keys)
        if len(found) >= LEAST and not isinstance(node, ast.Call):
            yield getattr(node, "lineno", 0)


def test_operators_are_listed_where_there_is_a_reason() -> None:
    found = {str(path.relative_to(ROOT)): [*tables(path)] for path in modules()}
    written = "listing.py"  # by tools/kernel_listing.py
    listed = {name: lines for name, lines in found.items() if lines and not name.endswith(written)}
    assert listed.keys() == PLACES.keys(), (
        f"take these from tenonnx.graph.traits, or say why not: "
        f"{ {path: listed[path] for path in listed.keys() - PLACES.keys()} }; "
        f"without such a table: {PLACES.keys() - listed.keys()}"
    )


@pytest.mark.parametrize("name", traits.ACTIVATIONS)
def test_activations_have_the_defaults_of_their_schema(name: str) -> None:
    schema = onnx.defs.get_schema(name)
    floats = {
        key: attribute.default_value.f
        for key, attribute in schema.attributes.items()
        if attribute.default_value.type == onnx.AttributeProto.FLOAT
    }
    parameters = traits.ACTIVATIONS[name]
    assert {key: np.float32(value) for key, value in parameters.items()} == floats
    kernel = TABLE.find("", name, LATEST)
    assert kernel is not None
    assert {k: v for k, v in kernel.attributes.items() if k in parameters} == parameters


def test_activations_have_one_name_in_numpy_numba_and_c() -> None:
    assert ACTIVATIONS.keys() == traits.ACTIVATIONS.keys()
    assert OPCODE_OF_NAME.keys() - {"Clip"} <= traits.ACTIVATIONS.keys()
    assert ENDINGS.keys() - {"", "Clip", "GeluTanh"} <= traits.ACTIVATIONS.keys()


def test_traits_are_of_operators() -> None:
    for name, names in vars(traits).items():
        if isinstance(names, frozenset):
            assert names <= OPERATORS, name


TYPES = {"tensor(float)": np.float32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
NEEDED: dict[str, dict[str, Any]] = {"BitShift": {"direction": "LEFT"}, "Cast": {"to": 7}}


def computed(name: str, *given: Any) -> Any:
    kernel = TABLE.find("", name, LATEST)
    assert kernel is not None
    return kernel.bind(np, NEEDED.get(name, {}), 1)(*given)


def operands(name: str) -> list[Any]:
    """Return matrices of types that an operator takes; one of them is to be broadcast."""
    schema = onnx.defs.get_schema(name)
    kinds = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    count = 1 if name in traits.UNARY else 3 if name == "Where" else 2
    random, given = np.random.default_rng(0), []
    for position, shape in enumerate([(3, 4), (3, 1), (1, 4)][:count]):
        parameter = schema.inputs[min(position, len(schema.inputs) - 1)]
        allowed = kinds.get(parameter.type_str, [parameter.type_str])
        dtype = next(dtype for kind, dtype in TYPES.items() if kind in allowed)
        given.append((random.random(shape) * 3).astype(dtype))
    return given


@pytest.mark.parametrize("name", sorted(traits.ELEMENTWISE))
@pytest.mark.filterwarnings("ignore:(invalid value|divide by zero)")
def test_elementwise_operators_compute_elements_alone(name: str) -> None:
    given = operands(name)
    whole = computed(name, *given)
    assert whole.shape == (3, 4)
    np.testing.assert_array_equal(computed(name, *(x.T for x in given)), whole.T)
    parts = [x[1:2] if len(x) > 1 else x for x in given]
    np.testing.assert_array_equal(computed(name, *parts), whole[1:2])


@pytest.mark.parametrize("name", sorted(traits.COMMUTATIVE))
def test_commutative_operators_take_either_order(name: str) -> None:
    first, second = operands(name)
    np.testing.assert_array_equal(computed(name, first, second), computed(name, second, first))


@pytest.mark.parametrize("name", sorted(traits.TYPED_AS))
def test_typed_as_is_what_schemas_say(name: str) -> None:
    which = traits.TYPED_AS[name]
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == name and not schema.domain:
            taken = [parameter.type_str for parameter in schema.inputs[which]]
            assert taken
            assert set(taken) == {schema.outputs[0].type_str}, schema.since_version


@pytest.mark.parametrize("name", sorted(traits.BOOLEAN | traits.COUNTING))
def test_results_of_one_type_are_what_schemas_say(name: str) -> None:
    wanted = "tensor(bool)" if name in traits.BOOLEAN else "tensor(int64)"
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == name and not schema.domain:
            said = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
            bound = schema.outputs[0].type_str
            assert list(said.get(bound, [bound])) == [wanted], schema.since_version


@pytest.mark.parametrize("name", sorted(traits.ALL_TYPED_AS_FIRST))
def test_all_results_are_typed_alike(name: str) -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == name and not schema.domain:
            assert {output.type_str for output in schema.outputs} == {schema.inputs[0].type_str}
