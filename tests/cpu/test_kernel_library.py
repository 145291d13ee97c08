"""The library of kernels in processes: found, trusted, whole, shared; else numpy computes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from running import require_kernels

from models import FLOAT, model, node, value
from planting import FILES, FOLDERS
from tenonnx_cpu.jit import library

require_kernels()

PRELUDE = """
import json, logging, os, sys, threading
for name in ("numba", "llvmlite", "tbb"): sys.modules[name] = None
from tenonnx_cpu.jit.code import cpu
if len(sys.argv) > 2: cpu.INSTALLED = sys.argv[2]
import numpy as np
import tenonnx
from tenonnx_cpu.jit import library, runtime
library.INSTALLED = cpu.INSTALLED
said = []
for name in ("tenonnx.cache", "tenonnx.jit"):
    logging.getLogger(name).addHandler(logging.NullHandler())
    logging.getLogger(name).handlers[0].handle = lambda record: said.append(record.getMessage())
X = np.random.default_rng(0).standard_normal((64, 64), np.float32)
def opened(threads=2):
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = threads
    return tenonnx.InferenceSession(sys.argv[1], options)
def run(session):
    return session.run(None, {"x": X})[0]
def compiled():
    return [name for name, each in runtime.KERNELS.items() if each.is_requested and each.run]
"""

NEEDED = {"capture.replay.replay", "matmul.gemm.gemm_f32", "norm.norms.softmax"}
"""Kernels that the model's sessions need, among others."""


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose matrix product and softmax are kernels."""
    weight = np.random.default_rng(1).standard_normal((64, 300), np.float32)
    proto = model(
        [node("MatMul", "x w", "h"), node("Softmax", "h", "y")],
        [value("x", FLOAT, [None, 64])],
        [value("y")],
        {"w": weight},
    )
    path = tmp_path_factory.mktemp("model") / "product.onnx"
    onnx.save(proto, path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the library, in a folder of its own, to be changed."""
    found = library.find()
    assert found is not None
    (tmp_path / "kernels").mkdir()
    shutil.copy(found.path, tmp_path / "kernels")
    return tmp_path / "kernels"


def child(body: str, product: Path, kernels: Path | str, *installed: Path, **variables: str) -> Any:
    """Run code in a fresh process that has no numba, and which prints JSON."""
    paths = os.pathsep.join(filter(None, sys.path))
    given = {library.KERNELS_VARIABLE: str(kernels), "TENONNX_JIT": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(product), *map(str, installed)],
        env={**os.environ, **given, **variables},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def exact() -> Any:
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    w = np.random.default_rng(1).standard_normal((64, 300), np.float32)
    powers = np.exp(x.astype(np.float64) @ w)
    return powers / powers.sum(1, keepdims=True)


def answers(product: Path, kernels: Path | str, *installed: Path, **variables: str) -> Any:
    """Run the model; return its kernels and what was said, once its answer is right."""
    y, *found = child(
        "y = run(opened()); print(json.dumps([y.tolist(), compiled(), said]))",
        product, kernels, *installed, **variables,
    )  # fmt: skip
    np.testing.assert_allclose(y, exact(), rtol=2e-5)
    return found


def test_the_first_run_has_kernels_and_needs_no_numba(product: Path, kernels: str) -> None:
    ready, said = answers(product, kernels)
    assert set(ready) >= NEEDED
    assert said == []


def test_a_library_that_is_opened_counts_as_used(product: Path, folder: Path) -> None:
    """Also where the file system records no access: else it would be deleted after a month."""
    (path,) = folder.glob("*.so")
    os.utime(path, (0, 10**9))
    answers(product, folder)
    assert path.stat().st_atime > 10**9
    assert path.stat().st_mtime == 10**9


def test_an_installed_library_is_taken(product: Path, folder: Path, tmp_path: Path) -> None:
    (cached,) = folder.glob("*.so")
    kind = cached.name.rpartition("-")[0]
    (tmp_path / "installed").mkdir()
    cached.rename(tmp_path / "installed" / f"{kind}.so")
    ready, said = answers(product, folder, tmp_path / "installed")
    assert set(ready) >= NEEDED
    assert said == []


def test_variables_leave_kernels_out(product: Path, kernels: str) -> None:
    assert answers(product, kernels, TENONNX_JIT="0") == [[], []]


