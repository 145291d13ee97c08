"""Errors are of the classes that onnxruntime 1.32 raises, and of those they always were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, model, node, value
from tenonnx import (
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NotSupported,
    RuntimeException,
)

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def of(*nodes: onnx.NodeProto, kind: int = FLOAT, **weights: Any) -> onnx.ModelProto:
    proto = model(nodes, [value("x", kind, None)], [value("y", kind, None)], weights)
    proto.opset_import.add(domain="com.microsoft", version=1)
    proto.opset_import.add(domain="my.domain", version=1)
    proto.opset_import.add(domain="ai.onnx.ml", version=3)
    return proto


def twice(name: str) -> list[onnx.NodeProto]:
    return [node("Neg", "x", name), node("Abs", "x", name)]


AT_LOAD: dict[str, tuple[Any, tuple[type, ...]]] = {
    # what is wrong: (the model, what onnxruntime raises first)
    "operator of a domain": (of(node("Foo", "x", "y", domain="my.domain")), (Fail, NotSupported)),
    "operator of microsoft": (
        of(node("Foo", "x", "y", domain="com.microsoft")),
        (Fail, NotSupported),
    ),
    "operator of onnx": (of(node("Foo", "x", "y")), (InvalidGraph, NotSupported)),
    "operator of ml": (
        of(node("Foo", "x", "y", domain="ai.onnx.ml")),
        (InvalidGraph, NotSupported),
    ),
    "unknown attribute": (of(node("Relu", "x", "y", foo=1)), (InvalidGraph,)),
    "missing attribute": (of(node("Concat", "x x", "y")), (InvalidGraph, EPFail)),
    "missing type": (of(node("Cast", "x", "y")), (InvalidGraph,)),
    "cycle": (
        of(node("Add", "x b", "a"), node("Neg", "a", "b"), node("Neg", "a", "y")),
        (Fail, InvalidGraph),
    ),
    "undefined input": (of(node("Add", "x z", "y")), (InvalidArgument, InvalidGraph)),
    "undefined output": (of(node("Neg", "x", "z")), (Fail, InvalidGraph)),
    "made twice": (of(*twice("y")), (Fail, InvalidGraph)),
    "operands of two types": (of(node("Add", "x w", "y"), w=np.arange(3)), (Fail, InvalidGraph)),
    "no element type": (of(node("Neg", "x", "y"), kind=0), (InvalidArgument, InvalidGraph)),
    "no bytes": (b"", (InvalidArgument, InvalidProtobuf)),
    "no graph": (onnx.ModelProto(ir_version=8).SerializeToString(), (InvalidArgument,)),
    "no model": (b"\xff" * 40, (InvalidProtobuf,)),
}

IN_A_RUN: dict[str, tuple[Any, type]] = {
    "Add": (of(node("Add", "x w", "y"), w=np.zeros(4, np.float32)), Fail),
    "MatMul": (of(node("MatMul", "x w", "y"), w=np.zeros((4, 1), np.float32)), Fail),
    "Gemm": (of(node("Gemm", "x w", "y"), w=np.zeros((4, 1), np.float32)), InvalidArgument),
    "Reshape": (of(node("Reshape", "x w", "y"), w=np.array([9])), Fail),
    "Gather": (of(node("Gather", "x w", "y"), w=np.array([9])), InvalidArgument),
    "Expand": (of(node("Expand", "x w", "y"), w=np.array([2])), InvalidArgument),
    "Transpose": (of(node("Transpose", "x", "y", perm=[0, 1, 2])), InvalidArgument),
    "TopK": (of(node("TopK", "x w", "y z"), w=np.array([9])), Fail),
}


@pytest.mark.parametrize("mistake", AT_LOAD)
def test_models_that_are_wrong(mistake: str) -> None:
    source, kinds = AT_LOAD[mistake]
    for each in (source, source if isinstance(source, bytes) else source.SerializeToString()):
        with pytest.raises(tenonnx.TenonnxError) as raised:
            tenonnx.InferenceSession(each, providers=["CPUExecutionProvider"])
        missing = [kind.__name__ for kind in kinds if not isinstance(raised.value, kind)]
        assert not missing, repr(raised.value)


@pytest.mark.parametrize("operator", IN_A_RUN)
def test_inputs_that_do_not_fit_each_other(operator: str) -> None:
    proto, kind = IN_A_RUN[operator]
    session = tenonnx.InferenceSession(proto, providers=["CPUExecutionProvider"])
    with pytest.raises(kind) as raised:
        session.run(None, {"x": X})
    assert isinstance(raised.value, RuntimeException)
    assert not isinstance(raised.value, InvalidGraph)


def test_types_that_an_operator_does_not_take() -> None:
    """onnxruntime infers types, and refuses the model: InvalidGraph."""
    words = of(node("Relu", "x", "y"), kind=onnx.TensorProto.STRING)
    with pytest.raises(InvalidGraph) as raised:
        tenonnx.InferenceSession(words).run(None, {"x": np.array(["a"], object)})
    assert isinstance(raised.value, RuntimeException)


@pytest.mark.parametrize(
    ("kind", "shape"), [(BOOL, (2,)), (BOOL, (0,)), (INT64, (2,)), (INT64, (0,))]
)
def test_conditions_and_counts_of_several_elements(kind: int, shape: tuple[int, ...]) -> None:
    state = [value("i", INT64, []), value("c", BOOL, [])]
    body = onnx.helper.make_graph([], "body", state, [value("c", BOOL, []), value("i", INT64, [])])
    loop = node("Loop", "_ x" if kind == BOOL else "x _", "y", body=body)
    session = tenonnx.InferenceSession(model([loop], [value("x", kind, None)], [value("y", INT64)]))
    with pytest.raises(Fail):
        session.run(None, {"x": np.ones(shape, bool if kind == BOOL else np.int64)})


def test_a_broken_provider_is_no_broken_model() -> None:
    """An error keeps its exit code of the command line, whatever other class it has."""
    from tenonnx import errors
    from tenonnx.cli.failures import Code, code_of

    codes = {
        errors.MalformedGraph: Code.MODEL,
        errors.WithoutGraph: Code.MODEL,
        errors.UnknownOperator: Code.PROVIDER,
        errors.NodeRefused: Code.PROVIDER,
        errors.NodeFailed: Code.RUN,
        errors.NodeMisused: Code.RUN,
        InvalidArgument: Code.USAGE,
        Fail: Code.RUN,
    }
    assert {kind: code_of(kind("")) for kind in codes} == codes
