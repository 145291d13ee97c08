"""sympy is not imported with onnx_ir, and nothing of that is seen by others who import it."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORT = """
import sys
finders = list(sys.meta_path)
from tenonnx.process.sympy_later import import_onnx_ir
import_onnx_ir()
assert sys.meta_path == finders
import onnx_ir
"""

PROGRAMS = {
    "nothing is left": """
        assert not [name for name in sys.modules if name.partition(".")[0] == "sympy"]
        assert "onnx_ir._symbolic_shapes" not in sys.modules
    """,
    "dimensions are computed": """
        n = onnx_ir.SymbolicDim("n")
        assert str((n * 2 + n).simplify().value) == "3*n"
        assert (n + 1).evaluate({"n": 3}) == 4
        assert onnx_ir.SymbolicDim("max(n, 3)").evaluate({"n": 2}) == 3
        import sympy
        assert onnx_ir.SymbolicDim(sympy.Symbol("m")).value == "m"
        assert sys.modules["onnx_ir._symbolic_shapes"] is onnx_ir._symbolic_shapes
    """,
    "a module of sympy's is imported": """
        import sympy.printing
        assert sympy.latex is sympy.printing.latex
    """,
    "a name of a module of sympy's is imported": """
        from sympy.core.symbol import Symbol
        assert str(Symbol("x") + 1) == "x + 1"
    """,
    "sympy is an ordinary module": """
        import pickle, types, sympy
        assert type(sympy) is types.ModuleType and sys.modules["sympy"] is sympy
        assert pickle.loads(pickle.dumps(sympy.Max)) is sympy.Max is onnx_ir._core.sympy.Max
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_after_the_import(program: str) -> None:
    _run(IMPORT + "\n".join(line.strip() for line in program.splitlines()))


def test_names_of_onnx_ir_are_those_of_an_ordinary_import() -> None:
    names = "print(sorted(dir(onnx_ir)), sorted(dir(onnx_ir._core)))"
    assert _run(IMPORT + names) == _run("import onnx_ir\n" + names)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(
    "statement",
    [
        "import sympy; sympy.Symbol",
        "from sympy import Symbol",
        "import sympy.printing",
        "from sympy.core.symbol import Symbol",
        "from sympy import *; Symbol",
    ],
)
def test_another_thread_may_import_it_meanwhile(statement: str, moment: str) -> None:
    """Stand-ins are in ``sys.modules`` while onnx_ir is imported: whoever meets one has sympy."""
    _run(f"""
import importlib, sys, threading
from tenonnx.process import sympy_later
names, whole = {{}}, importlib.import_module
def by_turns(name):
    if name != "onnx_ir":
        return whole(name)
    thread = threading.Thread(target=exec, args=({statement!r}, names))
    found = whole(name) if {moment == "after"} else None
    thread.start()
    thread.join()
    return found or whole(name)
importlib.import_module = by_turns
sympy_later.import_onnx_ir()
import onnx_ir, sympy
used = names["Symbol"] if "Symbol" in names else names["sympy"].Symbol
assert used is sympy.Symbol and sys.modules["sympy"] is sympy
assert str(used("x") + 1) == "x + 1"
assert onnx_ir.SymbolicDim(used("x")).value == "x"
""")


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
