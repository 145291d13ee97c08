"""Operators of large arrays that numpy computes in chunks: together they are what the whole is."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from case import Case, assert_equal
from cases import CASES, model_of

from small_chunks import make_chunks_small
from tenonnx.graph import python_attributes
from tenonnx.interruption import copied
from tenonnx.operators import OperatorTable
from tenonnx_array import TABLE, chunk_rules, chunks, sampling, slicing
from tenonnx_array.piecewise import Piecewise
from tenonnx_array.provider import CHUNKED, FIRST, RULE_OF, Stoppable
from tenonnx_contrib import register_operators

OPERATORS = OperatorTable().update(TABLE)
register_operators(OPERATORS.update)


def name_of(case: Case) -> str:
    """As the table of rules has it."""
    return f"{case.domain}::{case.op}" if case.domain else case.op


SOME = [case for case in CASES if name_of(case) in RULE_OF]
DRAW = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Tells which operators were cut."""
    return make_chunks_small(monkeypatch)


def both(op: str, version: int, inputs: Any, **attributes: Any) -> tuple[Any, Any]:
    """Returns what a kernel makes of inputs at once, and in chunks."""
    return outcomes(Case(op, version, inputs, np.zeros(1), attributes))


def outcomes(case: Case) -> tuple[Any, Any]:
    node = next(iter(ir.serde.deserialize_model(model_of(case)).graph))
    node.version = case.version
    kernel = OPERATORS.find(case.domain, case.op, case.version)
    assert kernel is not None
    call = kernel.bind(np, python_attributes(node), len(node.outputs))
    with np.errstate(all="ignore"):
        wanted = call(*case.inputs)
        found = chunks.in_chunks(call, node, case.inputs, RULE_OF[name_of(case)], call)
    assert isinstance(found, tuple) == isinstance(wanted, tuple)
    return (wanted[: len(found)], found) if isinstance(found, tuple) else ((wanted,), (found,))


@pytest.mark.parametrize("key", sorted(RULE_OF))
def test_chunks_are_the_whole_in_every_case_there_is(key: str) -> None:
    for case in SOME:
        if name_of(case) == key:
            for wanted, found in zip(*outcomes(case), strict=True):
                assert not isinstance(found, Piecewise)
                assert_equal(found, wanted, 1e-6, 1e-6)


def floats(*shape: int) -> Any:
    return DRAW.standard_normal(shape, np.float32)


def below(high: int, *shape: int) -> Any:
    return DRAW.integers(0, high, shape)


BYTES = below(255, 4, 6).astype(np.uint8)
IMAGES = floats(3, 4, 5, 6)
FOUR = [np.abs(floats(4)) for _ in range(4)]

