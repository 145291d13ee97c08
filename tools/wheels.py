"""Builds and checks what is released: ``python -m tools.wheels --output dist``.

A source distribution; from that, a wheel for any machine; from that, one with kernels for each
architecture, whose kernels are compiled here, whatever machine this is. Then the source and the
wheel of each distribution in ``plugins``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from zipfile import ZipFile

from tools.backend import ROOT, backend

# pip's tag for Linux with a C library that has all functions that kernels call.
SYSTEM = "manylinux_2_17_{0}.manylinux2014_{0}"

MOST_BYTES = 10_000_000

MOST_SOURCE_BYTES = 2_000_000

# Target CPUs that wheels have no kernels for unless asked to: a further set, of 1.5 million bytes,
# would be over `MOST_BYTES`. An installation from source compiles them. Zen 4 and 5 take those
# without bfloat16, Cascade and Cooper Lake those of `x86-64-v4`, whose products of bytes alone are
# slower.
LEFT_OUT = frozenset(
    ["x86-64-v4+avx512vnni+avx512vbmi+avx512bf16", "x86-64-v4+avx512vnni", "x86-64-v2"]
)

# Further packages for tests of kernels.
TOOLS = ("hypothesis", "pytest", "scipy")

# The folders from which tests import: not this tree's packages.
TESTS = "tests tests/operators"

# Tests of kernels, of many kinds and quick.
TRIED = tuple(
    f"tests/cpu/test_{name}.py"
    for name in ("norms", "reductions", "topk", "jit_pool", "rotary", "byte_dense", "trees")
)

# qemu's names for processors with little more than a target CPU's features.
EMULATED = {
    "armv8-a": "cortex-a53",
    "armv8-a+dotprod": "neoverse-n1",
    "armv8-a+dotprod+i8mm": "max,sve=off",  # with SVE, OpenBLAS raises flags for no result
}

INSTALLED = """
import importlib.util, sys
from tenonnx_cpu.jit import library
assert importlib.util.find_spec("numba") is None, "numba is installed"
found = library.current() and library.find()
sys.exit(None if found and found.like else "the kernels that are installed are not used")
"""


def main() -> None:
    """Build everything, and check it."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0], allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("dist"), help="a folder (dist)")
    parser.add_argument(
        "--kind", nargs="+", default=[], help="these target CPUs (all that are released)"
    )
    parser.add_argument(
        "--arm-python",
        type=Path,
        help="what tools.emulated makes; without one, kernels for aarch64 are not run",
    )
    parser.add_argument(
        "tests",
        nargs="*",
        default=TRIED,
        help="what pytest is given for each target CPU, behind -- (quick tests of many kernels)",
    )
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = build_source(given.output)
        plain = build_plain(source, Path(folder))
        wheels = [plain, *build_compiled(plain, Path(folder), given.kind)]
    for wheel in (*wheels, *build_products(given.output)):
        check(wheel)
    for wheel in wheels[1:]:
        if platform.machine() in wheel.name:
            try_installed(wheel, given.tests)
        elif given.arm_python:
            try_emulated(wheel, given.arm_python.absolute(), given.tests)
        else:
            print(f"{wheel.name} is not tried: --arm-python names none", file=sys.stderr)


def build_source(output: Path) -> Path:
    """Build the source distribution, and make sure of its size."""
    source = _source_of(ROOT, "from tools import backend", output)
    check_size(source, MOST_SOURCE_BYTES)
    return source


def _source_of(project: Path, backend: str, output: Path) -> Path:
    build = f"import sys; {backend}; print(backend.build_sdist(sys.argv[1]))"
    run = [sys.executable, "-c", build, str(output.absolute())]
    name = subprocess.run(run, cwd=project, check=True, stdout=subprocess.PIPE, text=True).stdout
    return output / name.splitlines()[-1]


