"""onnx and onnx_ir are imported without what they rarely need, and have it all the same."""

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
            print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)
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


def test_what_is_lazy_is_there_when_it_is_used() -> None:
    assert (
        child(
            """
            import sys
            import tenonnx
            tenonnx.InferenceSession
            import onnx
            from importlib.metadata import version
            print(type(onnx.helper).__name__, onnx.__version__ == version("onnx"))
            from onnx.helper import make_node
            import onnx.checker
            onnx.checker.check_node(make_node("Relu", ["x"], ["y"]))
            text = onnx.printer.to_text(make_node("Relu", ["x"], ["y"])).strip()
            from google.protobuf import json_format
            made = json_format.Parse('{"opType": "Relu"}', onnx.NodeProto())
            print(text, made.op_type, type(onnx.helper), type(onnx.helper.__loader__).__name__)
            """
        )
        == "LazyModule True\ny = Relu (x) Relu <class 'module'> SourceFileLoader"
    )


def test_threads_that_use_it_at_once_wait_for_one_another() -> None:
    assert (
        child(
            """
            import threading
            import tenonnx
            import onnx
            start, found = threading.Barrier(8), []
            def use():
                start.wait()
                found.append(onnx.helper.make_node("Relu", ["x"], ["y"]).op_type)
            threads = [threading.Thread(target=use) for _ in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            print(found == ["Relu"] * 8)
            """
        )
        == "True"
    )


def test_an_unknown_attribute_is_told_as_of_any_module() -> None:
    assert (
        child(
            """
            import tenonnx
            import onnx
            try:
                onnx.helper.no_such_name
            except AttributeError as error:
                print(error)
            """
        )
        == "module 'onnx.helper' has no attribute 'no_such_name'"
    )
