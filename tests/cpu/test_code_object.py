"""Code objects: loaded without numba, shared by processes, the same as numba's own code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import FLOAT, model, node, value

pytest.importorskip("numba")
from tenonnx_cpu.conv.kernels import pool as conv_pool
from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.code.cache import code_path
from tenonnx_cpu.jit.code.cpu import _asked, _own_features
from tenonnx_cpu.jit.compiling import Contract, In, Out, boolean, f32, helper, kernel, size
from tenonnx_cpu.norm.kernels import norms

pytestmark = pytest.mark.skipif(not code_object.SUPPORTED, reason="no code objects are made here")

PRELUDE = """
import json, os, sys, threading
sys.modules["llvmlite"] = None  # numba cannot be imported
import numpy as np
import tenonnx
from tenonnx_cpu.jit import runtime
from tenonnx_cpu.jit.code import code_object
X = np.random.default_rng(0).standard_normal((64, 64), np.float32)
def opened(mode="compile"):
    os.environ["TENONNX_JIT"] = mode
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = 2
    return tenonnx.InferenceSession(sys.argv[1], options)
def run(session):
    return session.run(None, {"x": X})[0]
def compiled():
    return sorted(str(kernel) for kernel in runtime.KERNELS if kernel.run is not None)
"""
KERNELS = ["matmul.gemm.gemm_f32", "norm.norms.softmax"]


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


@pytest.fixture(scope="module")
def warm(product: Path, kernels: str) -> str:
    """The folder of kernels, with all that the model needs."""
    command = [sys.executable, "-m", "tenonnx", "warmup", str(product), "--json"]
    done = subprocess.run(
        command, env=environment(kernels), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["kernels"]
    assert set(KERNELS) <= {name for name, ready in found.items() if ready}
    return kernels


def environment(kernels: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "NUMBA_CACHE_DIR": kernels, "TENONNX_JIT": "1", "PYTHONPATH": paths}


def child(body: str, product: Path, kernels: str) -> Any:
    """Run code in a fresh process that cannot import numba, and which prints JSON."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(product)],
        env=environment(kernels), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("mode", ["1", "compile"])
def test_a_process_older_than_its_sources_takes_no_kernels(
    mode: str, product: Path, warm: str
) -> None:
    """Its callers may be of another version than a kernel, which looks at no argument."""
    y, loaded, said = child(
        f"""
        import logging
        from tenonnx_cpu.jit.code import sources
        said = []
        logger = logging.getLogger("tenonnx.jit")
        logger.handlers = [logging.NullHandler()]
        logger.handlers[0].handle = lambda record: said.append(record.getMessage())
        y = run(opened("0"))
        sources.BEGAN = 0
        session = opened("{mode}")
        print(json.dumps([bool((run(session) == y).all()), compiled(), said]))
        """,
        product, warm,
    )  # fmt: skip
    assert y is True
    assert loaded == []
    failed = said[0]
    assert "stays on numpy" in failed
    assert "py has changed since this process began" in failed


