"""Files that change under sessions, sessions that come and go, processes that fork."""

from __future__ import annotations

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
from models import FLOAT, model, node, value

ROWS, COLUMNS = 64, 512
"""A weight of 128 KiB, so that what is derived from it goes to a side file."""

X = np.ones((1, ROWS), np.float32)


def product(number: float, *, negated: bool = False) -> onnx.ModelProto:
    """``y = x @ W`` with one number everywhere in W, or ``x @ -(W)`` folded ahead of the run."""
    weight = np.full((ROWS, COLUMNS), number, np.float32)
    nodes = [node("Neg", "W", "N")] if negated else []
    nodes += [node("MatMul", "x N" if negated else "x W", "y")]
    inputs, outputs = [value("x", FLOAT, ["n", ROWS])], [value("y", FLOAT, ["n", COLUMNS])]
    return model(nodes, inputs, outputs, {"W": weight})


def save(folder: Path, number: float, *, external: bool, negated: bool = False) -> Path:
    """Write a model as a new file that takes the place of the old one."""
    path = folder / "model.onnx"
    draft = folder / "draft"
    draft.mkdir()
    options: dict[str, Any] = {"location": "data"} if external else {}
    proto = product(number, negated=negated)
    onnx.save(proto, draft / path.name, save_as_external_data=external, **options)
    for file in draft.iterdir():
        file.replace(folder / file.name)
    draft.rmdir()
    return path


def answer(session: tenonnx.InferenceSession) -> float:
    (y,) = session.run(None, {"x": X})
    assert y.min() == y.max()
    return float(y.max()) / ROWS


@pytest.mark.parametrize("external", [True, False])
@pytest.mark.parametrize("negated", [True, False])
def test_a_file_replaced_while_it_is_mapped(tmp_path: Path, external: bool, negated: bool) -> None:
    sign = -1 if negated else 1
    path = save(tmp_path, 2, external=external, negated=negated)
    old = tenonnx.InferenceSession(path)
    assert answer(old) == 2 * sign
    save(tmp_path, 3, external=external, negated=negated)
    new = tenonnx.InferenceSession(path)
    assert answer(new) == 3 * sign
    assert answer(old) == 2 * sign
    path.unlink()
    assert (answer(old), answer(new)) == (2 * sign, 3 * sign)


@pytest.mark.parametrize("left", [1, 4096, 4 * ROWS * COLUMNS - 1])
def test_data_truncated_before_the_model_is_loaded(tmp_path: Path, left: int) -> None:
    path = save(tmp_path, 2, external=True)
    os.truncate(tmp_path / "data", left)
    with pytest.raises(tenonnx.InvalidGraph) as caught:
        tenonnx.InferenceSession(path)
    assert str(tmp_path / "data") in str(caught.value)
    assert "Was the download or copy of the file completed?" in str(caught.value)


def test_data_truncated_under_a_session_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    path = save(tmp_path, 2, external=True)
    old = tenonnx.InferenceSession(path)
    os.truncate(tmp_path / "data", 4096)
    with pytest.raises(tenonnx.InvalidGraph, match="which has only 4096"):
        tenonnx.InferenceSession(path)
    assert old.get_inputs()[0].name == "x"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_model_truncated_before_it_is_loaded(tmp_path: Path, share: float) -> None:
    path = save(tmp_path, 2, external=False)
    os.truncate(path, int(path.stat().st_size * share))
    with pytest.raises(tenonnx.InvalidProtobuf, match=r"model\.onnx is not an ONNX model"):
        tenonnx.InferenceSession(path)


def test_a_damaged_side_file_never_reaches_a_session(tmp_path: Path) -> None:
    path = save(tmp_path, 2, external=True, negated=True)
    code = """
    session = tenonnx.InferenceSession(sys.argv[1])
    (y,) = session.run(None, {"x": np.ones((1, 64), np.float32)})
    result = {"y": [float(y.min()) / 64, float(y.max()) / 64]}
    """
    assert child(code, path) == {"y": [-2, -2]}
    (file,) = (Path(os.environ["TENONNX_CACHE_DIR"]) / "weights").glob("*.weight")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert child(code, path) == {"y": [-2, -2]}


MANY = """
def state():
    gc.collect()
    with open("/proc/self/maps") as maps:
        mapped = sum(1 for line in maps if sys.argv[2] in line)
    return [private(), mapped, len(os.listdir("/proc/self/fd"))]

def use():
    for path in sys.argv[3:]:
        session = tenonnx.InferenceSession(path)
        session.run(None, {"x": np.ones((1, 64), np.float32)})

for _ in range(20):
    use()
first = state()
for _ in range(300):
    use()
result = {"first": first, "last": state()}
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory is read from /proc")
def test_hundreds_of_sessions_leave_nothing(tmp_path: Path) -> None:
    paths = []
    for external, negated in [(True, False), (False, False), (True, True)]:
        folder = tmp_path / f"{external}{negated}"
        folder.mkdir()
        paths.append(save(folder, 2, external=external, negated=negated))
    seen = child(MANY, tmp_path, *paths)
    (before, mapped_before, open_before), (after, mapped, opened) = seen["first"], seen["last"]
    assert (mapped, opened) == (mapped_before, open_before) == (0, open_before)
    assert after - before <= 2 << 20


@pytest.mark.parametrize("mode", ["0", "1"])
def test_a_forked_child_runs_the_session(tmp_path: Path, mode: str) -> None:
    path = save(tmp_path, 2, external=True, negated=True)
    code = """
    session = tenonnx.InferenceSession(sys.argv[1])
    feeds = {"x": np.ones((8, 64), np.float32)}
    (expected,) = session.run(None, feeds)
    children = []
    for _ in range(3):
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            ok = np.array_equal(session.run(None, feeds)[0], expected)
            again = tenonnx.InferenceSession(sys.argv[1])
            ok &= np.array_equal(again.run(None, feeds)[0], expected)
            ok &= again.weights == session.weights
            os._exit(0 if ok else 1)
        children.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    same = np.array_equal(session.run(None, feeds)[0], expected)
    result = {"codes": codes, "same": bool(same)}
    """
    assert child(code, path, TENONNX_JIT=mode) == {"codes": [0, 0, 0], "same": True}


def child(body: str, *arguments: Path, **variables: str) -> Any:
    """Run code in a fresh process and returns its ``result``."""
    head = """
import gc, json, os, signal, sys
import numpy as np
import tenonnx
def private():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) << 10
"""
    code = f"{head}{textwrap.dedent(body)}print(json.dumps(result))"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TENONNX_JIT": "0", **variables},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
