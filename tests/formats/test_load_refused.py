"""Files that are no models, or damaged ones, and the errors about them."""

from __future__ import annotations

import gzip
import io
import pickle
import sys
import zipfile
from pathlib import Path

import pytest
from everywhere import (
    TP,
    everywhere,
    fails,
    holder,
    save,
    varint,
)
from onnx import helper

from tenonnx.errors import InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry


@pytest.mark.parametrize("count", [3, 100])
def test_inline_data_of_the_wrong_size(registry: WeightRegistry, count: int) -> None:
    proto = TP(name="w", data_type=TP.FLOAT, dims=[2, 3], raw_data=bytes(4 * count))
    data = holder(proto).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        f"tensor 'w', FLOAT[2, 3], takes 24 bytes, but has {4 * count} in the model"
    )


def test_a_tensor_without_a_type(registry: WeightRegistry) -> None:
    proto = TP(name="w", dims=[2], raw_data=bytes(200))
    data = holder(proto).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        "tensor 'w' is not well-formed: UNDEFINED elements have no fixed width"
    )


def test_data_in_the_field_of_another_type(registry: WeightRegistry) -> None:
    proto = helper.make_tensor("w", TP.FLOAT, [3], [1, 2, 3])
    proto.data_type = TP.UINT32
    data = holder(proto).SerializeToString()
    assert fails(data, registry, InvalidGraph).startswith("tensor 'w' is not well-formed: ")


def test_an_attribute_that_is_not_well_formed_is_named(registry: WeightRegistry) -> None:
    proto = TP(data_type=TP.FLOAT, dims=[2], raw_data=bytes(200))
    node = helper.make_node("Constant", [], ["c"], name="here", value=proto)
    data = helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString()
    assert fails(data, registry, InvalidGraph) == (
        "tensor 'value of here', FLOAT[2], takes 8 bytes, but has 200 in the model"
    )


def test_a_graph_that_contradicts_itself(registry: WeightRegistry) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name=name) for name in "ab"]
    data = helper.make_model(helper.make_graph(nodes, "g", [], [])).SerializeToString()
    message = fails(data, registry, InvalidGraph)
    assert message.startswith("the model is not well-formed: Output 'y' is redeclared")


def test_a_model_that_is_not_there(registry: WeightRegistry, tmp_path: Path) -> None:
    save(everywhere(), tmp_path / "model.onnx")
    assert fails(tmp_path / "modle.onnx", registry, NoSuchFile) == (
        f"there is no model at {tmp_path / 'modle.onnx'}\nHint: The folder has model.onnx."
    )
    assert fails(tmp_path / "x" / "m.onnx", registry, NoSuchFile) == (
        f"there is no model at {tmp_path / 'x' / 'm.onnx'}\n"
        f"Hint: The folder {tmp_path / 'x'} does not exist either."
    )
    assert "path is empty" in fails("", registry, NoSuchFile)
    assert "Download" in fails("https://example.com/m.onnx", registry, NoSuchFile)
    assert "expanduser" in fails("~/nowhere/m.onnx", registry, NoSuchFile)
    assert fails(tmp_path / "zzzzzz", registry, NoSuchFile) == (
        f"there is no model at {tmp_path / 'zzzzzz'}"
    )
    assert fails(tmp_path, registry, NoSuchFile) == (
        f"{tmp_path} is a folder, not a model\nHint: The folder has model.onnx."
    )


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "a/" * 1900 + "a" * 256])
def test_names_that_no_file_can_have(registry: WeightRegistry, tmp_path: Path, name: str) -> None:
    with pytest.raises(NoSuchFile, match="there is no model at"):
        load(tmp_path / f"{name}.onnx", registry)
    tensor = TP(name="w", data_type=TP.FLOAT, dims=[1], data_location=TP.EXTERNAL)
    tensor.external_data.add(key="location", value=name + "x")
    proto = helper.make_model(helper.make_graph([], "g", [], [], [tensor]))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(InvalidGraph, match=r"'w' has its data in .*, which does not exist"):
        load(tmp_path / "model.onnx", registry)


def test_a_source_that_is_none(registry: WeightRegistry) -> None:
    assert fails(7, registry, InvalidArgument) == (
        "a model is a path, bytes, an onnx.ModelProto or an onnx_ir.Model, not int"
    )


def zipped(member: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr(member, bytes(99))
    return content.getvalue()


@pytest.mark.parametrize(
    ("content", "what", "mend"),
    [
        (b"", "empty", "completed?"),
        (bytes(5000), "nothing but zeros", "completed?"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n",
         "a Git LFS pointer", "git lfs pull"),
        (gzip.compress(b"x" * 99), "a gzip file", "Decompress"),
        (zipped("archive/data.pkl"), "what torch.save writes", "torch.onnx"),
        (zipped("x.npy"), "arrays of numpy's", "inputs"),
        (zipped("folder/model.onnx"), "a zip archive that holds one", "Extract"),
        (pickle.dumps([1]), "a Python pickle", "torch.onnx"),
        (b"\x18\x00\x00\x00ORTM" + bytes(99), "an .ort file", "ort_format"),
        (b"\x20\x00\x00\x00\x00\x00\x00\x00" + b'{"w":{"dtype":"F32"}}'.ljust(99),
         "a safetensors file: weights without a graph", "Export"),
        (b"<!DOCTYPE html><html>not found</html>", "a web page", "downloaded?"),
        (b'{"error":  "Repository not found"}', "text: '{\"error\": \"Repository", "downloaded?"),
        (b"ir_version: 7\ngraph {}", "an ONNX model as text", "textproto"),
        (b"just some words about nothing\n" * 20, "text: 'just some words", "downloaded?"),
        (b"GGUF" + bytes(99), "a GGUF file", "ONNX"),
        (b"\x1c\x00\x00\x00TFL3" + bytes(99), "a TensorFlow Lite model", "tf2onnx"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_other_files(
    registry: WeightRegistry, tmp_path: Path, content: bytes, what: str, mend: str
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    for source, name in ((path, str(path)), (content, "the buffer")):
        message, hint = fails(source, registry, InvalidProtobuf).splitlines()
        assert message.startswith(f"{name} is not an ONNX model but {what}")
        assert mend in hint


def test_a_truncated_model_says_where_it_ends(registry: WeightRegistry, tmp_path: Path) -> None:
    path = save(everywhere(), tmp_path / "model.onnx")
    data = path.read_bytes()
    path.write_bytes(data[:5000])
    message, hint = fails(path, registry, InvalidProtobuf).splitlines()
    offset = data.index(b"\x3a", 2) + 1
    assert hint == "Hint: Was the download or copy of the file completed?"
    assert message == (
        f"{path} is not an ONNX model: at byte {offset}: "
        f"expected a length up to {5000 - offset - 2}, found {int(message.rsplit(maxsplit=1)[-1])}"
    )


def test_damage_that_only_protobuf_sees_is_placed_too(registry: WeightRegistry) -> None:
    node = b"\x0a\x01x\x12\x01y\x22\x04Re"
    graph = b"\x0a" + varint(len(node)) + node + b"\x12\x01g"
    data = b"\x08\x0a\x3a" + varint(len(graph)) + graph
    message = fails(data, registry, InvalidProtobuf)
    assert message == (
        "the buffer is not an ONNX model: at byte 13: expected a length up to 2, found 4\n"
        "Hint: Was it changed on its way? Compare its size with the original's."
    )


def test_a_big_endian_machine_is_told(
    registry: WeightRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "byteorder", "big")
    with pytest.raises(RuntimeError, match="little-endian and this machine is big-endian"):
        load(everywhere(), registry)
