"""onnx_ir is imported without sympy, and works with it all the same."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def child(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_session_runs_without_sympy() -> None:
    assert (
        child(
            """
            import sys
            import tenonnx
            tenonnx.InferenceSession
            print("onnx_ir" in sys.modules, "sympy" in sys.modules)
            """
        )
        == "True False"
    )


def test_symbolic_arithmetic_brings_the_real_sympy_in() -> None:
    assert (
        child(
            """
            import tenonnx
            tenonnx.InferenceSession
            import onnx_ir as ir
            from onnx_ir._symbolic_shapes import parse_symbolic_expression
            print(ir.SymbolicDim("n") + 1)
            expression = parse_symbolic_expression("max(n, 2*m) + floor(k)")
            import sympy
            print(isinstance(expression, sympy.Expr), sympy.Integer(3) + 1)
            print(ir.SymbolicDim(sympy.Symbol("q")))
            """
        )
        == "n + 1\nTrue 4\nq"
    )


def test_who_imported_sympy_before_keeps_it() -> None:
    assert (
        child(
            """
            import sympy
            import tenonnx
            tenonnx.InferenceSession
            import onnx_ir._core
            print(onnx_ir._core.sympy is sympy)
            """
        )
        == "True"
    )


def test_importing_onnx_ir_first_is_fine() -> None:
    assert (
        child(
            """
            import onnx_ir
            import tenonnx
            tenonnx.InferenceSession
            print(type(onnx_ir._core.sympy).__name__)
            """
        )
        == "module"
    )
