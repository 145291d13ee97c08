"""onnx and onnx_ir are imported without what they rarely need, and have it all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


def child(code: str, *arguments: str, before: str = "") -> str:
    """Runs code in a process that looks for modules in ``before``, then where this one does."""
    path = os.pathsep.join(filter(None, (before, *sys.path)))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": path, "TENONNX_JIT": "0"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_session_runs_without_sympy() -> None:
    assert (
        child(
            """
            import sys
            import tenonnx
            tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
            print("onnx_ir" in sys.modules, "sympy.core" in sys.modules)
            """,
            str(DIGITS),
        )
        == "True False"
    )


def test_a_session_runs_without_machine_code_of_onnx_which_others_get() -> None:
    assert child(
        """
            import sys, warnings
            import tenonnx
            tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
            import onnx, onnx_ir
            print(type(sys.modules["typing_extensions"]).__name__)
            print(any(name.startswith("onnx.onnx_cpp2py_export") for name in sys.modules))
            print(onnx.onnx_cpp2py_export.defs.has_schema("Relu"), onnx.defs.has("Relu"))
            import onnx.onnx_cpp2py_export.checker as checker
            print(checker is sys.modules["onnx.onnx_cpp2py_export"].checker)
            print(onnx_ir.load(sys.argv[1]).graph.inputs[0].name)
            onnx.load_external_data_for_model(onnx.load(sys.argv[1]), ".")
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                print(onnx_ir.Input("x").name, onnx_ir.Input.__name__)
            print(told[0].category.__name__, told[0].filename)
            """,
        str(DIGITS),
    ).split() == [
        *("LazyModule", "False", "True", "True", "True", "image", "x", "Input"),
        *("DeprecationWarning", "<string>"),
    ]


def test_what_a_run_needs_is_imported_without_onnx() -> None:
    assert (
        child(
            """
            import importlib, pkgutil, sys
            import tenonnx.session, tenonnx.planning.plan, tenonnx.weights.registry
            import tenonnx_array, tenonnx_cpu.provider
            from tenonnx.plugins.manager import default_plugins
            default_plugins()
            for package in ("tenonnx_array", "tenonnx_cpu"):
                there = importlib.import_module(package)
                for each in pkgutil.iter_modules(there.__path__, f"{package}."):
                    importlib.import_module(each.name)
                    for inner in pkgutil.iter_modules(sys.modules[each.name].__path__
                                                      if each.ispkg else ()):
                        name = f"{each.name}.{inner.name}"
                        if not inner.ispkg and ".jit." not in name:
                            importlib.import_module(name)
            print(*(name for name in sys.modules
                    if name.partition(".")[0] in ("google", "onnx", "onnx_ir", "numba")))
            """
        )
        == "onnx_ir._enums"
    )


ENUMS = """
import sys
from tenonnx.lazy_modules import onnx_ir as ir
alone, kinds = ir.DataType.FLOAT, ir.AttributeType
print("onnx_ir" in sys.modules)
"""


def test_enums_without_onnx_ir_are_its_own() -> None:
    assert (
        child(
            f"""{ENUMS}
