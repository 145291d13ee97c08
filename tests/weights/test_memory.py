"""Private memory, measured in fresh processes: weights are mapped, never copied."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import BOOL, FLOAT, INT64, graph, model, node, value

MIB = 1 << 20
SIDE = 2048
LAYERS = 8
"""Eight square float32 matrices: 128 MiB, against which a bound of 8 MiB is a sharp one."""

CHILD = """
import json, sys
import numpy as np
import tenonnx
def private():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10
tenonnx.InferenceSession, tenonnx.default_plugins()
warm = tenonnx.InferenceSession(sys.argv[1])
before = private()
{body}
print(json.dumps(result))
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="private memory is read from /proc"
)


def child(body: str, *arguments: Path | str, tmp_path: Path) -> dict[str, Any]:
    """Run code in a fresh process, in which a first tiny session has imported everything."""
    tiny = tmp_path / "tiny.onnx"
    onnx.save(model([node("Relu", "x", "y")], [value("x")], [value("y")]), tiny)
    code = CHILD.format(body=textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tiny), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "TENONNX_CACHE_DIR": str(tmp_path / "cache"),
            "TENONNX_JIT": "0",
            # A fixed threshold gives each large block back when it is freed. By default the C
            # library raises it to the largest block freed, and keeps one or two of that size.
            "MALLOC_MMAP_THRESHOLD_": "131072",
        },
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@functools.cache
def matrices() -> Any:
    rng = np.random.default_rng(0)
    return rng.standard_normal((LAYERS, SIDE, SIDE), dtype=np.float32) / SIDE**0.5


def stack(padding: int = 0) -> onnx.ModelProto:
    """A chain of matrix products; ``padding`` lengthens the weights' names."""
    names = [f"w{'_' * padding}{i}" for i in range(LAYERS)]
    weights = dict(zip(names, matrices(), strict=True))
    nodes = [node("MatMul", f"x{i} {name}", f"x{i + 1}") for i, name in enumerate(names)]
    return model(nodes, [value("x0", FLOAT, ["n", SIDE])], [value(f"x{LAYERS}")], weights)


@functools.cache
def serialized(offset: int) -> bytes:
    """A model with its weights inline, each at a file offset of ``offset`` modulo 4."""
    heads = [matrix[0, :16].tobytes() for matrix in matrices()]
    for padding in range(4):
        proto = stack(padding)
        proto.producer_name = "p"
        data = proto.SerializeToString()
        first, *others = {data.index(head) % 4 for head in heads}
        if not others:
            proto.producer_name *= 1 + (offset - first) % 4
            data = proto.SerializeToString()
            assert {data.index(head) % 4 for head in heads} == {offset}
            return data
    raise AssertionError("no padding puts the weights there")


LOAD_AND_RUN = """
sessions = [tenonnx.InferenceSession(sys.argv[2]) for _ in range(int(sys.argv[3]))]
loaded = private()
x = np.ones((2, 2048), np.float32)
for session in sessions:
    outputs = session.run(None, {"x0": x})
result = {"load": loaded - before, "run": private() - before}
"""


@pytest.mark.parametrize(("sessions", "bound"), [(1, 8 * MIB), (10, 16 * MIB)])
def test_external_data_is_mapped(tmp_path: Path, sessions: int, bound: int) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(stack(), path, save_as_external_data=True, location="data")
    used = child(LOAD_AND_RUN, path, str(sessions), tmp_path=tmp_path)
    assert used["load"] <= bound
    assert used["run"] <= bound


@pytest.mark.parametrize(("sessions", "bound"), [(1, 8 * MIB), (10, 16 * MIB)])
def test_aligned_inline_data_is_mapped(tmp_path: Path, sessions: int, bound: int) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(serialized(offset=0))
    used = child(LOAD_AND_RUN, path, str(sessions), tmp_path=tmp_path)
    assert used["load"] <= bound
    assert used["run"] <= bound


def test_unaligned_inline_data_is_realigned_once_for_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(serialized(offset=1))
    first = child(LOAD_AND_RUN, path, "3", tmp_path=tmp_path)
    files = {file: file.stat().st_ino for file in (tmp_path / "cache").rglob("*.weight")}
    assert len(files) == LAYERS
    second = child(LOAD_AND_RUN, path, "3", tmp_path=tmp_path)
    assert {file: file.stat().st_ino for file in files} == files
    assert first["run"] <= 8 * MIB
    assert second["run"] <= 8 * MIB


