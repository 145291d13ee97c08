"""Who may import whom, and how big a file or function may be."""

from __future__ import annotations

import ast
import functools
import importlib
import re
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tenonnx
from sources import PACKAGES, PRODUCTS, ROOT

PLUGINS = {name for name, path in PACKAGES.items() if (ROOT / "plugins") in path.parents}

LAYERS = {
    "tenonnx": set[str](),
    "tenonnx_array": {"tenonnx"},
    "tenonnx_cpu": {"tenonnx", "tenonnx_array"},
    "tenonnx_cuda": {"tenonnx", "tenonnx_array"},
    **{plugin: {"tenonnx"} for plugin in PLUGINS},
    "tenonnx_adapters": {"tenonnx", "tenonnx_serve"},
    "tenonnx_check": {"tenonnx", "tenonnx_bench"},
    "tenonnx_serve": {"tenonnx", "tenonnx_generate"},
    **{
        plugin: {"tenonnx", "tenonnx_array"}
        for plugin in ("tenonnx_contrib", "tenonnx_jax", "tenonnx_quant", "tenonnx_torch")
    },
}
"""Packages that a package may import besides itself."""

ORDER = (
    *("process", "weights", "graph", "formats", "planning", "plugins", "interface"),
    *("as_onnxruntime", "plan_cache", "segments", "cli", "testing"),
)
"""The runtime's packages: each may import those before it."""

PARTS = {part: set(ORDER[:number]) for number, part in enumerate(ORDER)}

PUBLIC_MODULES = {
    "tenonnx",
    "tenonnx.as_onnxruntime",
    "tenonnx.formats.convert",
    "tenonnx.formats.load",
    "tenonnx.graph",
    "tenonnx.graph.affine",
    "tenonnx.graph.dtypes",
    "tenonnx.graph.functions",
    "tenonnx.graph.inference",
    "tenonnx.graph.near_misses",
    "tenonnx.graph.shape_checks",
    "tenonnx.graph.sizes",
    "tenonnx.graph.traits",
    "tenonnx.hookspecs",
    "tenonnx.plan_cache.compiling",
    "tenonnx.planning.differences",
    "tenonnx.planning.device_arrays",
    "tenonnx.process.cores",
    "tenonnx.process.interruption",
    "tenonnx.provider",
    "tenonnx.segments",
    "tenonnx.segments.delegate",
    "tenonnx.segments.grouping",
    "tenonnx.weights.digest",
}
"""Modules of the runtime that a plug-in may import."""

COMMAND_MODULES = {
    f"tenonnx.cli.{name}"
    for name in (
        *("arguments", "explanation", "failures", "feeds", "memory", "model_tables", "opening"),
        *("output", "results", "smoke", "state", "timing"),
    )
} | {"tenonnx.cli", "tenonnx.errors"}
"""Modules that a plug-in with subcommands may import besides."""

CORE_NEEDS = {
    "google",  # protobuf's exception, which onnx raises
    "ml_dtypes", "numpy", "onnx", "onnx_ir", "platformdirs", "pluggy",
}  # fmt: skip
COMMAND_NEEDS = CORE_NEEDS | {"click", "rich", "typer"}
KIT_NEEDS = CORE_NEEDS | {"hypothesis", "pytest"}
"""Packages of others that the runtime, its command line and the test kit may import."""

LARGEST_CYCLE = 4
"""Modules that import each other in a ring, lazily or for their types: the array of
``tenonnx_array.standard`` and the functions that it has as methods."""

BEHIND_LOWERING = (
    *("interface/profiling", "interface/assigned"),
    *(
        f"planning/{name}"
        for name in (
            *(
                "arena",
                "node_errors",
                "blas",
                "bound",
                "codegen",
                "codegen_control",
                "compound",
                "control",
            ),
            *("on_devices", "plan", "program", "quiet", "spans", "writing"),
        )
    ),
)
"""Modules that know a program, and not the graph that it was made of."""

KERNELS = {"jit", "kernels"}
"""Packages of ``tenonnx_cpu`` whose functions are compiled, or compile them."""

