"""Writing models: page-aligned, atomic, also over the source."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.formats.convert import PAGE, Layout, convert

W = np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)
V = np.random.default_rng(1).standard_normal((32, 8), dtype=np.float32)
X = np.ones((2, 64), np.float32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    nodes = [node("MatMul", "x w", "h"), node("MatMul", "h v", "y")]
    proto = model(nodes, [value("x", FLOAT, ["n", 64])], [value("y")], {"w": W, "v": V})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    return path


def answers(path: Path) -> None:
    (y,) = tenonnx.InferenceSession(path).run(None, {"x": X})
    np.testing.assert_allclose(y, X @ W @ V, rtol=1e-4, atol=1e-4)


def test_inline_weights_go_to_page_boundaries(source: Path) -> None:
    target = source.with_name("mapped.onnx")
    written = convert(source, target, tenonnx.default_registry(), layout=Layout(threshold=64))
    assert [path.name for path in written] == ["mapped.onnx.data", "mapped.onnx"]
    proto = onnx.load(target, load_external_data=False)
    entries = [{e.key: e.value for e in t.external_data} for t in proto.graph.initializer]
    assert [int(entry["offset"]) % PAGE for entry in entries] == [0, 0]
    answers(target)


def test_external_weights_come_back_inline(source: Path) -> None:
    mapped, single = source.with_name("mapped.onnx"), source.with_name("single.onnx")
    convert(source, mapped, tenonnx.default_registry(), layout=Layout(threshold=64))
    written = convert(mapped, single, tenonnx.default_registry(), layout=Layout(inline=True))
    assert written == [single]
    np.testing.assert_array_equal(
        onnx.numpy_helper.to_array(onnx.load(single).graph.initializer[0]), W
    )


def test_small_weights_take_no_file_of_their_own(source: Path) -> None:
    layout = Layout(threshold=1 << 20)
    target = source.with_name("small.onnx")
    assert convert(source, target, tenonnx.WeightRegistry(), layout=layout) == [target]


def test_a_model_may_be_written_over_itself_while_a_session_uses_it(source: Path) -> None:
    registry = tenonnx.default_registry()
    layout = Layout(threshold=64, data_name="weights")
    convert(source, source, registry, layout=layout)
    session = tenonnx.InferenceSession(source)
    convert(source, source, registry, layout=layout)
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, X @ W @ V, rtol=1e-4, atol=1e-4)
    answers(source)


def test_unknown_endings_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=r"model\.foo: no format of that ending"):
        convert(tmp_path / "none", tmp_path / "model.foo", tenonnx.default_registry())


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_a_clear_error(source: Path) -> None:
    folder = source.parent / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(tenonnx.Fail, match="cannot write"):
        convert(source, folder / "model.onnx", tenonnx.default_registry())


def test_a_failure_leaves_what_was_there(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("onnx_ir.save", fail)
    with pytest.raises(tenonnx.Fail, match="No space left on device"):
        convert(source, source, tenonnx.default_registry())
    assert source.read_bytes() == before
    assert sorted(path.name for path in source.parent.glob("*model*")) == ["model.onnx"]
