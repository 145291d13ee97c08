"""Fixtures for tests of kernels: a model in a file, and a list of kernels that no test used."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from models import FLOAT, model, node, value


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A softmax of 64 elements: its sessions ask for two kernels."""
    shape = [1, 8, 64, 64]
    proto = model([node("Softmax", "x", "y")], [value("x", FLOAT, shape)], [value("y")])
    path = tmp_path_factory.mktemp("model") / "softmax.onnx"
    onnx.save(proto, path)
    return path


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not session.config.getoption("--all-kernels"):
        return
    from tenonnx_cpu.jit.runtime import KERNELS
    from tenonnx_cpu.lazy_import import import_all

    import_all()
    if left := [name for name, kernel in KERNELS.items() if kernel.run is None]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print(f"\nno test took {', '.join(left)}")
