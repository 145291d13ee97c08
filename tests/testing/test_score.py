"""``python -m tenonnx.testing``: how far a provider gets, and why not further."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest

import tenonnx
from tenonnx.errors import NotSupported
from tenonnx.plugins import manager
from tenonnx.testing.__main__ import main
from tenonnx.testing.nodes import node_cases
from tenonnx.testing.score import Outcome, Score, missing_function, missing_package

PLUGIN = """
import tenonnx
from tenonnx_array.{module} import {base}


class PartialExecutionProvider({base}):
    name = "PartialExecutionProvider"
    aliases = ("partial",)
    namespace = {namespace!r}
    without = {{"Gelu": "it has none", "CumSum": "it has none"}}


@tenonnx.hookimpl
def register_providers(register):
    register(PartialExecutionProvider)
"""


@pytest.fixture(autouse=True)
def own_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the plug-ins of a test's files after it, and have room for a row in a line."""
    monkeypatch.setattr(manager, "_default", None)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A plug-in over a library that has all of numpy but one function."""
    library = ModuleType("partial_library")
    library.__spec__ = np.__spec__
    names = [name for name in dir(np) if not name.startswith("_") and name != "ceil"]
    vars(library).update({name: getattr(np, name) for name in names})
    monkeypatch.setitem(sys.modules, "partial_library", library)
    path = tmp_path / "partial_plugin.py"
    path.write_text(
        PLUGIN.format(module="provider", base="ArrayProvider", namespace="partial_library")
    )
    return str(path)


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("cases", "rows", "code"),
    [
        ("test_ceil", ["2 the array library lacks: partial_library.ceil Ceil"], 1),
        ("test_cumsum_1d_r", ["2 runs on another provider: it has none CumSum"], 0),
        (
            "test_gelu_tanh_1",
            [
                "1 runs on the provider models of several nodes",
                "1 runs on the provider by the operator's function body Gelu",
            ],
            0,
        ),
    ],
)
def test_an_incomplete_library(
    partial: str, cases: str, rows: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["partial", "--plugin", partial, "--cases", cases]) == code
    header, *found, _ = printed(capsys)
    assert header == "cases outcome operators"
    assert found == rows


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (
            "test_gather_elements_0",
            "on the provider, but numpy computes: arange GatherElements",
        ),
        (  # whose inner values have no stated types
            "test_celu_float16_expanded",
            "partly on the provider: array_api_strict has no elements of type FLOAT16 "
            "models of several nodes",
        ),
    ],
)
def test_a_library_of_the_array_api_standard(
    case: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not node_cases(f"{case}*"):
        pytest.skip(f"onnx {onnx.__version__} has no case {case}")
    plugin = tmp_path / "strict_plugin.py"
    plugin.write_text(
        PLUGIN.format(module="standard", base="StandardProvider", namespace="array_api_strict")
    )
    assert main(["partial", "--plugin", str(plugin), "--cases", case]) == 0
    _, row, _ = printed(capsys)
    assert row == f"1 runs {told}"


def test_a_missing_package_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert main(["cpu", "--cases", "test_image_decoder_decode_bmp"]) == 0
    _, row, total = printed(capsys)
    assert row.startswith("1 skipped: ImageDecoder reads pictures with Pillow, which is not")
    assert total.endswith("; 1 skipped")


def test_a_misspelt_import_is_a_failure() -> None:
    with pytest.raises(ImportError) as misspelt:
        import no_such_module  # noqa: F401
    assert missing_package(misspelt.value) is None
    told = ImportError("pip install it")
    wrapped = NotSupported("a node")
    wrapped.__cause__ = told
    assert missing_package(wrapped) == "pip install it"


def test_only_the_librarys_own_names_are_lacking() -> None:
    with pytest.raises(AttributeError) as ours:
        None.shape  # type: ignore[attr-defined]  # noqa: B018 - a kernel's mistake
    assert missing_function(ours.value, "numpy") is None
    with pytest.raises(AttributeError) as theirs:
        np.ones(1).no_such_method()  # type: ignore[attr-defined]
    assert missing_function(theirs.value, "numpy") == "ndarray.no_such_method"


def test_a_long_row_is_cut() -> None:
    score = Score()
    for letter in "abcdefghij":
        score.count(Outcome.SUPPORTED, letter)
    ((cases, outcome, operators),) = score.table()
    assert (cases, outcome) == (10, "runs on the provider")
    assert operators == "a, b, c, d, e, f, 4 other operators"


def test_a_plugin_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cpu", "--plugin", "nowhere.py"]) == 2
    assert "no plug-in file nowhere.py" in capsys.readouterr().err


def test_a_prefix_that_no_case_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cpu", "--cases", "nothing_"]) == 2
    assert capsys.readouterr().err == "error: no case's name begins with 'nothing_'\n"


@pytest.mark.parametrize("package", ["hypothesis", "pytest"])
def test_contracts_say_what_to_install(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "tenonnx.testing.providers", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {package}.*pip install 'tenonnx\["):
        tenonnx.testing.ProviderTests  # noqa: B018 - asking for it imports it