def test_tied_weight_in_two_branches_is_mapped_once(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((32768, 1024), dtype=np.float32)
    gather = graph([node("Gather", "E ids", "t")], [], [value("t", FLOAT, [None, None])])
    project = graph(
        [node("Transpose", "E", "ET", perm=[1, 0]), node("MatMul", "h ET", "e")],
        [],
        [value("e", FLOAT, [None, None])],
    )
    proto = model(
        [node("If", "c", "y", then_branch=gather, else_branch=project)],
        [value("c", BOOL, []), value("ids", INT64, ["n"]), value("h", FLOAT, ["n", 1024])],
        [value("y", FLOAT, [None, None])],
        {"E": table},
    )
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="data")
    used = child(
        """
        session = tenonnx.InferenceSession(sys.argv[2])
        h = np.ones((1, 1024), np.float32)
        for branch in (True, False, True):
            feeds = {"c": np.array(branch), "ids": np.array([1]), "h": h}
            (y,) = session.run(None, feeds)
        transposed = [n.op_type for g in session.model.graphs() for n in g]
        result = {"private": private() - before, "nodes": transposed}
        """,
        path,
        tmp_path=tmp_path,
    )
    assert used["private"] <= 16 * MIB
    assert "Transpose" not in used["nodes"]


def test_bytes_are_viewed_in_the_callers_buffer(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(serialized(offset=0))
    used = child(
        """
        with open(sys.argv[2], "rb") as file:
            data = file.read()
        before = private()
        session = tenonnx.InferenceSession(data)
        session.run(None, {"x0": np.ones((2, 2048), np.float32)})
        result = {"private": private() - before}
        """,
        path,
        tmp_path=tmp_path,
    )
    assert used["private"] <= 16 * MIB


PREPARE = {
    "proto": "source = onnx.load(path)",
    "bytes": "source = open(path, 'rb').read()",
    "bytearray": "source = bytearray(open(path, 'rb').read())",
    "ir": "import onnx_ir; source = onnx_ir.load(path)",
}
"""By form, the caller's model in memory before any session exists; ``path`` by default."""


def save_as(form: str, folder: Path) -> Path:
    """Write the stack so that a form of loading it can begin."""
    path = folder / "model.onnx"
    if form in ("external", "ir"):
        onnx.save(stack(), path, save_as_external_data=True, location="data")
    elif form == "several files":
        proto = stack()
        for tensor in proto.graph.initializer:
            onnx.external_data_helper.set_external_data(tensor, f"{tensor.name}.data")
        onnx.save(proto, path)
    elif form == "safetensors":
        save_safetensors(path)
    elif form == "ort":
        onnx.save(stack(), path)
        path = save_ort(path)
    else:
        path.write_bytes(serialized(offset=1 if form == "unaligned" else 0))
    return path


def save_safetensors(path: Path) -> None:
    """Write the stack with its weights in a ``.safetensors`` file, as Hugging Face does."""
    proto = stack()
    header, start = {}, 0
    for tensor in proto.graph.initializer:
        stop = start + len(tensor.raw_data)
        header[tensor.name] = {"dtype": "F32", "shape": [SIDE, SIDE], "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.raw_data for tensor in proto.graph.initializer)
    content = len(text).to_bytes(8, "little") + text + data
    path.with_name("model.safetensors").write_bytes(content)
    for tensor in proto.graph.initializer:
        start, stop = header[tensor.name]["data_offsets"]
        place = {"offset": 8 + len(text) + start, "length": stop - start}
        onnx.external_data_helper.set_external_data(tensor, "model.safetensors", **place)
        tensor.ClearField("raw_data")
    onnx.save(proto, path)


def save_ort(path: Path) -> Path:
    """Have onnxruntime write the model in its format."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path.with_suffix(".ort"))
    options.add_session_config_entry("session.save_model_format", "ORT")
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return path.with_suffix(".ort")


@pytest.mark.parametrize(
    "form",
    [
        "external", "several files", "safetensors", "aligned", "unaligned", "ort", "bytes",
        "bytearray", "proto", "ir",
    ],
)  # fmt: skip
def test_ten_sessions_of_any_form(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = save_as(form, folder)
    used = child(
        """
        import onnx
        path = sys.argv[2]
        {prepare}
        run = lambda session: session.run(None, {{"x0": np.ones((2, 2048), np.float32)}})[0]
        before = private()
        sessions = [tenonnx.InferenceSession(source) for _ in range(10)]
        outputs = [run(session) for session in sessions]
        weights = {{weight for session in sessions for weight in session.weights}}
        same = all(np.array_equal(output, outputs[0]) for output in outputs)
        result = {{"private": private() - before, "weights": len(weights), "same": same}}
        """.format(prepare=PREPARE.get(form, "source = path")),
        path,
        tmp_path=tmp_path,
    )
    assert used["same"]
    assert used["weights"] == LAYERS
    assert used["private"] <= 16 * MIB


def test_safetensors_are_mapped_where_they_lie(tmp_path: Path) -> None:
    save_safetensors(path := tmp_path / "model.onnx")
    registry = tenonnx.WeightRegistry()
    session = tenonnx.InferenceSession(path, tenonnx.SessionOptions(weights=registry))
    file = np.frombuffer(registry.map(tmp_path / "model.safetensors").buffer, np.uint8)
    assert len(session.weights) == LAYERS
    assert all(np.shares_memory(weight.array, file) for weight in session.weights)
    expected = onnx.numpy_helper.to_array(stack().graph.initializer[0])
    assert any(np.array_equal(weight.array, expected) for weight in session.weights)
    assert registry.report().private == 0
