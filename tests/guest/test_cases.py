"""Programs that an earlier way to import onnx and onnx_ir broke, one test for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guest.separate import MODEL, Program

HERE = Path(__file__).parent


@pytest.fixture
def found(request: pytest.FixtureRequest, program: Program) -> Any:
    """The finding that the test is named after."""
    name = request.node.name.removeprefix("test_")
    group, _, case = name.partition("_")
    file, arguments = ("windows.py", ()) if group == "windows" else ("beside.py", (group,))
    # A session that opens a plan imports nothing that hooks could be asked for.
    return json.loads(program(str(HERE / file), *arguments, MODEL, TENONNX_PLANS="0"))[case]


def test_session_then_symbols_of_sympy(found: Any) -> None:
    assert found == ["x + 1", "function"]


def test_windows_loggers_of_another_thread(found: Any) -> None:
    assert set(found) == {"logging.Logger"}


def test_windows_modules_of_another_thread(found: Any) -> None:
    assert set(found) == {json.__version__}


def test_session_then_pickles(found: Any) -> None:
    assert found == ["onnx_ir.load", "onnx.external_data_helper.convert_model_to_external_data"]


def test_session_then_members(found: Any) -> None:
    assert found == [True, True, True]


def test_session_then_signatures(found: Any) -> None:
    assert found["parameters"] == ["path", "format"]
    assert found["name"] == "load"
    assert found["doc"].startswith("Load an ONNX model from a file")


def test_session_then_mocks(found: Any) -> None:
    assert found == "the original was called"


def test_session_then_levels_of_loggers(found: Any) -> None:
    assert found == ["onnx_ir._core", 10]


def test_session_then_identity(found: Any) -> None:
    assert found == [True, True]


def test_hooks_of_the_program_are_asked(found: Any) -> None:
    assert found == ["google.protobuf", "onnx", "onnx.helper", "onnx_ir", "onnx_ir._core", "pluggy"]


def test_packages_win_over_modules_of_their_name(found: Any) -> None:
    assert found == "package"


def test_hooks_of_paths_are_applied(found: Any) -> None:
    assert found == ["google.protobuf.message", "onnx_ir._core", "pluggy._hooks"]


def test_reloaded_tenonnx_adds_no_finder(found: Any) -> None:
    assert found == []


def test_session_then_loaders(found: Any) -> None:
    """Python's loaders alone, whose locks Python sees in its search for deadlocks."""
    assert found == []


def test_session_then_stand_ins(found: Any) -> None:
    assert found == []


def test_windows_extension_of_onnx(found: Any) -> None:
    assert set(found) <= {"absent", "module"}


def test_session_then_one_extension_of_onnx(found: Any) -> None:
    assert found == [True, True, True]


def test_session_then_hooks_for_pyinstaller(found: Any) -> None:
    assert found == [True]


def test_session_then_calls_of_the_collector(found: Any) -> None:
    assert found == []


def test_session_then_signatures_of_public_classes(found: Any) -> None:
    assert found["Step"][0] == "call"
    assert found["Format"][0] == "name"
    assert found["Transform"][:2] == ["name", "apply"]
    assert {"graph_optimization_level", "intra_op_num_threads"} <= {*found["SessionOptions"]}