@pytest.mark.parametrize("mode", ["1", "compile"])
def test_the_first_run_has_kernels_and_numba_stays_out(mode: str, product: Path, warm: str) -> None:
    found = child(
        f"""
        session = opened("{mode}")
        assert set({KERNELS}) <= set(compiled()), compiled()
        y = run(session)
        print(json.dumps([y.tolist(), "numba" in sys.modules]))
        """,
        product, warm,
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    w = np.random.default_rng(1).standard_normal((64, 300), np.float32)
    exact = np.exp(x.astype(np.float64) @ w)
    np.testing.assert_allclose(found[0], exact / exact.sum(1, keepdims=True), rtol=2e-5)
    assert found[1:] == [False]


def test_a_session_takes_little_memory_of_its_own(product: Path, warm: str) -> None:
    """The bound is for all that a session with matrix kernels brings, threads and buffers too."""
    before, after, mapped = child(
        """
        def status(field):
            lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
            return int(lines[field].split()[0]) / 1024
        run(opened("0"))
        before = status("RssAnon"), status("VmExe")
        session = opened()
        run(session)
        code = [line for line in open("/proc/self/maps") if ".image" in line and "r-xp" in line]
        print(json.dumps([before[0], status("RssAnon"), len(code)]))
        """,
        product, warm,
    )  # fmt: skip
    assert after - before < 8
    assert mapped >= 4, "code is mapped from files"


def test_threads_load_an_image_once(product: Path, warm: str) -> None:
    assert child(
        """
        from tenonnx_cpu.jit.code.cache import code_path
        from tenonnx_cpu.jit.code.sources import source_of
        path = code_path(source_of("matmul.gemm"), "gemm_f32")
        found, start = [], threading.Barrier(8)
        def load():
            start.wait()
            found.append(code_object.load(path)[code_object.ENTRY])
        threads = [threading.Thread(target=load) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        lines = [line for line in open("/proc/self/maps") if "r-xp" in line]
        maps = sum("matmul.gemm.gemm_f32" in line for line in lines)
        print(json.dumps([len(found), len(set(found)), maps]))
        """,
        product, warm,
    ) == [8, 1, 1]  # fmt: skip


def test_a_forked_child_loads_and_runs(product: Path, warm: str) -> None:
    """Also while another thread of its parent holds what loading is guarded by, over and over."""
    assert child(
        """
        stop = threading.Event()
        def look():
            while not stop.is_set():
                code_object.find("nowhere.image")
        thread = threading.Thread(target=look)
        thread.start()
        y = run(opened("0"))
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
        product, warm,
    ) == [[0, True, True]] * 5  # fmt: skip


def floats(*shape: int) -> Any:
    x = np.random.default_rng(shape[0]).standard_normal(shape, np.float32)
    x.flat[::37] = np.nan
    return x


@kernel((In(f32, 2, "A"), (f32, In(f32, 1), boolean), size, Out(f32, 1)), Contract())
def add_row(x: Any, what: Any, row: Any, y: Any) -> None:
    factor, other, doubled = what
    for i in range(y.size):
        y[i] = factor * x[row, i] + other[i] * (2 if doubled else 1)


CALLS: dict[str, tuple[Any, tuple[Any, ...], int]] = {
    "softmax": (norms.softmax, (floats(40, 48), np.zeros((40, 48), np.float32), 0, 8, 2), 1),
    "normalize_all": (
        norms.normalize_all,
        (
            *(
                x.view(np.uint8)
                for x in (floats(40, 48), floats(40, 48)[::-1].copy(), floats(48), floats(0))
            ),
            1e-3, np.int64(1), *(np.zeros((40, 192), np.uint8) for _ in range(2)), 0, 8, 2,
        ),
        6,
    ),
    "average_f32": (conv_pool.average_f32, (floats(40, 48), np.zeros(40, np.float32), 1), 1),
    "add_row": (
        add_row,
        (floats(48, 40).T, 1.5, floats(48), True, np.int64(7), np.zeros(48, np.float32)),
        5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_an_image_computes_what_numba_computes(name: str) -> None:
    kernel, arguments, result = CALLS[name]
    answers = []
    for run in (kernel.compile(), kernel.dispatcher()):
        arguments[result].fill(0)
        assert run(*arguments) is None
        answers.append(arguments[result].tobytes())
    assert answers[0] == answers[1]
    assert any(answers[0])


def softmax() -> Callable[..., Any]:
    run: Callable[..., Any] = norms.softmax.compile()
    assert type(run) is type(len)
    return run


def test_arguments_are_counted_and_told_apart() -> None:
    run, x = softmax(), floats(4, 8)
    y = np.empty_like(x)
    with pytest.raises(TypeError, match=r"softmax\(\) takes 5 arguments"):
        run()
    with pytest.raises(TypeError, match=r"softmax\(\) takes 5 arguments"):
        run(x, y, 0, 8, 1, 1)
    with pytest.raises(TypeError, match=r"softmax\(\): argument 1 must be an array$"):
        run(x, None, 0, 8, 1)
    with pytest.raises(TypeError, match=r"softmax\(\): argument 0 must be of 2 dimensions"):
        run(x[0], y, 0, 8, 1)
    with pytest.raises(TypeError, match="float"):
        run(x, y, 0, 8.5, 1)
    with pytest.raises(OverflowError):
        run(x, y, 0, 8, 1 << 70)


def test_numbers_may_be_numpys_and_arrays_of_a_kind_of_their_own(tmp_path: Path) -> None:
    run, x = softmax(), floats(4, 8)
    kept = np.memmap(tmp_path / "y", np.float32, "w+", shape=x.shape)
    y = np.empty_like(x)
    run(x, y, 0, 8, 1)
    run(x, kept, np.int32(0), np.uint8(8), np.int64(1))
    assert np.array_equal(kept, y, equal_nan=True)


def test_calls_leave_no_references() -> None:
    run, x = softmax(), floats(4, 8)
    y, threads = np.empty_like(x), 1 << 40
    before = [sys.getrefcount(thing) for thing in (x, y, threads)]
    for _ in range(1000):
        run(x, y, 0, 8, threads)
        with pytest.raises(TypeError):
            run(x, y, 0, None, threads)
    assert [sys.getrefcount(thing) for thing in (x, y, threads)] == before


def test_damaged_images_are_not_loaded(tmp_path: Path) -> None:
    softmax()
    whole = Path(code_path(norms.__file__, "softmax")).read_bytes()
    for number, length in enumerate([0, 1, 23, 24, 100, 4096, len(whole) // 2, len(whole) - 1]):
        path = tmp_path / f"short-{number}.image"
        path.write_bytes(whole[:length])
        with pytest.raises(code_object.Damaged, match="not a whole code object"):
            code_object.load(path)
        assert code_object.find(path) is None
    for place in [0, 7, 9, 13, 17, 30, 5000, len(whole) // 2, len(whole) - 1]:
        path = tmp_path / f"changed-{place}.image"
        changed = bytearray(whole)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        assert code_object.find(path) is None
    (tmp_path / "long.image").write_bytes(whole + b"\0")
    assert code_object.find(tmp_path / "long.image") is None
    assert code_object.find(tmp_path) is None


def test_what_an_image_needs_must_be_there(tmp_path: Path) -> None:
    alone = code_object.CodeObject(
        b"\xcc" * 4096, bytes(4096), {}, (), {"tenonnx_no_such": (4096,)}
    )
    (tmp_path / "alone.image").write_bytes(alone.pack())
    with pytest.raises(LookupError, match="nothing here is called tenonnx_no_such"):
        code_object.load(tmp_path / "alone.image")
    needing = code_object.CodeObject(b"\xcc" * 4096, bytes(4096), {}, (), {}, ("missing.image",))
    (tmp_path / "needing.image").write_bytes(needing.pack())
    assert code_object.find(tmp_path / "needing.image") is None


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def add_first(x: Any, y: Any) -> None:
    room = np.empty(x.size, np.float32)
    for i in range(x.size):
        room[i] = x[0]
    for i in range(x.size):
        y[i] = x[i] + room[y.size - 1 - i]


def test_what_allocates_has_no_image() -> None:
    with pytest.raises(LookupError, match="NRT_"):
        add_first.compile()


@helper
def doubled(x: Any, y: Any) -> None:
    for i in range(x.size):
        y[i] = 2 * x[i]


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def doubled_twice(x: Any, y: Any) -> None:
    if max(x.size, y.size) == x.size:
        doubled(x, y)
    doubled(y, y)


@kernel((In(f32, 1), Out(f32, 1)), Contract())
def halved(x: Any, y: Any) -> None:
    for i in range(max(x.size, y.size)):
        y[i] = x[i] / 2


def test_kernels_leave_numba_as_it_is_for_others_and_others_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its definitions of functions that are Python's are of all who use them."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    x, y = np.arange(5, dtype=np.float32), np.empty(5, np.float32)
    doubled_twice.compile()(x, y)
    assert y.tolist() == [0, 4, 8, 12, 16]
    added = importlib.import_module("numba").njit(lambda a, b: max(a, b) + len((a, b)))
    assert added(3, 5) == 7
    halved.compile()(y, y)
    assert y.tolist() == [0, 2, 4, 6, 8]


def test_processor_is_the_one_that_llvm_finds() -> None:
    """The system's description of the processor, read without LLVM, decides about kernels."""
    wanted = {"avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx2", "fma", "avxvnni"}
    assert _own_features() & wanted == _asked() & wanted
