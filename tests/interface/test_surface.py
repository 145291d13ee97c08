"""onnxruntime's names, each of them: here, or in a table that says why not."""

from __future__ import annotations

import enum
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tenonnx
from tenonnx.interface import config

ort = pytest.importorskip("onnxruntime", reason="compares with the installed onnxruntime")
ROOT = Path(__file__).parents[2]


def load_tool() -> ModuleType:
    path = ROOT / "tools/onnxruntime_table.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = load_tool()


@pytest.mark.parametrize("name", list(tool.names_of(ort)))
def test_nothing_is_missing_without_a_reason(name: str) -> None:
    kind, why = tool.verdict(name)
    if not tool.is_here(name):
        assert kind in ("missing", "refused")
        assert why


def test_no_row_is_of_a_name_that_is_gone() -> None:
    names = set(tool.names_of(ort))
    assert {*tool.NOTES, *tool.MISSING} <= names
    assert not [name for name in tool.MISSING if tool.is_here(name)]


def test_the_document_is_current() -> None:
    document = (ROOT / "docs/onnxruntime.md").read_text()
    assert document == tool.document(ort), "run python tools/onnxruntime_table.py"


def test_the_names_do_not_depend_on_what_else_is_imported() -> None:
    before = set(tool.names_of(ort))
    import onnxruntime.quantization  # noqa: F401 - it becomes a name of the package

    assert set(tool.names_of(ort)) == before


def test_enumerations_have_the_same_numbers() -> None:
    for name, theirs in inspect.getmembers(ort, inspect.isclass):
        ours = getattr(tenonnx, name, None)
        if isinstance(ours, type) and issubclass(ours, enum.Enum):
            numbers = {member: int(number) for member, number in theirs.__members__.items()}
            assert numbers == {m: int(n) for m, n in ours.__members__.items()}, name


def parameters(function: Any) -> list[str]:
    return [
        p.name
        for p in inspect.signature(function).parameters.values()
        if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]


@pytest.mark.parametrize(
    "name",
    [
        n
        for n in tool.names_of(ort)
        if "." in n
        and n.partition(".")[0] in ("InferenceSession", "IOBinding", "OrtValue", "SparseTensor")
    ],
)
def test_methods_take_the_same_arguments(name: str) -> None:
    owner, _, member = name.partition(".")
    theirs = parameters(getattr(getattr(ort, owner), member))
    ours = parameters(getattr(getattr(tenonnx, owner), member))
    assert ours[: len(theirs)] == theirs or name == "OrtValue.__dlpack__"


def test_the_constructor_takes_the_same_arguments() -> None:
    theirs, ours = parameters(ort.InferenceSession), parameters(tenonnx.InferenceSession)
    assert ours[: len(theirs)] == theirs


def test_options_start_with_the_same_values() -> None:
    theirs, ours = ort.SessionOptions(), tenonnx.SessionOptions()
    for name in tool.members_of(ort.SessionOptions):
        value = getattr(theirs, name)
        if not callable(value) and name != "profile_file_prefix":
            assert int(getattr(ours, name) or 0) == int(value or 0), name


def test_exceptions_have_the_same_names() -> None:
    state = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    names = [
        name
        for name, found in inspect.getmembers(state, inspect.isclass)
        if issubclass(found, Exception)
    ]
    assert len(names) > 10
    for name in names:
        assert issubclass(getattr(tenonnx, name), tenonnx.TenonnxError)


KEY = re.compile(rb"\0((?:session|ep|optimization|memory|mlas)\.[a-z0-9_.]+[a-z0-9])\0")


def test_every_configuration_key_has_a_row() -> None:
    (library,) = (Path(ort.__file__).parent / "capi").glob("libonnxruntime.so.*")
    found = {key.decode() for key in KEY.findall(library.read_bytes())}
    assert len(found) > 50
    assert found - config.SESSION_KEYS.keys() - config.RUN_KEYS.keys() == set()
