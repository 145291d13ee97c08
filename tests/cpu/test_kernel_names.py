"""Symbols of compiled functions: kernels from different processes' caches are linked together."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tenonnx_cpu.jit import runtime
from tenonnx_cpu.jit.code import sources
from tenonnx_cpu.jit.code.naming import name_by_content
from tenonnx_cpu.lazy_import import import_all

TELL = """
import gc, importlib, pkgutil, sys
from numba.core.dispatcher import Dispatcher
import tenonnx_cpu
names = sorted(
    module.name
    for module in pkgutil.walk_packages(tenonnx_cpu.__path__, "tenonnx_cpu.")
    if {"jit", "kernels"} & set(module.name.split("."))
)
for name in names[::int(sys.argv[1])]:
    importlib.import_module(name)
for thing in gc.get_objects():
    if isinstance(thing, Dispatcher) and thing.py_func.__module__.startswith("tenonnx_cpu"):
        print(thing.py_func.__module__, thing.py_func.__qualname__)
"""


def told(direction: int) -> list[str]:
    command = [sys.executable, "-c", TELL, str(direction)]
    return sorted(subprocess.check_output(command, text=True).splitlines())


def variant(kind: str, *, most: int = 3) -> object:
    def inner(x: int) -> int:
        return x + most

    def outer(x: int) -> str:
        return kind * inner(x)

    return name_by_content(outer)


def test_variants_have_names_of_their_own() -> None:
    names = {variant("f16").__qualname__, variant("bf16").__qualname__}
    assert len(names) == 2
    assert variant("f16").__qualname__ in names
    # What a function calls is part of what it computes.
    assert variant("f16", most=4).__qualname__ not in names


def test_a_function_has_one_name_in_all_processes() -> None:
    pytest.importorskip("numba")
    forth = told(1)
    assert forth == told(-1)
    packs = {line for line in forth if "make_pack.<locals>.pack_" in line}
    assert len(packs) == 3, "one for every kind of elements"


def test_kernels_are_functions_of_the_files_by_which_they_are_kept() -> None:
    pytest.importorskip("numba")
    from tenonnx_cpu.jit.compiling import declared

    for name, kernel in declared().items():
        file = kernel.function.__code__.co_filename
        assert file == str(sources.source_of(name.rpartition(".")[0])), name


def test_whoever_launches_kernels_names_all_that_there_are() -> None:
    pytest.importorskip("numba")
    from tenonnx_cpu.jit.compiling import declared

    import_all()
    assert {str(handle) for handle in runtime.KERNELS} == declared().keys()
