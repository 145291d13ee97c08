"""Programs that import onnxruntime, run with tenonnx in its place."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from models import FLOAT, model, node, value
from tenonnx.as_onnxruntime import VERSION, blockwise


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    proto = model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y")],
        [value("x", FLOAT, ["n", 3])],
        [value("y", FLOAT, ["n", 4])],
        {"w": np.ones((3, 4), np.float32)},
    )
    onnx.save(proto, tmp_path / "model.onnx")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tenonnx.as_onnxruntime", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def run_script(folder: Path, code: str, *arguments: str) -> str:
    (folder / "script.py").write_text(textwrap.dedent(code))
    done = run(folder, "script.py", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_gets_tenonnx(folder: Path) -> None:
    printed = run_script(
        folder,
        """
        import sys
        import numpy as np
        import onnxruntime as ort
        import tenonnx

        assert __name__ == "__main__" and sys.argv == ["script.py", "--flag"]
        assert ort.InferenceSession is tenonnx.InferenceSession
        print(ort.__version__, ort.get_version_string())
        ort.set_seed(1)
        ort.set_default_logger_severity(3)
        ort.disable_telemetry_events()
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        session = ort.InferenceSession("model.onnx", options, providers=providers)
        assert session.run(None, {"x": [[1.0, 2.0, 3.0]]})[0].tolist() == [[6, 6, 6, 6]]
        """,
        "--flag",
    )
    assert printed.split() == [VERSION, VERSION]


def test_inner_modules_and_their_exceptions(folder: Path) -> None:
    run_script(
        folder,
        """
        import numpy as np
        import onnxruntime
        import onnxruntime.capi.onnxruntime_pybind11_state as state
        from onnxruntime.capi import _pybind_state as C
        from onnxruntime.capi.onnxruntime_inference_collection import OrtValue, Session
        from onnxruntime.capi.onnxruntime_pybind11_state import (
            EPFail, Fail, InvalidArgument, InvalidGraph, NotImplemented, NoSuchFile,
            RuntimeException,
        )

        assert onnxruntime.capi.onnxruntime_pybind11_state.Fail is Fail is C.Fail
        device = C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0)
        assert isinstance(device, onnxruntime.OrtDevice)
        assert (device.device_type(), device.vendor_id(), device.mem_type()) == (0, 0, 0)
        value = C.OrtValue
        array = np.ones((2, 3), np.float32)
        assert value.ortvalue_from_numpy(array, device).data_ptr() == array.ctypes.data
        memory = onnxruntime.OrtMemoryInfo("Cpu")
        of_types = [
            value.ortvalue_from_shape_and_type([2, 3], np.float16, device),
            value.ortvalue_from_shape_and_onnx_type([2, 3], 10, device),
            value.ortvalue_from_shape_and_type_for_memory_info([2, 3], np.float16, memory),
            value.ortvalue_from_shape_and_onnx_type_for_memory_info([2, 3], 10, memory),
        ]
        for made in of_types:
            assert (made.shape(), made.element_type()) == ([2, 3], 10)
            assert made.device_name().lower() == "cpu" and not made._is_webgpu_buffer()
        lent = value.ortvalue_from_numpy(array, device).to_dlpack()
        assert type(lent).__name__ == "PyCapsule"
        kernels = {(k.op_name, k.domain): k for k in C.get_all_opkernel_def()}
        assert kernels["Conv", ""].provider == "CPUExecutionProvider"
        schemas = {(s.name, s.domain): s for s in C.get_all_operator_schema()}
        assert isinstance(schemas["Conv", ""], C.schemadef.OpSchema)
        assert schemas["FusedMatMul", "com.microsoft"].since_version == 1
        assert isinstance(C.get_session_initializer(), onnxruntime.SessionOptions)
        session = onnxruntime.InferenceSession("model.onnx")
        assert isinstance(session, Session)
        try:
            session.run(None, {"x": None})
        except InvalidArgument as error:
            assert "'x'" in str(error)
        try:
            onnxruntime.InferenceSession("no.onnx")
        except state.NoSuchFile:
            pass
        try:
            state.no_such_name
        except AttributeError as error:
            assert "https://tenonnx.github.io/tenonnx/onnxruntime/" in str(error)
        """,
    )


def test_programs_that_ask_whether_it_is_installed(folder: Path) -> None:
    run_script(
        folder,
        """
        import importlib.metadata
        import importlib.util

        assert importlib.util.find_spec("onnxruntime") is not None
        assert importlib.metadata.version("onnxruntime")[0].isdigit()
        """,
    )


def test_modules_run_too(folder: Path) -> None:
    (folder / "client.py").write_text(
        "import onnxruntime, sys\nprint(onnxruntime.InferenceSession.__module__, sys.argv[1:])\n"
    )
    done = run(folder, "-m", "client", "a", "b")
    assert done.stdout.split() == ["tenonnx.session", "['a',", "'b']"], done.stderr


CHILDREN = """
import multiprocessing, os, subprocess, sys
import onnxruntime