@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_where_there_is_no_library_one_warning_says_so(
    there: bool, product: Path, tmp_path: Path
) -> None:
    """However many sessions there are; and what mends it."""
    y, ready, said = child(
        "ys = [run(opened(n)) for n in (1, 2)]\n"
        "print(json.dumps([ys[1].tolist(), compiled(), said]))",
        product, tmp_path if there else tmp_path / "none",
    )  # fmt: skip
    np.testing.assert_allclose(y, exact(), rtol=2e-5)
    assert ready == []
    assert said == [
        "kernels are not compiled for this processor: numpy computes, which takes several times as "
        "long; pip install 'tenonnx[jit]', then tenonnx warmup"
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("plant", FILES)
def test_planted_files(plant: str, product: Path, folder: Path) -> None:
    change, what = FILES[plant]
    (path,) = folder.glob("*.so")
    change(path)
    ready, said = answers(product, folder)
    assert ready == []
    assert f"is not used, because it {what}: delete it" in said[0]


@pytest.mark.parametrize("plant", FOLDERS)
def test_planted_folders(plant: str, product: Path, folder: Path) -> None:
    change, what = FOLDERS[plant]
    change(folder)
    ready, said = answers(product, folder)
    assert ready == []
    assert what in said[0]
    assert library.KERNELS_VARIABLE in said[0]


@pytest.mark.parametrize("share", [0, 1e-5, 0.01, 0.5, 0.99, 1 - 1e-6, 1.001])
def test_a_library_that_was_cut_is_not_used(share: float, product: Path, folder: Path) -> None:
    (path,) = folder.glob("*.so")
    whole = path.read_bytes()
    path.write_bytes((whole + bytes(9999))[: int(share * len(whole))])
    ready, said = answers(product, folder)
    assert ready == []
    assert "it is not a whole library" in said[0]


def test_another_library_is_not_used(product: Path, folder: Path) -> None:
    (path,) = folder.glob("*.so")
    own = library.IDENTITY.encode()
    path.write_bytes(path.read_bytes().replace(own, own[::-1]))
    ready, said = answers(product, folder)
    assert ready == []
    assert "is not used: it is no library of kernels" in said[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"cpython 32 numpy 2", "it was built for cpython 32 numpy 2; expected cpython 16 numpy 2"),
        (b"cpython 16 numpy 3", "it was built for cpython 16 numpy 3"),
    ],
)
def test_a_library_for_other_objects_is_not_used(
    text: bytes, reason: str, product: Path, folder: Path
) -> None:
    own = library.binary_interface().encode()
    (path,) = folder.glob("*.so")
    content = path.read_bytes()
    assert content.count(own) == 1
    path.write_bytes(content.replace(own, text))
    ready, said = answers(product, folder)
    assert ready == []
    assert reason in said[0]


def test_a_release_has_its_own_library() -> None:
    own = library.binary_interface()
    library._require_fit(f"{own}; ")
    library._require_fit(f"{own}; {library.release()}")
    with pytest.raises(library.Unusable, match=r"it was built for tenonnx 0\.0\.7; this is "):
        library._require_fit(f"{own}; 0.0.7")


def test_a_library_of_other_sources_is_not_found(product: Path, folder: Path) -> None:
    (path,) = folder.glob("*.so")
    path.rename(path.with_name(f"{path.name.rpartition('-')[0]}-0123456789abcdef.so"))
    ready, said = answers(product, folder)
    assert ready == []
    assert "kernels are not compiled" in said[0]


def test_a_plan_is_of_the_kernels_that_there_were(
    product: Path, folder: Path, tmp_path: Path
) -> None:
    def opens_plan(*, has_kernels: bool) -> bool:
        y, moments, ready = child(
            "s = opened(); print(json.dumps([run(s).tolist(), list(s.load_times), compiled()]))",
            product, folder, TENONNX_CACHE_DIR=str(tmp_path / "cache"),
        )  # fmt: skip
        np.testing.assert_allclose(y, exact(), rtol=2e-5)
        assert (set(ready) >= NEEDED) is has_kernels
        return bool(moments == ["open"])

    assert [opens_plan(has_kernels=True) for _ in range(2)] == [False, True]
    folder.rename(tmp_path / "elsewhere")
    assert [opens_plan(has_kernels=False) for _ in range(2)] == [False, True]
    (tmp_path / "elsewhere").rename(folder)
    assert [opens_plan(has_kernels=True) for _ in range(2)] == [False, True]