ABOVE = {
    ("tenonnx_cpu.jit.threads.memory", "tenonnx_cpu.threading_config"),
}
"""Modules of the provider that ``jit`` may import: the number of threads."""

MAX_FILE = 400
MEDIAN_FILE = 130
MAX_BODY = 40

BIG_FILES: dict[str, str] = {}
BIG_FUNCTIONS: dict[str, str] = {}
"""Exceptions: path, or path and function, to the reason why it is better in one piece."""


OF_THE_REPOSITORY = {
    *("docs", "import_costs", "kernel_listing", "layering", "retired_words", "site", "tasks"),
    *("cold_start", "concurrency", "lowest", "other_systems", "private_parts", "release"),
}
"""Tests of no one package."""


def sources(*packages: str) -> list[Path]:
    return sorted(path for name in packages for path in PACKAGES[name].rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield every module that a file imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            assert node.module is not None
            yield node.module
            if node.module in PACKAGES:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_picture_of_a_nodes_way_is_of_modules() -> None:
    text = (ROOT / "docs/architecture.md").read_text()
    (picture,) = re.findall(r"^```text way\n(.*?)^```$", text, re.M | re.S)
    stages = re.findall(r"^ (\w+)", picture, re.M)
    assert stages == ["load", "place", "lower", "fuse", "select", "generate", "capture", "replay"]
    boxes = re.findall(r"\[([^\]]*)\]", picture)
    assert len(boxes) > len(stages)
    assert not set(boxes) - imports().keys()


def test_nothing_behind_lowering_imports_onnx_ir() -> None:
    for name in BEHIND_LOWERING:
        assert "onnx_ir" not in set(imported(PACKAGES["tenonnx"] / f"{name}.py")), name


def test_every_package_has_a_layer() -> None:
    assert PACKAGES.keys() == LAYERS.keys()


def project_of(folder: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    return project["project"]


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_products_require_the_distributions_of_their_layer(product: Path) -> None:
    project = project_of(product)
    assert project["name"].replace("-", "_") == product.name
    assert project["version"] == project_of(ROOT)["version"]
    extras = project.get("optional-dependencies", {}).values()
    listed = [entry for found in (project["dependencies"], *extras) for entry in found]
    names = {re.split(r"[^\w.-]", entry)[0].replace("-", "_") for entry in listed}
    packages = {path.parent.name for path in product.glob("src/*/__init__.py")}
    below = set[str]().union(*(LAYERS[package] for package in packages))
    assert names & LAYERS.keys() == below - packages


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_downwards_only(package: str) -> None:
    allowed = LAYERS[package] | {package}
    for path in sources(package):
        others = {module.split(".")[0] for module in imported(path)} & LAYERS.keys()
        assert others <= allowed, f"{path} imports {others - allowed}"


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return the modules that each module imports, inside functions and for type checkers too."""
    paths = {
        ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        ): path
        for folder in PACKAGES.values()
        for path in folder.rglob("*.py")
    }
    found = {}
    for module, path in paths.items():
        names = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= inner & paths.keys() if inner <= paths.keys() else {*inner, node.module}
        found[module] = names & paths.keys() - {module}
    return found


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    found, ahead = set[str](), [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_cycles_of_imports_are_small() -> None:
    graph = imports()
    after = {module: reached(module, graph) for module in graph}
    cycles = {
        frozenset(other for other in after[module] if module in after[other])
        for module in graph
        if module in after[module]
    }
    assert {cycle for cycle in cycles if len(cycle) > LARGEST_CYCLE} == set()


def is_kernel(module: str) -> bool:
    package, *inner = module.split(".")
    return package == "tenonnx_cpu" and not KERNELS.isdisjoint(inner)


def test_kernels_import_nothing_from_above() -> None:
    above = {
        (module, other)
        for module, others in imports().items()
        for other in others
        if is_kernel(module) and other.startswith("tenonnx_cpu.") and not is_kernel(other)
    }
    assert above <= ABOVE, sorted(above)


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_the_runtime_import_downwards_only(part: str) -> None:
    for path in sorted((PACKAGES["tenonnx"] / part).rglob("*.py")):
        found = {m.split(".")[1] for m in imported(path) if m.startswith("tenonnx.")}
        others = found & PARTS.keys() - {part}
        assert others <= PARTS[part], f"{path} imports {others - PARTS[part]}"


@pytest.mark.parametrize("package", sorted(PLUGINS))
def test_plugins_use_the_public_api(package: str) -> None:
    hooks = (PACKAGES[package] / "__init__.py").read_text()
    allowed = PUBLIC_MODULES | (COMMAND_MODULES if "register_commands" in hooks else set())
    for module, others in imports().items():
        if module.split(".")[0] != package:
            continue
        strange = {name for name in others if name.split(".")[0] == "tenonnx"} - allowed
        assert not strange, f"{module} imports {strange}"
    for path in sources(package):
        hidden = {name for name in imported(path) if name.startswith("tenonnx._")}
        assert not hidden, f"{path} imports {hidden}"


def test_the_core_knows_no_array_library_but_numpy() -> None:
    for path in sources("tenonnx"):
        parts = path.relative_to(PACKAGES["tenonnx"]).parts
        names_typer = "cli" in parts or path.name == "hookspecs.py"
        needs = KIT_NEEDS if "testing" in parts else CORE_NEEDS
        needs = COMMAND_NEEDS if names_typer else needs
        found = {module.split(".")[0] for module in imported(path)}
        strange = found - sys.stdlib_module_names - needs - {"tenonnx"}
        assert not strange, f"{path} imports {strange}"


def test_every_public_name_resolves() -> None:
    stub = ast.parse((PACKAGES["tenonnx"] / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module or "" for node in imports for alias in node.names}
    assert set(tenonnx.__all__) == set(names)
    for name, module in names.items():
        assert getattr(tenonnx, name) is getattr(importlib.import_module(module), name)
    assert len(set(tenonnx.__all__)) == len(tenonnx.__all__)
    assert set(tenonnx.__all__) <= set(dir(tenonnx))
    assert tenonnx.__version__[0].isdigit()
    with pytest.raises(AttributeError, match="module 'tenonnx' has no attribute 'Sesion'"):
        tenonnx.Sesion  # noqa: B018 - the look-up is what fails


Function = ast.FunctionDef | ast.AsyncFunctionDef


def body_lines(function: Function) -> int:
    """Return a function's lines without signature, docstring and the functions inside it.

    A kernel's signature is its operator's schema, a docstring is no code, and a function inside
    another counts for itself.
    """
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    lines = {
        line for node in body for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for node in ast.walk(function):
        if isinstance(node, Function) and node is not function:
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


@functools.cache
def lengths() -> dict[str, int]:
    """Return how many lines each source file has."""
    return {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in sources(*PACKAGES)
    }


def big_files() -> set[str]:
    return {path for path, lines in lengths().items() if lines > MAX_FILE}


def big_functions() -> set[str]:
    return {
        f"{path.relative_to(ROOT)}::{node.name}"
        for path in sources(*PACKAGES)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, Function) and body_lines(node) > MAX_BODY
    }


def test_files_are_short() -> None:
    assert big_files() == BIG_FILES.keys()


def test_the_median_file_is_short() -> None:
    assert statistics.median(lengths().values()) <= MEDIAN_FILE


def test_tests_lie_with_the_package_that_they_are_of() -> None:
    """At the top of ``tests`` are those of the runtime's modules and of the whole repository."""
    modules = {path.stem for path in (PACKAGES["tenonnx"]).glob("*.py")}
    found = {path.stem.removeprefix("test_") for path in ROOT.glob("tests/test_*.py")}
    assert found - modules == OF_THE_REPOSITORY


def test_no_two_files_of_tests_have_one_name() -> None:
    """Their folders are no packages: pytest imports each by its name alone."""
    folders = [ROOT / "tests", *(product / "tests" for product in PRODUCTS)]
    names = Counter(path.name for folder in folders for path in folder.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_are_short() -> None:
    assert big_functions() == BIG_FUNCTIONS.keys()