def answer(x):
    session = onnxruntime.InferenceSession("model.onnx")
    return type(session).__module__, session.run(None, {"x": x})[0].tolist()

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(answer, ([[1.0, 2.0, 3.0]],)))
    code = "import onnxruntime; print(onnxruntime.InferenceSession.__module__)"
    print(subprocess.check_output([sys.executable, "-c", code], text=True).strip())
    inner = "import onnxruntime.capi.onnxruntime_pybind11_state as s; print(s.Fail.__module__)"
    print(subprocess.check_output([sys.executable, "-c", inner], text=True).strip())
    version = "import importlib.metadata as m; print(m.version('onnxruntime'))"
    print(subprocess.check_output([sys.executable, "-c", version], text=True).strip())
    quiet = "import sys; print(sorted({'numpy', 'tenonnx', 'onnxruntime'} & sys.modules.keys()))"
    print(subprocess.check_output([sys.executable, "-c", quiet], text=True).strip())
"""


def test_children_have_tenonnx_too(folder: Path) -> None:
    assert run_script(folder, CHILDREN).splitlines() == [
        "('tenonnx.session', [[6.0, 6.0, 6.0, 6.0]])",
        "tenonnx.session",
        "tenonnx.errors",
        VERSION,
        "[]",
    ]


def test_a_sitecustomize_of_the_users_runs_in_children(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text("import builtins; builtins.mine = 'mine'\n")
    paths = os.pathsep.join([str(folder / "site"), *filter(None, sys.path)])
    monkeypatch.setenv("PYTHONPATH", paths)
    code = "import onnxruntime, sitecustomize; print(mine, onnxruntime.NodeArg.__module__)"
    printed = run_script(
        folder,
        f"""
        import subprocess, sys
        print(subprocess.check_output([sys.executable, "-c", {code!r}], text=True))
        """,
    )
    assert printed.split() == ["mine", "tenonnx.interface.signature"]


def test_a_child_that_is_left_alone_has_its_own(folder: Path) -> None:
    (folder / "onnxruntime").mkdir()
    (folder / "onnxruntime" / "__init__.py").write_text("MINE = 'mine'")
    code = "import onnxruntime; print(onnxruntime.MINE, onnxruntime.__file__)"
    printed = run_script(
        folder,
        f"""
        import os, subprocess, sys
        import onnxruntime
        print(onnxruntime.NodeArg.__module__)
        environment = dict(os.environ, TENONNX_AS_ONNXRUNTIME="0")
        environment["PYTHONPATH"] += os.pathsep + os.getcwd()
        command = [sys.executable, "-P", "-c", {code!r}]
        print(subprocess.check_output(command, text=True, env=environment))
        """,
    )
    mine = str(folder / "onnxruntime" / "__init__.py")
    assert printed.split() == ["tenonnx.interface.signature", "mine", mine]


def test_imports_stay_ordinary(folder: Path) -> None:
    run_script(
        folder,
        """
        import sys
        import onnxruntime

        kinds = {getattr(finder, "__module__", "") for finder in sys.meta_path}
        assert not any(kind.startswith("tenonnx") for kind in kinds)
        assert type(onnxruntime) is type(sys) and onnxruntime.__spec__.origin
        assert "InferenceSession" in dir(onnxruntime)
        """,
    )


def test_children_can_be_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_AS_ONNXRUNTIME", "0")
    code = "import sys; print([path for path in sys.path if 'stand_ins' in path])"
    printed = run_script(
        folder,
        f"""
        import os, subprocess, sys
        import onnxruntime
        print(onnxruntime.NodeArg.__module__)
        print(subprocess.check_output([sys.executable, "-c", {code!r}], text=True))
        """,
    )
    assert printed.split() == ["tenonnx.interface.signature", "[]"]


def test_exit_codes_and_usage(folder: Path) -> None:
    (folder / "script.py").write_text("raise SystemExit(7)")
    assert run(folder, "script.py").returncode == 7
    for wrong in ((), ("-m",)):
        done = run(folder, *wrong)
        assert done.returncode == 1
        assert done.stderr.startswith("usage:")


def test_an_onnxruntime_that_is_imported_is_not_replaced(folder: Path) -> None:
    code = """
        import sys, types
        sys.modules["onnxruntime"] = types.ModuleType("onnxruntime")
        from tenonnx.as_onnxruntime import install
        install()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "onnxruntime is imported already" in done.stderr


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_are_quantized_to_within_half_a_step(bits: int, symmetric: bool) -> None:
    rows, columns, size = 40, 3, 16
    weight = np.random.default_rng(bits).standard_normal((rows, columns)).astype(np.float32)
    integers, scale, zero = blockwise.quantize(
        np.pad(weight.T, ((0, 0), (0, 8))).reshape(columns, -1, size), bits, symmetric
    )
    back = (integers.astype(np.float32) - zero[..., None]) * scale[..., None]
    # Without a zero point the end opposite to the farthest element has one integer less.
    steps = np.abs(scale) * (1.0 if symmetric else 0.5)
    wrong = np.abs(back.reshape(columns, -1)[:, :rows] - weight.T)
    assert (wrong <= np.repeat(steps, size, 1)[:, :rows] * 1.001).all()


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("rows", [40, 48])
def test_onnxruntime_quantizes_alike(rows: int, symmetric: bool) -> None:
    state: Any = pytest.importorskip("onnxruntime.capi._pybind_state", reason="compares with it")
    columns, size = 4, 16
    weight = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    blocks = -(-rows // size)
    for bits in (2, 4, 8):
        name = f"quantize_matmul_{bits}bits"
        results = []
        for module in (state, blockwise):
            outs = (
                np.zeros((columns, blocks, size * bits // 8), np.uint8),
                np.zeros((columns, blocks), np.float32),
                np.zeros((columns, -(-blocks * bits // 8)), np.uint8),
            )
            getattr(module, name)(outs[0], weight, *outs[1:], size, columns, rows, symmetric)
            results.append(outs)
        for theirs, ours in zip(*results, strict=True):
            np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(("rows", "columns"), [(40, 4), (48, 4), (40, 5), (37, 8), (33, 7)])
def test_onnxruntime_quantizes_qdq_alike(rows: int, columns: int, symmetric: bool) -> None:
    state: Any = pytest.importorskip("onnxruntime.capi._pybind_state", reason="compares with it")
    size = 16
    weight = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    blocks = -(-rows // size)
    results = []
    for module in (state, blockwise):
        outs = (
            np.zeros(-(-rows * columns // 2), np.uint8),
            np.zeros((blocks, columns), np.float32),
            np.zeros(-(-blocks * columns // 2), np.uint8),
        )
        quantize = module.quantize_qdq_matmul_4bits
        assert quantize(outs[0], weight, *outs[1:], size, columns, rows, symmetric) is symmetric
        results.append(outs)
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_array_equal(theirs, ours)