import onnx_ir
print(type(alone) is onnx_ir.DataType, kinds is onnx_ir.AttributeType, ir.Model is onnx_ir.Model)
from onnx_ir import _enums
import onnx_ir._enums as same
print(_enums is same is onnx_ir._enums is sys.modules["onnx_ir._enums"])
"""
        )
        == "False\nTrue True True\nTrue"
    )


@pytest.mark.parametrize(
    "enums",
    [
        pytest.param("from onnx_ir import DataType, AttributeType", id="needs-the-package"),
        pytest.param("", id="has-none"),
        pytest.param(None, id="is-not-there"),
    ],
)
def test_enums_of_an_onnx_ir_that_is_made_otherwise(tmp_path: Path, enums: str | None) -> None:
    package = tmp_path / "onnx_ir"
    package.mkdir()
    text = "import enum\nclass DataType(enum.IntEnum):\n    FLOAT = 1\nAttributeType = DataType"
    (package / "__init__.py").write_text(text)
    if enums is not None:
        (package / "_enums.py").write_text(enums)
    code = f"{ENUMS}import onnx_ir\nprint(type(alone) is onnx_ir.DataType)"
    assert child(code, before=str(tmp_path)) == "True\nTrue"


def test_enums_and_onnx_ir_are_imported_at_once() -> None:
    assert (
        child(
            """
            import threading
            from tenonnx.lazy_modules import onnx_ir as ir
            start, found = threading.Barrier(8), []
            def use(number):
                start.wait()
                if number % 2:
                    import onnx_ir
                    found.append(onnx_ir.DataType)
                else:
                    found.append(ir.DataType)
            threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
            [t.start() for t in threads]; [t.join() for t in threads]
            print(len(found), len(set(found)))
            """
        )
        == "8 1"
    )


def test_looking_at_a_stand_in_imports_nothing() -> None:
    assert (
        child(
            """
            import inspect, sys
            from tenonnx import graph, lazy_modules
            inspect.getmembers(graph, inspect.isfunction)
            print(hasattr(lazy_modules.onnx, "__wrapped__"), "onnx" in sys.modules)
            print(hasattr(lazy_modules.onnx, "no_such_name"), "onnx" in sys.modules)
            """
        )
        == "False False\nFalse True"
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


def test_paths_become_addresses_without_what_that_takes_until_then() -> None:
    assert (
        child(
            """
            import sys
            for name in list(sys.modules):  # from 3.13 on, pathlib is a package
                if name.partition(".")[0] in ("pathlib", "urllib", "ipaddress"):
                    del sys.modules[name]
            import tenonnx
            tenonnx.InferenceSession
            import pathlib
            print("ipaddress" in sys.modules, pathlib.PurePosixPath("/a b").as_uri())
            import urllib.parse
            print(type(urllib.parse).__name__, urllib.parse.urlsplit("http://a/b").netloc)
            """
        )
        == "False file:///a%20b\nmodule a"
    )


def test_what_is_imported_counts_as_old() -> None:
    counted = """
        import gc, tenonnx
        {before}
        tenonnx.InferenceSession
        print(gc.isenabled(), gc.get_freeze_count() > 0, len(gc.get_objects(generation=2)) > 5000)
    """
    assert child(counted.format(before="")) == "True False True"
    assert child(counted.format(before="gc.disable()")) == "False False True"
    assert child(counted.format(before="gc.freeze()")).startswith("True True")


def test_a_first_session_does_without_logging_and_sharded_devices() -> None:
    assert child(
        """
            import sys
            import tenonnx
            tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
            names = "logging", "onnx_ir._multi_device"
            print({type(sys.modules[name]).__name__ for name in names})
            import onnx_ir
            from onnx_ir import *
            from onnx_ir import ModelConfiguration
            import onnx_ir._multi_device as devices
            print(ModelConfiguration is devices.ModelConfiguration, ShardingSpec.__module__)
            print(onnx_ir.ModelConfiguration is ModelConfiguration, hasattr(onnx_ir, "Sharding"))
            """,
        str(DIGITS),
    ).splitlines() == ["{'LazyModule'}", "True onnx_ir", "True False"]


@pytest.mark.parametrize("early", [True, False])
def test_who_listens_to_onnx_ir_hears_it(early: bool) -> None:
    assert child(
        """
            import sys
            if sys.argv[2] == "True":
                import logging
                logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
            import tenonnx
            tenonnx.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
            import logging
            logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)
            import onnx_ir
            onnx_ir.serde.logger.debug("heard")
            onnx_ir.serde.logger.warning("that")
            print(len(logging.getLogger("onnx_ir").handlers))
            print(len(logging.getLogger("onnx_ir.serde").filters))
            """,
        str(DIGITS),
        str(early),
    ).splitlines()[-4:] == ["DEBUG:onnx_ir.serde:heard", "WARNING:onnx_ir.serde:that", "1", "1"]
