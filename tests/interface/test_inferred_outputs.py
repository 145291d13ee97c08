"""Outputs whose type or shape a model leaves open; the answers are onnxruntime 1.32's."""

from __future__ import annotations

import pickle
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, INT64, graph, model, node, value

WEIGHTS = np.ones((4, 3, 3, 3), np.float32)
KERNEL = {"w": WEIGHTS}


def opened(source: Any, **options: Any) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(source, tenonnx.SessionOptions(**options), providers=["cpu"])


def outputs(source: Any) -> list[tuple[str, list[int | str | None]]]:
    return [(arg.type, arg.shape) for arg in opened(source).get_outputs()]


def convolution(shape: Any = (1, 3, 8, 8), declared: Any = None) -> onnx.ModelProto:
    nodes = [node("Conv", "x w", "h"), node("Relu", "h", "y")]
    return model(nodes, [value("x", FLOAT, shape)], [value("y", FLOAT, declared)], KERNEL)


@pytest.mark.parametrize("form", ["path", "bytes", "proto"])
def test_shapes_are_inferred(form: str, tmp_path: Path) -> None:
    proto = convolution()
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    source = {"path": path, "bytes": path.read_bytes(), "proto": proto}[form]
    assert outputs(source) == [("tensor(float)", [1, 4, 6, 6])]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_whole_windows_are_pooled_and_inferred(op: str) -> None:
    """``VALID`` ignores ``ceil_mode``, by the operators' text; ONNX's inference rounds up."""
    pool = node(op, "x", "h", kernel_shape=[2], strides=[2], auto_pad="VALID", ceil_mode=1)
    given = value("x", FLOAT, [1, 1, 5])
    proto = model([pool, node("Relu", "h", "y")], [given], [value("y", FLOAT, None)], opset=22)
    x = np.ones((1, 1, 5), np.float32)
    for level in (0, 99):
        session = opened(proto, graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
        (found,) = session.run(None, {"x": x})
        assert list(found.shape) == session.get_outputs()[0].shape == [1, 1, 2]


def test_a_file_that_is_gone_leaves_the_model_as_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(convolution(), path)
    session = opened(path)
    path.unlink()
    assert session.get_outputs()[0].shape == [1, 4, 6, 6]


@pytest.mark.parametrize(
    ("given", "declared", "found"),
    [
        (["n", 3, 8, 8], None, ["n", 4, 6, 6]),
        ([None, 3, 8, None], None, [None, 4, 6, None]),
        ([-1, 3, 8, -1], None, [None, 4, 6, None]),
        (["n", 3, 8, 8], ["m", None, -1, 6], ["m", 4, 6, 6]),
        (None, None, []),
        (None, ["m", None], ["m", None]),
    ],
)
def test_what_is_said_stays_and_what_is_found_joins_it(
    given: Any, declared: Any, found: Any
) -> None:
    proto = convolution(given, declared)
    assert outputs(proto.SerializeToString()) == [("tensor(float)", found)]


def test_types_are_inferred() -> None:
    proto = model(
        [node("Shape", "x", "s"), node("ArgMax", "x", "a", axis=1, keepdims=0)],
        [value("x", FLOAT, ["n", 5])],
        [onnx.ValueInfoProto(name="s"), onnx.ValueInfoProto(name="a")],
    )
    assert outputs(proto) == [("tensor(int64)", [2]), ("tensor(int64)", ["n"])]


def test_an_output_is_printed_before_anything_of_it_was_read() -> None:
    proto = model(
        [node("Shape", "x", "s")], [value("x", FLOAT, ["n"])], [onnx.ValueInfoProto(name="s")]
    )
    (arg,) = opened(proto).get_outputs()
    assert str(arg) == "NodeArg(name='s', type='tensor(int64)', shape=[1])"


def test_names_that_inference_makes_up_are_not_told() -> None:
    nodes = [node("NonZero", "x", "y"), node("Loop", "m _", "z", body=BODY)]
    proto = model(nodes, [value("x"), value("m", INT64, [])], [value("y"), value("z")])
    for each in proto.graph.output:
        each.type.Clear()
    assert outputs(proto) == [("tensor(int64)", [1, None]), ("tensor(int64)", [None, 1])]


BODY = graph(
    [],
    [value("i", INT64, [1]), value("c", onnx.TensorProto.BOOL, [])],
    [value("c", onnx.TensorProto.BOOL, []), value("i", INT64, [1])],
)


def test_of_an_operator_that_onnx_has_not_nothing_is_known() -> None:
    domains = {"com.microsoft": 1}
    layer = node("QuickGelu", "x", "y", domain="com.microsoft")
    proto = model([layer], [value("x", FLOAT, [2])], [value("y", FLOAT, None)], domains=domains)
    assert outputs(proto)[0][0] == "tensor(float)"


def test_ranks_that_contradict_each_other_end_no_process() -> None:
    """onnx before 1.22 reads beyond its lists where weights have more axes than what is padded."""
    nodes = [node("Pad", "x p", "h"), node("Conv", "h w", "y")]
    weights = {"w": WEIGHTS, "p": np.zeros(6, np.int64)}
    proto = model(nodes, [value("x", FLOAT, [1, 3, 7])], [value("y", FLOAT, None)], weights)
    proto.graph.output[0].type.Clear()
    assert outputs(proto) == [("tensor(float)", [])]


def test_inference_waits_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenonnx.graph import inference

    asked: list[Any] = []
    found = inference.infer_types
    monkeypatch.setattr(inference, "infer_types", lambda m: (asked.append(1), found(m)))
    session = opened(convolution())
    (arg,) = session.get_outputs()
    assert arg.name == "y"
    assert isinstance(arg, tenonnx.NodeArg)
    session.run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})
    assert not asked
    assert arg.shape == session.get_outputs()[0].shape == [1, 4, 6, 6]
    assert len(asked) == 1
    opened(convolution(declared=[1, 4, "h", 6])).get_outputs()[0].shape  # noqa: B018 - it is said
    assert len(asked) == 1


def test_what_inference_reads_has_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    found = onnx.shape_inference.infer_shapes

    def infer(proto: onnx.ModelProto, **how: Any) -> onnx.ModelProto:
        sizes.append(proto.ByteSize())
        return found(proto, **how)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    big = np.ones((1000, 1000), np.float32)
    constant = node("Constant", "", "c", value=onnx.numpy_helper.from_array(big))
    nodes = [constant, node("MatMul", "x w", "h"), node("MatMul", "h c", "y")]
    proto = model(nodes, [value("x", FLOAT, ["n", 1000])], [value("y", FLOAT, None)], {"w": big})
    assert opened(proto.SerializeToString()).get_outputs()[0].shape == ["n", 1000]
    assert len(sizes) == 1
    assert sizes[0] < 2000


def test_outputs_outlive_their_session() -> None:
    session = opened(convolution())
    unread, read = session.get_outputs()[0], session.get_outputs()[0]
    gone = weakref.ref(session)
    assert session.get_outputs() == session.get_outputs() == [read]
    assert repr(read) == repr(tenonnx.NodeArg("y", "tensor(float)", [1, 4, 6, 6]))
    copied = pickle.loads(pickle.dumps(read))
    assert (copied.name, copied.type, copied.shape) == ("y", "tensor(float)", [1, 4, 6, 6])
    del session
    assert read.shape == unread.shape == [1, 4, 6, 6]
    assert gone() is None
    with pytest.raises(AttributeError):
        unread.size  # type: ignore[attr-defined] # noqa: B018 - which is what is tested
