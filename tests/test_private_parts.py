"""Private parts of other packages are listed where the source uses them, and can be missing."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from sources import ROOT, modules
from tenonnx import graph
from tenonnx.planning import blas, quiet

LIST = tomllib.loads((ROOT / "docs" / "private_parts.toml").read_text("utf-8"))

PROMISED = ("_", "_asdict", "_fields", "_make", "_replace")
"""Names with an underscore that are documented: of ``typing.NamedTuple``."""

UNPROMISED = ("llvmlite.ir.", "numba.core.", "numba.np.", "uvicorn.protocols.")
"""Packages without an underscore whose documentation promises nothing."""


FOREIGN = {name for each in LIST.values() for name in each.get("attributes", ())}
LISTED = {name for each in LIST.values() for name in each.get("modules", ())}


class Survey:
    """The names in the source.

    Attributes:
        own: Names that it gives to something.
        read: Attributes that it reads.
        modules: Modules that it imports, also by names in strings, with the names from them.
    """

    def __init__(self) -> None:
        self.own: set[str] = set()
        self.read: set[str] = set()
        self.modules: set[str] = set()

    def note(self, node: ast.AST) -> None:
        """Note a node's names."""
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.own.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                self.own.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                self.own.add(name)
            case ast.Attribute(attr=name) if is_private(name):
                self.read.add(name)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                self.modules |= {f"{module}.{name.name}" for name in names}
            case ast.Import(names=names):
                self.modules |= {name.name for name in names}
            case ast.Constant(value=str(text)) if "._" in text:
                if all(part.isidentifier() for part in text.split(".")):
                    self.modules.add(text)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PROMISED


def is_listed(module: str) -> bool:
    return any(f"{module}.".startswith(f"{each}.") for each in LISTED)


@pytest.fixture(scope="module")
def survey() -> Survey:
    found = Survey()
    for file in modules():
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            found.note(node)
    return found


def test_attributes_are_listed(survey: Survey) -> None:
    assert survey.read - survey.own <= FOREIGN
    assert survey.read >= FOREIGN


def test_modules_are_listed(survey: Survey) -> None:
    private = {
        name
        for name in survey.modules
        if not name.startswith("tenonnx")
        and (any(map(is_private, name.split("."))) or f"{name}.".startswith(UNPROMISED))
    }
    assert {name for name in private if not is_listed(name)} == set()
    used = {each for each in LISTED for name in private if f"{name}.".startswith(f"{each}.")}
    assert used == LISTED


@pytest.mark.parametrize("name", LIST)
def test_each_says_what_happens_without_it(name: str) -> None:
    oldest, newest = (tuple(map(int, each.split("."))) for each in LIST[name]["tested"])
    assert oldest <= newest
    assert LIST[name]["fallback"].strip().endswith(".")


def anew(module: ModuleType) -> Any:
    """Return another module of a module's source."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_without_numpys_context_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy._core.umath")
    before = np.geterr()
    np.testing.assert_array_equal(anew(quiet).quietly(np.divide, (1.0, 0.0)), np.inf)
    assert np.geterr() == before


def test_without_numpys_module_openblas_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    if blas.openblas() is None or not list(Path(np.__file__).parents[1].glob("numpy.libs/*")):
        pytest.skip("numpy brings no OpenBLAS")
    monkeypatch.delitem(sys.modules, blas.LINKED)
    found = blas.openblas.__wrapped__()
    assert found is not None
    assert found.get() == blas.openblas().get()  # type: ignore[union-attr] # it is found above


@pytest.mark.parametrize("has", [True, False])
def test_without_onnx_irs_lists_of_readers(monkeypatch: pytest.MonkeyPatch, has: bool) -> None:
    assert graph._has_lists_of_readers()
    monkeypatch.setattr(graph, "_has_lists_of_readers", lambda: has)
    values = [ir.Value(name=f"v{i}") for i in range(graph.MAX_REPLACED_INPUTS + 2)]
    node = ir.Node("", "Concat", values[:-1])
    graph.replace_input(node, 3, values[-1])
    assert [*node.inputs] == [*values[:3], values[-1], *values[4:-1]]
    assert [*values[3].uses()] == []
    assert [(use.node, use.idx) for use in values[-1].uses()] == [(node, 3)]
    graph.detach(node)
    assert {*node.inputs} == {None}
    assert not any(value.uses() for value in values)
