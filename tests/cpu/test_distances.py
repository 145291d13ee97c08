from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from running import Watch, floats

import tenonnx
from fusing import notes
from models import FLOAT, graph, model, node, value
from tenonnx_cpu.ml import distances

DOUBLE = 11


def nearest(kind: int, points: Any, backwards: int = 0, **changed: Any) -> Any:
    """Return what sklearn's neighbors are converted to: a loop over the points."""
    steps = [
        node("Identity", "matrix", "same"),
        node("Sub", "matrix point", "difference"),
        node(changed.get("operator", "ReduceSumSquare"), "difference axes", "row", keepdims=0),
    ]
    inputs = [value("matrix", kind, [None, points.shape[1]]), value("point", kind, [None])]
    outputs = [value("same", kind, None), value("row", kind, [None])]
    body = graph(steps, inputs, outputs, {"axes": np.array([changed.get("axis", 1)])})
    way = {"scan_input_directions": [backwards], "num_scan_inputs": 1}
    loop = node("Scan", "x points", "state rows", body=body, **way)
    turned = node("Transpose", "rows", "y", perm=[1, 0])
    x, y = value("x", kind, [None, points.shape[1]]), value("y", kind, None)
    return model([loop, turned], [x], [y], {"points": points}, opset=18)


def session(proto: Any, threads: int = 1, disabled: tuple[str, ...] = ()) -> Any:
    options = tenonnx.SessionOptions(disabled_transforms=disabled)
    options.intra_op_num_threads = threads
    return tenonnx.InferenceSession(proto.SerializeToString(), options)


@pytest.mark.parametrize("kind", [FLOAT, DOUBLE])
@pytest.mark.parametrize(("rows", "points", "features"), [(1, 5, 1), (7, 1100, 6), (90, 40, 13)])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_loop_over_points_is_one_call(
    kind: int, rows: int, points: int, features: int, threads: int, monkeypatch: Any
) -> None:
    dtype = np.dtype(np.float32 if kind == FLOAT else np.float64)
    monkeypatch.setattr(distances, "MIN_DIFFERENCES_PER_THREAD", 1)
    x, at = 100 + floats(rows, features).astype(dtype), 100 + floats(points, features).astype(dtype)
    x[0] = at[-1]
    one = session(nearest(kind, at), threads=threads)
    assert "matched 1 distances" in " ".join(notes(one, "pairwise-distances"))
    watched = Watch(distances.DISTANCE_KERNELS[dtype], monkeypatch)
    expected = np.square(x[:, None].astype(float) - at).sum(-1)
    for _ in range(4):
        (found,) = one.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-6 if kind == FLOAT else 1e-14)
    assert watched.calls == 4
    assert found[0, -1] == 0


@pytest.mark.parametrize(
    "changed", [{"axis": 0}, {"operator": "ReduceL2"}, {"backwards": 1}], ids=str
)
def test_other_loops_stay(changed: dict[str, Any]) -> None:
    x = floats(4, 4)
    one = session(nearest(FLOAT, floats(3, 4, seed=1), **changed))
    assert "matched" not in " ".join(notes(one, "pairwise-distances"))
    other = session(
        nearest(FLOAT, floats(3, 4, seed=1), **changed), disabled=("pairwise-distances",)
    )
    np.testing.assert_array_equal(one.run(None, {"x": x})[0], other.run(None, {"x": x})[0])


@pytest.mark.parametrize(("width", "features"), [(4, 1), (1, 4), (None, 4)])
def test_rows_that_may_broadcast_stay(width: int | None, features: int) -> None:
    points = floats(3, features, seed=1)
    proto = nearest(FLOAT, points)
    del proto.graph.input[:]
    proto.graph.input.append(value("x", FLOAT, [None, width]))
    one = session(proto)
    assert "Sub broadcasts" in " ".join(notes(one, "pairwise-distances"))
    x = floats(5, width or 1)
    expected = np.square(x[:, None].astype(float) - points).sum(-1)
    np.testing.assert_allclose(one.run(None, {"x": x})[0], expected, rtol=1e-6)


@pytest.mark.parametrize("declared", [True, False], ids=["at-load", "at-run"])
@pytest.mark.parametrize("depth", [1, 3])
def test_operands_of_other_depths_are_refused(depth: int, declared: bool) -> None:
    inputs = [value("a", FLOAT, [2, 4] if declared else None)]
    inputs.append(value("b", FLOAT, [5, depth] if declared else None))
    one = node("CDist", "a b", "y", domain="com.microsoft")
    proto = model([one], inputs, [value("y", FLOAT, None)])
    with pytest.raises(tenonnx.errors.TenonnxError, match=r"B.*\b4\b"):
        session(proto).run(None, {"a": floats(2, 4), "b": floats(5, depth)})


def test_a_model_that_is_saved_keeps_its_loop(tmp_path: Path) -> None:
    options = tenonnx.SessionOptions(optimized_model_filepath=str(tmp_path / "saved.onnx"))
    tenonnx.InferenceSession(nearest(FLOAT, floats(3, 4)).SerializeToString(), options)
    saved = onnx.load(tmp_path / "saved.onnx")
    assert [each.op_type for each in saved.graph.node] == ["Scan", "Transpose"]