ROWS: list[tuple[str, int, list[Any], dict[str, Any]]] = [
    ("Add", 14, [floats(4, 1, 3), floats(5, 1)], {}),
    ("Where", 16, [below(2, 4, 5) > 0, floats(1, 5), floats(4, 1)], {}),
    ("PRelu", 16, [floats(4, 5), floats(5)], {}),
    ("Cast", 21, [floats(4, 5)], {"to": 8}),
    ("ReduceSum", 13, [floats(4, 5, 6), np.array([1])], {"keepdims": 0}),
    ("ReduceMax", 18, [floats(4, 5, 6), np.array([0, -1])], {}),
    ("ArgMax", 13, [floats(4, 5, 6)], {"axis": 1, "keepdims": 0}),
    ("Softmax", 11, [floats(4, 5, 6)], {"axis": 2}),
    ("Softmax", 13, [floats(4, 5)], {"axis": 0}),
    ("LayerNormalization", 17, [floats(4, 5, 6), floats(5, 6), floats(6)], {"axis": 1}),
    ("RMSNormalization", 23, [floats(4, 6), floats(4, 6)], {}),
    ("BatchNormalization", 15, [IMAGES, *FOUR], {}),
    ("BatchNormalization", 15, [IMAGES[:1], *FOUR], {}),
    ("BatchNormalization", 15, [IMAGES, *FOUR], {"training_mode": 1}),
    ("InstanceNormalization", 22, [IMAGES[:1], *FOUR[:2]], {}),
    ("LRN", 13, [IMAGES[:1]], {"size": 3}),
    ("MaxPool", 22, [IMAGES[:1]], {"kernel_shape": [2, 2]}),
    ("ConvTranspose", 22, [IMAGES, floats(4, 2, 2, 2)], {}),
    ("GridSample", 22, [IMAGES, np.tanh(floats(3, 2, 2, 2))], {}),
    ("GridSample", 22, [IMAGES[:1], np.tanh(floats(1, 2, 2, 2))], {}),
    ("QuantizeLinear", 21, [floats(4, 6), np.abs(floats(4)), BYTES[:, 0]], {"axis": 0}),
    ("DequantizeLinear", 21, [BYTES, floats(6), BYTES[0]], {"axis": 1}),
    ("DequantizeLinear", 21, [BYTES, floats(4, 2), BYTES[:, :2]], {"axis": 1, "block_size": 3}),
    ("DequantizeLinear", 21, [BYTES, floats(2, 6)], {"axis": 0, "block_size": 2}),
    ("Gather", 13, [floats(5, 6, 2), below(6, 3, 4)], {"axis": 1}),
    ("Gather", 13, [floats(5, 6), np.array(3)], {"axis": 1}),
    ("GatherElements", 13, [floats(5, 6), below(5, 3, 4)], {"axis": 0}),
    ("GatherElements", 13, [floats(5, 6), below(6, 5, 1)], {"axis": 1}),
    ("GatherND", 13, [floats(5, 6, 2), below(5, 7, 2)], {}),
    ("GatherND", 13, [floats(5, 6, 2), below(6, 5, 1)], {"batch_dims": 1}),
    ("ScatterElements", 18, [floats(5, 6), below(5, 3, 6), floats(3, 6)], {"reduction": "add"}),
    ("ScatterElements", 18, [floats(5, 6), below(6, 3, 4), floats(3, 4)], {"axis": 1}),
    ("OneHot", 11, [below(5, 3, 4), np.array(5), np.array([0.0, 1])], {"axis": 1}),
    ("OneHot", 11, [below(5, 3, 4), np.array(5), np.array([0.0, 1])], {"axis": 0}),
    ("ReverseSequence", 10, [floats(5, 3, 2), below(5, 3) + 1], {}),
    ("DFT", 20, [floats(3, 8, 1)], {}),
    ("DFT", 20, [floats(8, 3, 1), None, np.array(0)], {}),
    ("Det", 22, [floats(4, 3, 3)], {}),
]  # fmt: skip

WORDS = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
ROWS += [(op, 22, [below(2, 4, 5) > 0] * 2, {}) for op in ("And", "Or", "Xor")]
ROWS += [(f"Bitwise{op}", 22, [below(9, 4, 5)] * 2, {}) for op in ("And", "Or", "Xor")]
ROWS += [(op, 22, [floats(4, 5)] * 2, {}) for op in ("Sub", "Mul", "Greater", "Sum")]
ROWS += [(op, 22, [floats(4, 5)], {}) for op in ("Cos", "Sign", "Ceil", "Floor", "Neg", "Tanh")]
ROWS += [
    ("Not", 22, [below(2, 4, 5) > 0], {}),
    ("BitwiseNot", 22, [below(9, 4, 5)], {}),
    ("Swish", 24, [floats(4, 5)], {"alpha": 2.0}),
    ("StringConcat", 20, [WORDS, WORDS[0]], {}),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_chunks_are_the_whole(row: Any) -> None:
    op, version, inputs, attributes = row
    for wanted, found in zip(*both(op, version, inputs, **attributes), strict=True):
        assert_equal(found, wanted, 1e-6, 1e-6)


def every_row() -> list[Any]:
    """Returns what a row has, of the cases as well."""
    cases = [(name_of(case), case.version, case.inputs, case.attributes) for case in SOME]
    return [*cases, *ROWS]


def test_every_operator_has_a_rule_and_most_are_cut(small: set[str]) -> None:
    for key, version, inputs, attributes in every_row():
        newest = chunks.NEWEST if "::" in key else version
        given = chunk_rules.Given(key.rpartition(":")[2], newest, attributes)
        chunks.cut_of(given, inputs, RULE_OF[key])
    has_cases = {name_of(case) for case in SOME} | {row[0] for row in ROWS}
    others = {key for key in RULE_OF if key not in has_cases}
    assert {key for key in others if "microsoft" not in key} == {
        "SimplifiedLayerNormalization",
        "SwiGLU",
    }
    cut = {key for key, rule in RULE_OF.items() if rule != "whole"} - others
    assert {key.rpartition(":")[2] for key in cut} - small == set()
    assert all(callable(getattr(chunk_rules, rule)) for rule in CHUNKED)


def test_what_does_not_fit_is_left_to_the_operator() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        both("Add", 14, [floats(4, 5), floats(3, 5)])
    with pytest.raises((ValueError, IndexError)):
        both("Gather", 13, [floats(4, 5), below(3, 9) + 9])


def test_attention_of_vectors_is_left_to_the_operator() -> None:
    """No matter how long: what is wrong about them is the operator's to say."""
    vector = np.zeros(5, np.float32)
    assert chunk_rules.largest(chunk_rules.Given("Attention", 23, {}), [vector] * 3) == 5


def test_what_the_first_input_decides_is_as_much_work_as_that_has_elements() -> None:
    for key, version, inputs, attributes in every_row():
        if RULE_OF[key] in FIRST:
            given = chunk_rules.Given(key.rpartition(":")[2], version, attributes)
            cut = chunks.cut_of(given, inputs, RULE_OF[key])
            assert cut is None or cut.work == inputs[0].size


def test_factors_that_broadcast_make_no_norm_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "in_chunks", lambda *_: pytest.fail("it is cut"))
    node = ir.node("LayerNormalization", [ir.val("x"), ir.val("w")])
    Stoppable(lambda *_: None, node, "last_axes")(np.zeros((99, 768)), np.zeros(768))


