"""Sessions that are opened with too little memory say so, whatever it is that fails."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from models import FLOAT, model, node, value
from tenonnx import errors
from tenonnx.process import memory

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
MIB = 1 << 20
SIZE, LAYERS = 1024, 3


def layers() -> onnx.ModelProto:
    """Products with 4 MiB of weights each."""
    weights = {f"w{i}": np.full((SIZE, SIZE), i, np.float32) for i in range(LAYERS)}
    nodes = [node("MatMul", f"x{i} w{i}", f"x{i + 1}") for i in range(LAYERS)]
    ends = [[value(name, FLOAT, [None, SIZE])] for name in ("x0", f"x{LAYERS}")]
    return model(nodes, *ends, weights)


def sources(folder: Path) -> dict[str, Path]:
    """The same two models in the forms that files have."""
    paths = {name: folder / name for name in ("digits.onnx", "layers.onnx", "layers.ort")}
    shutil.copy(DIGITS, paths["digits.onnx"])
    onnx.save(layers(), paths["layers.onnx"])
    options = tenonnx.SessionOptions(optimized_model_filepath=str(paths["layers.ort"]))
    tenonnx.InferenceSession(str(paths["layers.onnx"]), options)
    paths["external.onnx"] = folder / "external.onnx"
    onnx.save(layers(), paths["external.onnx"], save_as_external_data=True, location="data")
    return paths


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere RLIMIT_AS limits nothing")
@pytest.mark.parametrize(
    ("plans", "names"),
    [("0", ["digits.onnx", "layers.onnx", "layers.ort", "external.onnx"]), ("1", ["digits.onnx"])],
    ids=["read", "kept"],
)
def test_the_error_is_one_of_memory(
    plans: str, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_PLANS", plans)
    monkeypatch.setenv("TENONNX_JIT", "1")
    # Fewer than imports take, than is left free beside them, and than weights take as well.
    limits = [int(each * MIB) for each in (0.5, 4, 9, 16, 31, 47, 52, 64, 75)]
    made = sources(tmp_path)
    paths = [made[name] for name in names]
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps([[str(path), limits] for path in paths]))
    command = [sys.executable, str(Path(__file__).with_name("scarce.py")), str(asked)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    for path, (free, *found) in zip(paths, json.loads(said.stdout), strict=True):
        assert free[:2] == [0, ["ok"]], free
        for limit, (ending, classes, text) in zip(limits, found, strict=True):
            told = path.name, limit / MIB, classes, text
            assert ending == 0, told
            assert classes == ["ok"] or "MemoryError" in classes, told
        assert found[0][1][0] == "OutOfMemory"


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (OSError(errno.ENOMEM, "Cannot allocate memory"), errors.OutOfMemory),
        (MemoryError(), errors.OutOfMemory),
        (OSError(errno.EACCES, "Permission denied"), OSError),
        (ImportError("No module named 'absent'"), ImportError),
        (errors.InvalidProtobuf("no model"), errors.InvalidProtobuf),
    ],
    ids=repr,
)
def test_failures_are_told_apart(error: Exception, known: type[Exception]) -> None:
    with pytest.raises(known), memory.for_loading():
        raise error
    wrapped = errors.PluginError("a format failed")
    wrapped.__cause__ = error
    expected = errors.OutOfMemory if known is errors.OutOfMemory else errors.PluginError
    with pytest.raises(expected), memory.for_loading():
        raise wrapped


def test_what_fails_without_room_is_a_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an import whose library finds no address space, of which it says nothing itself."""

    def fail() -> Any:
        monkeypatch.setattr(memory, "ROOM_BYTES", 1 << 60)
        raise SystemError("error return without exception set")

    with pytest.raises(errors.OutOfMemory, match="SystemError"), memory.for_loading():
        fail()
    with pytest.raises(errors.OutOfMemory, match="address space"), memory.for_loading():
        pass
