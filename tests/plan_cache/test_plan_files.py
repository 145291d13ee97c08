"""Files of plans that are damaged, hostile or not to be written."""

from __future__ import annotations

import operator
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_models import answers, assert_same, is_kept, opened, saved

import tenonnx_array.accurate
import tenonnx_array.ml.maps
from tenonnx import by_name
from tenonnx.errors import InvalidGraph
from tenonnx.graph.operand_shapes import Requirement
from tenonnx.graph.values import NodeInfo
from tenonnx.plan_cache import NotCacheable, admitted, files
from tenonnx.planning import codegen, codegen_control
from tenonnx.planning.program import Block, Control, GraphInfo, Program
from tenonnx.provider import Step


@pytest.mark.parametrize("place", [0, 8, 70, 200, -1])
def test_damaged_files_are_made_again(tmp_path: Path, place: int) -> None:
    path = saved(tmp_path / "model.onnx")
    first = opened(path)
    (kept,) = files.files()
    content = bytearray(kept.read_bytes())
    content[place] ^= 1
    kept.write_bytes(content)
    second = opened(path)
    assert not is_kept(second)
    assert_same(answers(second), answers(first))
    assert is_kept(opened(path))
    for size in (0, 4, 60, 120, len(content) // 2):
        kept.write_bytes(content[:size])
        assert not is_kept(opened(path))


NO_WEIGHTS = pickle.dumps(([], ""))
"""The first pickle of a plan's parts, of plain values, for parts without weights."""


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_files_name_no_other_code(tmp_path: Path) -> None:
    assert_refused(saved(tmp_path / "model.onnx"), pickle.dumps(Evil(tmp_path / "evil")))
    assert not (tmp_path / "evil").exists()


class Called:
    """A pickle whose loading calls a function; the result may be a function itself."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> Any:
        return self.function, self.given

    def __call__(self, *_: Any) -> None:
        """Be a function for pickle, which does not call it."""


NUMPY = Called(admitted.numpy)
RUNNERS = {
    "of_numpy": Called(admitted.of_numpy, "testing.runstring"),
    "attrgetter": Called(Called(operator.attrgetter, "testing.runstring"), NUMPY),
}
"""Ways to numpy's function that runs code, by functions that files name or named."""


def assert_refused(path: Path, evil: bytes) -> None:
    """Make sure that a plan with another pickle, and a digest that fits, is not used."""
    opened(path)
    (kept,) = files.files()
    found = files.read(kept)
    checks, content = bytes(found.checks), bytes(found.parts)
    for parts in ((checks, NO_WEIGHTS + evil), (checks, evil), (evil, content)):
        kept.write_bytes(b"".join(files.pieces(*parts, [memoryview(b"")])))
        assert not is_kept(opened(path))


@pytest.mark.parametrize("way", RUNNERS)
def test_files_run_no_code_by_numpy(way: str, tmp_path: Path) -> None:
    place = tmp_path / "written"
    evil = Called(RUNNERS[way], f"open({str(place)!r}, 'w')", {})
    assert_refused(saved(tmp_path / "model.onnx"), pickle.dumps(evil))
    assert not place.exists()


def calling(module: str, name: str, *given: Any) -> bytes:
    """Return a pickle that calls what a module names."""
    return b"\x80\x05" + f"c{module}\n{name}\n".encode() + pickle.dumps(given)[2:-1] + b"R."


NO_CALLS = {
    "writes": ("tenonnx.weights.trusted", "write_trusted", b"evil"),
    "compiles": ("tenonnx.plan_cache.compiling", "compile_model", "evil"),
    "deletes": ("tenonnx.weights.folder", "forget_unused"),
    "reads": ("tenonnx.formats.load", "load"),
    "opens": ("tenonnx", "InferenceSession"),
    "runs": ("tenonnx.cli", "main"),
    "imports": ("tenonnx.session", "functools"),
    "executes": ("tenonnx.planning.codegen", "Generator"),
    "another's": ("tenonnx_cpu.provider", "os"),
    "a method": ("tenonnx.planning.step", "Step.called"),
    "a builtin": ("builtins", "eval"),
    "a getter": ("builtins", "getattr"),
    "a getter of the operator module": ("operator", "attrgetter"),
    "no plug-in's": ("json", "loads"),
    "a module's run": ("tenonnx.__main__", "main"),
}


@pytest.mark.parametrize("case", NO_CALLS)
def test_files_call_nothing_that_is_not_marked(case: str, tmp_path: Path) -> None:
    module, name, *given = NO_CALLS[case]
    with pytest.raises(NotCacheable):
        admitted.global_of(str(module), str(name))
    evil = calling(str(module), str(name), str(tmp_path / "evil"), *given)
    assert_refused(saved(tmp_path / "model.onnx"), evil)
    assert not (tmp_path / "evil").exists()


def test_a_mark_is_not_inherited() -> None:
    class Own(Step):
        """No class that plans may name."""

    assert by_name.is_cacheable(Step)
    assert not by_name.is_cacheable(Own)


@pytest.mark.parametrize(
    "name",
    [
        *("testing.runstring", "f2py.run_main", "ctypeslib.load_library", "lib.format.open_memmap"),
        *("load", "fromfile", "savez", "test", "linalg", "no_such", "a.b.c", ".", "memmap"),
    ],
)
def test_names_of_numpy_that_are_no_functions_of_steps(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotCacheable):
        admitted.of_numpy(name)
    with pytest.raises(ValueError, match="is no elementwise function"):
        tenonnx_array.accurate._in_double(name, np, np.array(str(tmp_path)))


HOSTILE = "().__class__", "x.shape", "f'{x.y}'", "x.\\\nshape", "x.#\nshape", "1 .real"


@pytest.mark.parametrize("text", HOSTILE)
def test_declarations_are_no_code(text: str) -> None:
    with pytest.raises(SyntaxError, match="no attributes"):
        Requirement(f"x: n; {text}", ("x",), ("x",), {}).decide([(1,)])


class Label:
    """A label whose display is code."""

    def __repr__(self) -> str:
        return "__import__('os').abort()"


def test_text_in_a_plan_is_no_code() -> None:
    with pytest.raises(TypeError, match="labels are integers or strings"):
        tenonnx_array.ml.maps.ZipMap([Label()])
    name = "x=__import__('os').abort(), y"
    step = Step(len, (), (), bodies=(name,))
    body = Block.of(GraphInfo("", (), ()), ())
    node = NodeInfo(0, "", "Own", "own", None, (), (), {})
    generator = codegen.Generator(Program.of_steps([], [], []))
    with pytest.raises(InvalidGraph, match="no attribute is called"):
        codegen_control.bodies(generator, Control(node, (), {}, {name: body}, step), step)


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_files_that_others_may_write_are_not_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    kept.chmod(0o666)
    assert not is_kept(opened(path))


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "file"))
    path = saved(tmp_path / "model.onnx")
    for _ in range(2):
        session = opened(path)
        assert not is_kept(session)
        answers(session)