def test_small_inputs_are_not_cut() -> None:
    given = Stoppable(np.add, ir.node("Add", []), "light")
    np.testing.assert_array_equal(given(np.ones(3), np.ones(3)), [2, 2, 2])


@pytest.mark.parametrize("shape", [(1500, 1400), (1, 1_200_000), (3, 5, 90_000)])
def test_copies_in_pieces_are_copies(shape: tuple[int, ...]) -> None:
    x = DRAW.integers(0, 99, shape)
    for axes in (range(x.ndim), range(x.ndim)[::-1]):
        source = x.transpose(*axes)
        found = copied(source)
        assert found.flags.c_contiguous
        assert found.base is None
        np.testing.assert_array_equal(found, source)


@pytest.mark.parametrize("shape", [(700, 900), (1, 600_000), (3, 4, 60_000)])
def test_what_is_joined_in_pieces_is_joined(shape: tuple[int, ...]) -> None:
    given = [DRAW.integers(0, 99, shape) for _ in range(3)]
    for axis in range(-len(shape), len(shape)):
        found = slicing.concat(np, *given, axis=axis)
        np.testing.assert_array_equal(found, np.concatenate(given, axis))
    with pytest.raises(ValueError, match="dimensions"):
        slicing.concat(np, given[0], given[1][..., :1], axis=0)


def test_draws_in_pieces_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    def draws() -> list[Any]:
        x = floats(5, 7)
        return [
            sampling.random_normal(np, shape=(5, 7), mean=2.0, seed=3.0),
            sampling.random_uniform(np, shape=(5, 7), low=-2.0, seed=3.0),
            sampling.random_normal_like(np, x, seed=3.0, dtype=11),
            sampling.random_uniform_like(np, x, seed=3.0),
        ]

    wanted = draws()
    monkeypatch.setattr(sampling, "LONGEST", 4)
    for found, each in zip(draws(), wanted, strict=True):
        assert_equal(found, each, 0, 0)


@pytest.mark.parametrize(
    ("op", "shapes", "dtype", "fast"),
    [
        ("Add", ((1 << 11, 1), (1 << 11,)), np.float32, True),
        ("Add", ((1 << 12, 1), (1 << 11,)), np.float32, False),
        ("Equal", ((1 << 10, 1), (1 << 10,)), np.float32, True),
        ("Equal", ((1 << 10, 1), (1 << 10,)), object, False),
        ("Cast", ((1 << 22,),), np.float32, True),
        ("Cast", ((1 << 12,),), object, False),
    ],
)
def test_fast_operators_are_cut_where_their_results_are_large(
    op: str, shapes: Any, dtype: Any, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Light ones, of numbers."""
    seen: list[int] = []
    monkeypatch.setattr(chunks, "in_chunks", lambda *_: seen.append(1))
    node = ir.node(op, [ir.val("a"), ir.val("b")])
    Stoppable(lambda *_: None, node, RULE_OF[op])(*(np.zeros(shape, dtype) for shape in shapes))
    assert bool(seen) != fast
