"""Options and fixtures of the whole suite: of the runtime's tests and of the products'."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry

# Tests run side by side, and the suite's real models need every column of a product summed in
# one order, which OpenBLAS keeps only while it does not share a product out among threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes says what else the machine does, or that it compiled a kernel. Every run
# draws the same examples, and few; `--hypothesis-profile search` draws others, and more.
settings.register_profile("same", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("search", deadline=None, max_examples=200)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--provider", default="cpu", help="provider that the conformance suite runs on"
    )
    parser.addoption(
        "--form",
        default="",
        choices=["", "proto", "bytes", "path", "all"],
        help="how the conformance suite's models reach the session",
    )
    parser.addoption(
        "--level",
        default="",
        choices=["", "0", "99", "all"],
        help="optimization level of the conformance suite's sessions",
    )
    parser.addoption(
        "--starts",
        type=int,
        default=3,
        help="processes that tests/cpu/test_kernel_library.py starts",
    )
    parser.addoption(
        "--all-kernels", action="store_true", help="fail if tests/cpu leaves a kernel out"
    )
    parser.addoption("--guard-all", action="store_true", help="run every trial of tests/guard")
    parser.addoption(
        "--serve-all",
        action="store_true",
        help="all of what the tests of tenonnx-serve prove, at length",
    )
    parser.addoption(
        "--kernels",
        nargs="+",
        metavar="NAME",
        default=(),
        help="compile these kernels alone, as norm.norms.softmax or tenonnx_vec:squash.squash, "
        "besides those that there are",
    )
    parser.addoption("--guard-rows", metavar="FILE", help="run one rows_*.py of tests/guard alone")


def pytest_configure(config: pytest.Config) -> None:
    """Have tests, whose caches are their own, use the user's library of kernels.

    Where the user's cache cannot be written, it is one beside pytest's.
    """
    from tenonnx.weights.trusted import make_folder
    from tenonnx_cpu.jit import library

    folder = library.kernels_folder()
    try:
        make_folder(folder)
    except OSError:
        folder = str(config.rootpath / ".pytest_cache" / "kernels")
    os.environ[library.KERNELS_VARIABLE] = folder


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build the libraries of kernels, unless they are there: an editable install has built them."""
    from tenonnx_cpu.jit import library
    from tenonnx_cpu.jit.code.cpu import target
    from tenonnx_cpu.jit.packages import OWN, plugin_packages
    from tenonnx_cpu.jit.runtime import has_numba, jit_mode

    option, kind = session.config.option, target()
    if option.collectonly or hasattr(session.config, "workerinput") or jit_mode() == "0":
        return
    missing = [each for each in (OWN, *plugin_packages()) if library.find(each) is None]
    if kind is None or not (missing and library.SUPPORTED and has_numba()):
        return
    from tenonnx_cpu.jit.aot.build import BuildError, build_cached

    writer = session.config.get_terminal_writer()

    def tell(name: str, share: float) -> None:
        writer.write(f"\rkernels are compiled: {share:4.0%} {name:60}", flush=True)

    errors = dict[str, str]()
    try:
        for package in missing:
            errors |= build_cached(package, kind, tell, option.kernels)
        failed = [f"{name}: {error}" for name, error in errors.items() if error]
    except BuildError as error:
        failed = [str(error)]
    writer.line("")
    if failed:
        raise pytest.UsageError("kernels could not be compiled:", *failed)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Share the whole suite out among as many processes as cores, unless ``-n`` says otherwise.

    A file's tests stay together: they share what its fixtures make.
    """
    given, option = config.args_source, config.option
    whole = given is config.ArgsSource.TESTPATHS and not (option.collectonly or option.usepdb)
    is_worker = hasattr(config, "workerinput")  # which is told of no number
    shares = whole and not is_worker and config.pluginmanager.hasplugin("xdist")
    if shares and option.numprocesses is None:
        from tenonnx.process.cores import available_cores

        option.numprocesses = available_cores()
        option.dist = "loadfile"


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Have no garbage collected while tests are: a fifth of the time is spent on that."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Hide the tests from the garbage collector.

    Tens of thousands of them, which live as long as the process, make each collection take half a
    second; tests of memory ask for many.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def kernels() -> str:
    """The folder of libraries of compiled kernels."""
    from tenonnx_cpu.jit.library import kernels_folder

    return kernels_folder()


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folders for derived weights, which are made where a test has some."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def own_cache(
    caches: Iterator[Path],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Derived weights of a test go to a folder of its own.

    Tests are about numpy's kernels, unless ``TENONNX_JIT`` says otherwise. Those in ``tests/cpu``
    and ``tests/guard`` are about compiled ones.
    """
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(next(caches)))
    mode = (
        "1" if request.path.parent.name in ("cpu", "guard") else os.environ.get("TENONNX_JIT", "0")
    )
    monkeypatch.setenv("TENONNX_JIT", mode)


@pytest.fixture
def keeps_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions keep their plans, whatever tests before this one did in the same process."""
    from tenonnx.operators import OperatorTable

    monkeypatch.setenv("TENONNX_PLANS", "1")
    monkeypatch.setenv("TENONNX_JIT", "1")
    # Nor where a program, such as another test, has operators or plug-ins of its own.
    monkeypatch.setattr("tenonnx.custom_ops.GLOBAL", OperatorTable())
    monkeypatch.setattr("tenonnx.plugins.manager._default", None)


@pytest.fixture
def registry(tmp_path: Path) -> WeightRegistry:
    """A registry of the test's own, with an empty folder of side files."""
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.sidefile import SideFiles

    return WeightRegistry(SideFiles(tmp_path / "cache"))


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Put a distribution with one plug-in module on the path, as pip would."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    modules = []

    def put(name: str, code: str, *, distribution: str = "", version: str = "1.0") -> None:
        distribution = distribution or f"tenonnx-{name}"
        module = f"{distribution.replace('-', '_')}_{name}"
        (site / f"{module}.py").write_text(f"import tenonnx\n{code}")
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[tenonnx]\n{name} = {module}\n")
        modules.append(module)
        from tenonnx.process import distributions

        distributions._folders.cache_clear()
        distributions._announced.cache_clear()  # a process finds what was there before it

    yield put
    for module in modules:
        sys.modules.pop(module, None)
