"""Caches of others, of full disks and of altered content: a right answer, or a clear error."""

from __future__ import annotations

import ast
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from plan_models import LAYERS, answers, assert_same, is_kept, opened, saved

import tenonnx
import tenonnx_array
import tenonnx_cpu
from planting import FILES, FOLDERS
from tenonnx.plan_cache import files, key
from tenonnx.plan_cache.weights import Stores
from tenonnx.weights import trusted

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")


@posix
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("suffix", [".plan", ".captures"])
def test_planted_files_are_not_used(tmp_path: Path, kind: str, suffix: str) -> None:
    path = saved(tmp_path / "model.onnx")
    expected = answers(opened(path))
    kept = next(iter(files.files([f"*{suffix}"])), None)
    if kept is None:
        pytest.skip("there are no kernels here")
    plant, _ = FILES[kind]
    plant(kept)
    session = opened(path)
    assert_same(answers(session), expected)
    assert is_kept(session) == (suffix == ".captures")


@posix
@pytest.mark.parametrize("kind", FOLDERS)
def test_plans_in_planted_folders_are_not_used(tmp_path: Path, kind: str) -> None:
    path = saved(tmp_path / "model.onnx")
    expected = answers(opened(path))
    plant, _ = FOLDERS[kind]
    plant(tmp_path / "cache" / "plans")
    trusted._faults.clear()
    session = opened(path)
    assert_same(answers(session), expected)
    assert not is_kept(session)


@posix
def test_a_disk_that_is_full(tmp_path: Path) -> None:
    import resource

    path = saved(tmp_path / "model.onnx")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, 2000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            session = opened(path)
            found = answers(session)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "cannot be written: File too large" in session.load_times.uncached
        assert not list((tmp_path / "cache" / "plans").glob("*"))
    assert_same(answers(opened(path)), found)


@pytest.mark.parametrize("by", [1 << 40, 1 << 62, -(1 << 20), 1 << 18])
def test_offsets_that_were_altered_under_a_valid_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: int
) -> None:
    text = LAYERS.replace("8, 8] w", "8, 4096] v, float[4096, 8] u, float[8, 8] w")
    text = text.replace("h = MatMul(x, w)", "e = MatMul(x, v)  h = MatMul(e, u)")
    path = saved(tmp_path / "model.onnx", text)
    right = Stores.reference

    def altered(self: Stores, weight: tenonnx.Weight) -> tuple[object, ...]:
        number, offset, *place = right(self, weight)
        return number, offset + by, *place

    with monkeypatch.context() as patch:
        patch.setattr(Stores, "reference", altered)
        expected = answers(opened(path))
    session = opened(path)
    if is_kept(session):  # with what is made at the first run
        with pytest.raises(tenonnx.Fail, match="a weight lies outside of its file"):
            answers(session)
    else:
        assert_same(answers(session), expected)


MOUNTED = """
import json, sys
import numpy as np, onnx, tenonnx
out = []
for _ in range(2):
    session = tenonnx.InferenceSession(sys.argv[1], providers=["cpu"])
    x = np.ones((2, 8), np.float32)
    out.append([list(session.load_times), session.run(None, {"x": x})[0].tolist()])
print(json.dumps(out))
"""


def test_a_bind_mount_over_a_model(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    path = saved(tmp_path / "model.onnx")
    other = saved(tmp_path / "other.onnx", LAYERS.replace("Softmax", "Sigmoid"))
    environment = {**os.environ, "TENONNX_CACHE_DIR": str(tmp_path / "cache")}

    def told(*command: str) -> list[list[object]]:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode and "mount" in done.stderr + " ".join(command):
            pytest.skip(f"nothing can be mounted: {done.stderr[-200:]}")
        return list(json.loads(done.stdout))

    python = sys.executable, "-c", MOUNTED, str(path)
    _, (stages, expected) = told(*python)
    assert stages == ["open"]
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    (first, found), (second, again) = told(
        "unshare", "-rm", "sh", "-c", script, "sh", str(other), str(path), *python
    )
    assert first != ["open"]
    assert second == ["open"]
    assert found == again != expected
    assert told(*python)[0][1] == expected


WITHOUT_EFFECT = {
    "ONNX_MODELS": "says where tests of the backend keep models",
    "OPENBLAS_NUM_THREADS": "how many threads numpy has, whatever the plan",
    "XDG_CACHE_HOME": "says where the cache is",
    "ZIG_GLOBAL_CACHE_DIR": "says where the linker of kernels has its files",
    "ZIG_LOCAL_CACHE_DIR": "likewise",
}


def variables() -> Iterator[str]:
    """Yield the names of variables in the sources that look at the environment."""
    for package in (tenonnx, tenonnx_array, tenonnx_cpu):
        for file in Path(package.__path__[0]).glob("**/*.py"):
            text = file.read_text(encoding="utf-8")
            if "environ" not in text or file.parent.name in ("cli", "as_onnxruntime"):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    name = node.value
                    if name.isupper() and name.isidentifier() and "_" in name.strip("_"):
                        yield name


def test_every_variable_is_in_the_key() -> None:
    found = set(variables())
    assert "TENONNX_JIT" in found
    assert {name for name in found if not name.startswith(key.PREFIXES)} == WITHOUT_EFFECT.keys()


def test_a_plan_is_plain_pickles(tmp_path: Path) -> None:
    opened(saved(tmp_path / "model.onnx"))
    (kept,) = files.files()
    checks = pickle.loads(bytes(files.read(kept).checks))
    assert set(checks) == {"files", "code", "providers"}