def build_products(output: Path) -> Iterator[Path]:
    """Yield the wheel of each distribution beside the runtime, built from its source alone."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(output)]
    for file in sorted(ROOT.glob("plugins/*/pyproject.toml")):
        source = _source_of(file.parent, "from setuptools import build_meta as backend", output)
        subprocess.run([*pip, str(source)], check=True)
        yield from output.glob(f"{source.name.removesuffix('.tar.gz')}-*.whl")


def build_plain(source: Path, folder: Path) -> Path:
    """Build the wheel for any machine from the source distribution alone, and beside it."""
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(source.parent)]
    unpacked = folder / source.name.removesuffix(".tar.gz")
    subprocess.run(
        [*pip, str(unpacked)], env=os.environ | {backend.BUILD_VARIABLE: "0"}, check=True
    )
    (plain,) = source.parent.glob(f"{unpacked.name}-py3-none-any.whl")
    return plain


def build_compiled(plain: Path, folder: Path, chosen: Iterable[str]) -> list[Path]:
    """Compile kernels for every target CPU, and add them to the plain wheel."""
    backend.find_packages()
    from tenonnx_cpu.jit.code.cpu import KINDS, parse

    found: dict[str, dict[str, Path]] = {}
    for kind in chosen or (kind for kind in KINDS if kind not in LEFT_OUT):
        print(kind, file=sys.stderr)
        architecture = parse(kind).level.architecture
        release = plain.name.split("-")[1]
        found.setdefault(architecture, {})[kind] = backend.build_library(kind, release, folder)
    return [
        backend.with_kernels(plain, {"tenonnx_cpu": kinds}, SYSTEM.format(name))
        for name, kinds in found.items()
    ]


def check(wheel: Path) -> None:
    """Make sure of a wheel's size, of what it says of its files, and of its code."""
    with ZipFile(wheel) as file:
        names = file.namelist()
        listed = {
            row.split(",")[0]
            for name in names
            if name.endswith("/RECORD")
            for row in file.read(name).decode().splitlines()
        }
        require(sorted(listed) == sorted(names), f"{wheel.name} lists other files than it has")
    check_size(wheel, MOST_BYTES)
    kinds = kinds_of(wheel)
    require(bool(kinds) != wheel.name.endswith("-any.whl"), f"{wheel.name} has kernels: {kinds}")
    print(f"{wheel.name} has kernels for {', '.join(kinds) or 'no processor'}", file=sys.stderr)


def check_size(file: Path, most: int) -> None:
    """End if a file that is released has grown beyond a limit."""
    size = file.stat().st_size
    print(f"{file.name}: {size:,} bytes", file=sys.stderr)
    require(size <= most, f"{file.name} has {size:,} bytes, more than {most:,}")


def try_installed(wheel: Path, tests: Sequence[str]) -> None:
    """Install a wheel where no numba is, and try it for every target CPU it can."""
    from tenonnx_cpu.jit.code.cpu import lacks, parse

    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "venv", "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        pip = [str(python), "-m", "pip", "install", "-q", str(wheel), *TOOLS]
        subprocess.run(pip, check=True)
        for kind in kinds_of(wheel):
            if missing := ", ".join(lacks(parse(kind))):
                print(f"{kind} is not tried: this processor lacks {missing}", file=sys.stderr)
                continue
            run(python, kind, Path(folder), tests)


def try_emulated(wheel: Path, python: Path, tests: Sequence[str]) -> None:
    """Test a wheel for every target CPU on another Python, with its dependencies installed."""
    with tempfile.TemporaryDirectory() as folder:
        with ZipFile(wheel) as file:
            file.extractall(Path(folder, "packages"))
        for kind in kinds_of(wheel):
            run(python, kind, Path(folder), tests)


def kinds_of(wheel: Path) -> list[str]:
    """Return the target CPUs of a wheel's kernels."""
    with ZipFile(wheel) as file:
        return sorted(Path(name).stem for name in file.namelist() if name.endswith(".so"))


def run(python: Path, kind: str, folder: Path, tests: Sequence[str]) -> None:
    """Classify digits and run tests, with kernels of a target CPU."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("TENONNX_", "PYTHON"))}
    variables |= {
        "TENONNX_CACHE_DIR": str(folder / kind / "cache"),
        "TENONNX_PROCESSOR": kind,
        "QEMU_CPU": EMULATED.get(kind, "max"),
        "PYTHONPATH": str(folder / "packages"),
    }
    here = [str(ROOT / name) if ROOT.joinpath(name).exists() else name for name in tests]
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={TESTS}"]
    for arguments in (
        ["-c", INSTALLED],
        [str(ROOT / "examples" / "digits" / "classify.py")],
        [*pytest, "--rootdir", str(ROOT), *here],
    ):
        print(f"{python} {kind}: {arguments[-1]}", file=sys.stderr)
        subprocess.run([str(python), "-P", *arguments], env=variables, cwd=folder, check=True)


def require(right: bool, otherwise: str) -> None:
    """End with a message unless something is right."""
    if not right:
        raise SystemExit(otherwise)


if __name__ == "__main__":
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    main()