def test_a_session_takes_little_memory_of_its_own(product: Path, kernels: str) -> None:
    """The bound is for all that a session with matrix kernels brings, threads and buffers too."""
    before, after, own = child(
        """
        def private():
            lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
            return int(lines["RssAnon"].split()[0]) / 1024
        os.environ["TENONNX_JIT"] = "0"
        run(opened())
        before = private()
        os.environ["TENONNX_JIT"] = "1"
        run(opened())
        own, name = 0, ""
        for line in open("/proc/self/smaps"):
            words = line.split()
            name = words[-1] if "-" in words[0] else name
            if words[0].startswith("Private_Dirty") and name.endswith(".so") and "x86-64" in name:
                own += int(words[1])
        print(json.dumps([before, private(), own]))
        """,
        product, kernels,
    )  # fmt: skip
    assert after - before < 8
    assert own <= 32, "KiB of the library are the process's own"


def test_threads_open_one_library(product: Path, kernels: str) -> None:
    assert child(
        """
        found, start = [], threading.Barrier(8)
        def load():
            start.wait()
            found.append((id(library.current()), runtime.JitKernel("norm.norms", "softmax").run))
        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        path = os.path.realpath(library.find().path)
        maps = sum(path in line and "r-xp" in line for line in open("/proc/self/maps"))
        print(json.dumps([len(found), len({each[0] for each in found}), maps]))
        """,
        product, kernels,
    ) == [8, 1, 1]  # fmt: skip


def test_a_forked_child_loads_and_runs(product: Path, kernels: str) -> None:
    """Also while another thread of its parent holds what loading is guarded by, over and over."""
    assert child(
        """
        stop = threading.Event()
        def look():
            while not stop.is_set():
                with library._lock: pass
        thread = threading.Thread(target=look)
        thread.start()
        os.environ["TENONNX_JIT"] = "0"
        y = run(opened())
        os.environ["TENONNX_JIT"] = "1"
        answers = []
        for _ in range(5):
            read, write = os.pipe()
            if not (pid := os.fork()):
                near = np.allclose(run(opened()), y, rtol=1e-4)
                os.write(write, json.dumps([bool(near), len(compiled()) > 1]).encode())
                os._exit(0)
            answers.append([os.waitpid(pid, 0)[1], *json.loads(os.read(read, 100))])
        stop.set()
        thread.join()
        print(json.dumps(answers))
        """,
        product, kernels,
    ) == [[0, True, True]] * 5  # fmt: skip


def test_forks_after_use(product: Path, kernels: str) -> None:
    status, same = child(
        """
        session = opened(4)
        y = run(session)
        read, write = os.pipe()
        if not (pid := os.fork()):
            same = [np.array_equal(run(s), y) for s in (session, opened(2))]
            os.write(write, json.dumps(same).encode())
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        print(json.dumps([status, json.loads(os.read(read, 100))]))
        """,
        product, kernels,
    )  # fmt: skip
    assert (status, same) == (0, [True, True])


@pytest.mark.parametrize("sessions", [1, 8])
def test_eight_threads_at_once(sessions: int, product: Path, kernels: str) -> None:
    assert child(
        f"""
        sessions = [opened(1 + i % 4) for i in range({sessions})]
        y, wrong = run(sessions[0]), []
        start = threading.Barrier(8)
        def work(i):
            start.wait()
            for _ in range(200):
                if not np.array_equal(run(sessions[i % len(sessions)]), y):
                    wrong.append(i)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps(wrong))
        """,
        product, kernels,
    ) == []  # fmt: skip


def test_many_starts_beside_each_other(
    product: Path, kernels: str, pytestconfig: pytest.Config
) -> None:
    """``--starts 200`` starts as many processes, eight at a time."""
    count = pytestconfig.getoption("--starts")
    code = PRELUDE + "print(json.dumps([bool(np.isfinite(run(opened())).all()), compiled()]))"
    variables = {library.KERNELS_VARIABLE: kernels, "TENONNX_JIT": "1", "OPENBLAS_NUM_THREADS": "1"}
    paths = os.pathsep.join(filter(None, sys.path))
    command, left, running = [sys.executable, "-c", code, str(product)], count, []
    while left or running:
        while left and len(running) < 8:
            left -= 1
            running.append(
                subprocess.Popen(
                    command,
                    env={**os.environ, **variables, "PYTHONPATH": paths},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        output, errors = running.pop(0).communicate(timeout=120)
        assert errors == ""
        right, ready = json.loads(output)
        assert right
        assert set(ready) >= NEEDED


def test_folders_that_others_delete_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that links deletes the folder of its drafts while others list the files."""
    monkeypatch.setenv(library.KERNELS_VARIABLE, str(tmp_path))
    drafts = {tmp_path / ".link-1", tmp_path / ".link-2"}
    for folder in drafts:
        folder.mkdir()
        (folder / "library").touch()
    found = library.cached_files()
    drafts.remove(next(found).parent)
    shutil.rmtree(drafts.pop())
    assert list(found) == []
