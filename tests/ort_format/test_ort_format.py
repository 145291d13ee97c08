"""onnxruntime's ``.ort`` files: read in place, right answers, and no crash on damaged ones."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tenonnx
from models import BOOL, FLOAT, graph, model, node, value
from tenonnx.formats.convert import convert
from tenonnx_ort_format.build import Tables
from tenonnx_ort_format.flat import Row
from tenonnx_ort_format.schema import SCHEMA

TESTS = Path(__file__).parents[1]
FILES = sorted((TESTS / "ort_format/files").glob("*.ort"))
NESTED = [path for path in FILES if path.stem.startswith("nested")]
EXPORTS = [path for path in FILES if path not in NESTED]
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_converted_exports_give_the_frameworks_answers(path: Path) -> None:
    arrays = np.load(TESTS / "exports" / f"{path.stem.rsplit('-', 1)[0]}.npz")
    session = tenonnx.InferenceSession(path)
    feeds = {arg.name: arrays[f"in:{arg.name}"] for arg in session.get_inputs()}
    expected = [arrays[name] for name in arrays.files if name.startswith("out:")]
    for actual, answer in zip(session.run(None, feeds), expected, strict=False):
        np.testing.assert_allclose(actual, answer.reshape(actual.shape), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("path", NESTED, ids=lambda path: path.stem)
def test_subgraphs_read_outer_values_and_weights(path: Path) -> None:
    session = tenonnx.InferenceSession(path)
    feeds = {"n": np.array(2), "ids": np.array([3, 1]), "x": X}
    (looped,) = session.run(None, {**feeds, "cond": np.array(True)})
    (gathered,) = session.run(None, {**feeds, "cond": np.array(False)})
    np.testing.assert_array_equal(looped, np.concatenate([((X + X) * 2 + X) * 2, X]))
    table = np.arange(64, dtype=np.float32).reshape(16, 4)
    np.testing.assert_array_equal(gathered, np.concatenate([table[[3, 1]], X]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_weights_are_views_of_the_mapped_file(path: Path) -> None:
    options = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    session = tenonnx.InferenceSession(path, options)
    mapping = tenonnx.default_registry().map(path)
    file = np.frombuffer(mapping.buffer, np.uint8)
    assert session.weights
    filled = [weight.array for weight in session.weights if weight.nbytes]
    assert all(np.shares_memory(array, file) for array in filled)


def test_bytes_are_read_as_well_as_paths() -> None:
    (path, *_) = NESTED
    session = tenonnx.InferenceSession(path.read_bytes())
    assert [arg.name for arg in session.get_inputs()] == ["cond", "n", "ids", "x"]
    assert session.get_inputs()[3].shape == [2, 4]


@settings(max_examples=150, deadline=None)
@given(length=st.integers(8, 20_000))
def test_truncated_files_are_refused_or_right(length: int) -> None:
    data = NESTED[0].read_bytes()
    if length >= len(data):
        length = len(data) - 1
    open_or_refuse(data[:length])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files_are_refused_or_load(data: st.DataObject) -> None:
    content = bytearray(NESTED[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(8, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    open_or_refuse(bytes(content))


def shared(levels: int, references: int) -> bytes:
    """A file whose every graph holds the next one so many times, all of them the same table."""
    tables = Tables(SCHEMA)
    builder = tables._builder
    fields = [name for name, _ in SCHEMA["Attribute"]]
    place = tables.table("Graph", {})
    for _ in range(levels):
        name = builder.CreateSharedString("g")
        builder.StartObject(len(fields))
        builder.PrependUOffsetTRelativeSlot(fields.index("name"), name, 0)
        builder.PrependInt32Slot(fields.index("type"), onnx.AttributeProto.GRAPH, 0)
        builder.PrependUOffsetTRelativeSlot(fields.index("g"), place, 0)
        attribute = builder.EndObject()
        places = [_holder(builder, "Node", "attributes", [attribute] * references)]
        place = _holder(builder, "Graph", "nodes", places)
    model = _holder(builder, "Model", "graph", place)
    session = _holder(builder, "InferenceSession", "model", model)
    builder.Finish(session, file_identifier=b"ORTM")
    return bytes(builder.Output())


def _holder(builder: Any, kind: str, field: str, held: Any) -> int:
    if isinstance(held, list):
        builder.StartVector(4, len(held), 4)
        for place in held:
            builder.PrependUOffsetTRelative(place)
        held = builder.EndVector()
    fields = [name for name, _ in SCHEMA[kind]]
    builder.StartObject(len(fields))
    builder.PrependUOffsetTRelativeSlot(fields.index(field), held, 0)
    return int(builder.EndObject())


def test_tables_that_are_shared_are_not_read_for_ever() -> None:
    content = shared(levels=19, references=10)
    assert len(content) < 4000
    start = time.perf_counter()
    with pytest.raises(tenonnx.InvalidProtobuf, match="same tables again and again"):
        tenonnx.InferenceSession(content)
    assert time.perf_counter() - start < 2


def test_a_body_that_is_not_there() -> None:
    content = bytearray(NESTED[0].read_bytes())
    content[2290] = 0  # where the table of an attribute has its graph
    with pytest.raises(tenonnx.InvalidProtobuf, match="has no value"):
        tenonnx.InferenceSession(bytes(content))


def open_or_refuse(content: bytes) -> None:
    try:
        tenonnx.InferenceSession(content)
    except tenonnx.TenonnxError:
        return


SOURCES = [
    TESTS / "exports" / f"{name}.onnx" for name in ("lstm", "gpt2", "sklearn-svc", "mobilenet")
]


def written(source: Any, folder: Path) -> Path:
    formats = tuple(tenonnx.default_plugins().formats.values())
    convert(source, folder / "out.ort", tenonnx.default_registry(), formats=formats)
    return folder / "out.ort"


def branching() -> onnx.ModelProto:
    """Branches that read inputs, values made before and weights; an input left out."""
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    then = graph([node("Add", "b w", "p")], [], [value("p", FLOAT, None)])
    other = graph([node("Mul", "a k", "q")], [], [value("q", FLOAT, None)], {"k": w + 1})
    nodes = [
        node("Neg", "x", "a"),
        node("HardSwish", "a", "b"),
        node("If", "c", "y", then_branch=then, else_branch=other),
        node("Clip", "y _ top", "z"),
    ]
    inputs = [value("c", BOOL, []), value("x", FLOAT, ["n", 3]), value("top", FLOAT, [])]
    return model(nodes, inputs, [value("z", FLOAT, None)], {"w": w}, opset=20)


def branching_feeds(condition: bool) -> dict[str, Any]:
    x = np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3)
    return {"c": np.array(condition), "x": x, "top": np.array(1.5, np.float32)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_is_written_gives_the_frameworks_answers(path: Path, tmp_path: Path) -> None:
    arrays = np.load(path.with_suffix(".npz"))
    session = tenonnx.InferenceSession(written(path, tmp_path))
    feeds = {arg.name: arrays[f"in:{arg.name}"] for arg in session.get_inputs()}
    expected = [arrays[name] for name in arrays.files if name.startswith("out:")]
    for actual, answer in zip(session.run(None, feeds), expected, strict=False):
        if isinstance(actual, np.ndarray) and answer.dtype.kind == "f":
            np.testing.assert_allclose(actual, answer.reshape(actual.shape), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_are_written_with_what_they_read(condition: bool, tmp_path: Path) -> None:
    feeds = branching_feeds(condition)
    (expected,) = tenonnx.InferenceSession(branching()).run(None, feeds)
    (actual,) = tenonnx.InferenceSession(written(branching(), tmp_path)).run(None, feeds)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("condition", [True, False])
def test_onnxruntime_runs_branches_that_are_written(condition: bool, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    feeds = branching_feeds(condition)
    (expected,) = ort.InferenceSession(branching().SerializeToString()).run(None, feeds)
    (actual,) = ort.InferenceSession(written(branching(), tmp_path)).run(None, feeds)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


@pytest.mark.parametrize("path", [*SOURCES, *FILES], ids=lambda path: path.stem)
def test_onnxruntime_loads_what_is_written(path: Path, tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="loads with onnxruntime")
    ort.InferenceSession(written(path, tmp_path), providers=["CPUExecutionProvider"])


def test_the_tables_say_what_onnxruntime_says(tmp_path: Path) -> None:
    """Arguments and the types that they stand for: as in the file that onnxruntime wrote."""
    theirs = resolver(NESTED[0].read_bytes())
    ours = resolver(written(NESTED[0], tmp_path).read_bytes())
    assert ours == theirs
    assert list(ours) == sorted(ours)


def resolver(content: bytes) -> dict[str, Any]:
    root = int.from_bytes(content[:4], "little")
    table = Row(SCHEMA, "InferenceSession", memoryview(content), root).kernel_type_str_resolver
    return {
        operator.op_id: {
            entry.kernel_type_str: sorted((arg.arg_type, arg.index) for arg in entry.args)
            for entry in operator.kernel_type_str_args
        }
        for operator in table.op_kernel_type_str_args
    }


def test_written_weights_are_viewed_where_they_lie(tmp_path: Path) -> None:
    path = written(TESTS / "exports" / "lstm.onnx", tmp_path)
    plain = tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = tenonnx.InferenceSession(path, tenonnx.SessionOptions(graph_optimization_level=plain))
    file = np.frombuffer(tenonnx.default_registry().map(path).buffer, np.uint8)
    arrays = [weight.array for weight in session.weights if weight.nbytes]
    assert arrays
    assert all(np.shares_memory(array, file) for array in arrays)
    assert all(array.ctypes.data % 64 == 0 for array in arrays)


def test_operators_that_onnx_has_no_schema_of_are_refused(tmp_path: Path) -> None:
    proto = model(
        [node("FusedMatMul", "x x", "y", domain="com.microsoft")],
        [value("x", FLOAT, [2, 2])],
        [value("y", FLOAT, [2, 2])],
        domains={"com.microsoft": 1},
    )
    with pytest.raises(tenonnx.NotSupported, match="FusedMatMul") as caught:
        written(proto, tmp_path)
    assert "session.save_model_format" in str(caught.value)
    assert not (tmp_path / "out.ort").exists()


def test_models_that_outgrow_the_format_are_refused(tmp_path: Path) -> None:
    proto = model([node("Neg", "w", "y")], [], [value("y", FLOAT, None)])
    source = ir.from_proto(proto)
    large = ir.ExternalTensor(
        "w.data", 0, 2**31, ir.DataType.UINT8, shape=ir.Shape([2**31]), name="w",
        base_dir=str(tmp_path),
    )  # fmt: skip
    with (tmp_path / "w.data").open("wb") as file:
        file.truncate(2**31)
    value_ = ir.Value(name="w", const_value=large)
    source.graph.node(0).replace_input_with(0, value_)
    source.graph.inputs.clear()
    source.graph.register_initializer(value_)
    source.graph.outputs[0].dtype = ir.DataType.UINT8
    onnx_path = tmp_path / "large.onnx"
    ir.save(source, onnx_path)
    with pytest.raises(tenonnx.InvalidArgument, match="2,147,483,647"):
        written(onnx_path, tmp_path)
    assert not (tmp_path / "out.ort").exists()


@pytest.mark.parametrize("named", [True, False], ids=["by entry", "by ending"])
def test_sessions_write_optimized_models(named: bool, tmp_path: Path) -> None:
    """Both runtimes read the file, and tell the description that the graph had."""
    proto = model(
        [node("Transpose", "w", "t"), node("MatMul", "x t", "h"), node("Relu", "h", "y")],
        [value("x", FLOAT, [2, 4])],
        [value("y", FLOAT, [2, 3])],
        {"w": np.arange(12, dtype=np.float32).reshape(3, 4) - 5},
    )
    proto.graph.doc_string = "what the graph is for"
    path = tmp_path / ("saved.bin" if named else "saved.ort")
    options = tenonnx.SessionOptions(
        optimized_model_filepath=str(path),
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    )
    if named:
        options.add_session_config_entry("session.save_model_format", "ORT")
    expected = tenonnx.InferenceSession(proto, options).run(None, {"x": X})
    assert path.read_bytes()[4:8] == b"ORTM"
    session = tenonnx.InferenceSession(path)
    assert session.get_modelmeta().graph_description == "what the graph is for"
    assert "Transpose" not in {n.op_type for n in session.model.graph}
    np.testing.assert_array_equal(session.run(None, {"x": X}), expected)
    ort = pytest.importorskip("onnxruntime")
    other = ort.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    assert other.get_modelmeta().graph_description == "what the graph is for"
    np.testing.assert_allclose(other.run(None, {"x": X}), expected)


@pytest.mark.parametrize("wanted", ["ORT", "TFLITE"])
def test_optimized_models_in_formats_that_nobody_writes(wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "saved"
    options = tenonnx.SessionOptions(
        optimized_model_filepath=str(path), plugins=tenonnx.PluginSet(block=["ort_format"])
    )
    options.add_session_config_entry("session.save_model_format", wanted)
    with pytest.raises(tenonnx.NotSupported, match=f"in the format {wanted}, which no plug-in"):
        tenonnx.InferenceSession(
            model([node("Neg", "x", "y")], [value("x")], [value("y")]), options
        )
    assert not path.exists()
