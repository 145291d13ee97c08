"""Builds and checks what is released: ``python -m tools.wheels --output dist``.

A source distribution; from that, a wheel for any machine; from that, one with kernels for each
architecture, whose kernels are compiled here, whatever machine this is.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from zipfile import ZipFile

from tools.backend import ROOT, VARIABLE, compile_kind, with_kernels

SYSTEM = "manylinux_2_17_{0}.manylinux2014_{0}"
"""What pip calls Linux with a C library that has all functions that images name."""

MOST_BYTES = 10_000_000

SYMBOLS = re.compile(
    r"_?Py\w+|tenonnx_\w+|pthread_\w+|sched_yield|mem(cpy|move|set)"
    r"|(a?(cos|sin|tan)h?|atan2|ceil|erfc?|exp(2|m1)?|floor|fma|fmod|hypot|ldexp|l?gamma|log(10|1p|2)?"
    r"|nearbyint|pow|rint|round|trunc)f?"
)
"""What images may name: of this project, of CPython, of the C library since glibc 2.17."""


def main() -> None:
    """Builds everything, and checks it."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0], allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("dist"), help="a folder (dist)")
    parser.add_argument(
        "--kind", nargs="+", default=[], help="these kinds of processor (all that are released)"
    )
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = build_plain(given.output, Path(folder))
        wheels = [plain, *build_compiled(plain, Path(folder), given.kind)]
    for wheel in wheels:
        check(wheel)
    own = [wheel for wheel in wheels if platform.machine() in wheel.name]
    for wheel in own or [plain]:
        try_out(wheel)


def build_plain(output: Path, folder: Path) -> Path:
    """Builds the source distribution, and the wheel for any machine from that alone."""
    build = "import sys; from tools import backend; print(backend.build_sdist(sys.argv[1]))"
    run = [sys.executable, "-c", build, str(output.absolute())]
    name = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    source = output / name.splitlines()[-1]
    with tarfile.open(source) as archive:
        archive.extractall(folder, filter="data")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(output)]
    unpacked = folder / source.name.removesuffix(".tar.gz")
    subprocess.run([*pip, str(unpacked)], env=os.environ | {VARIABLE: "0"}, check=True)
    (plain,) = output.glob(f"{unpacked.name}-py3-none-any.whl")
    return plain


def build_compiled(plain: Path, folder: Path, chosen: Iterable[str]) -> list[Path]:
    """Compiles kernels for every kind of processor, and adds them to the plain wheel."""
    from tenonnx_cpu.jit.code.cpu import KINDS, parse

    found: dict[str, dict[str, Path]] = {}
    for kind in chosen or KINDS:
        print(kind, file=sys.stderr)
        architecture = parse(kind).level.architecture
        found.setdefault(architecture, {})[kind] = compile_kind(kind, folder)
    return [with_kernels(plain, kinds, SYSTEM.format(name)) for name, kinds in found.items()]


def check(wheel: Path) -> None:
    """Makes sure of a wheel's size, of what it says of its files, and of its images."""
    with ZipFile(wheel) as file:
        names = file.namelist()
        listed = {
            row.split(",")[0]
            for name in names
            if name.endswith("/RECORD")
            for row in file.read(name).decode().splitlines()
        }
        require(sorted(listed) == sorted(names), f"{wheel.name} lists other files than it has")
        counts: dict[str, int] = {}
        for name in names:
            if name.endswith(".image"):
                kind = name.split("/")[-2]
                counts[kind] = counts.get(kind, 0) + 1
                _check_image(name, file.read(name))
    size = wheel.stat().st_size
    require(size <= MOST_BYTES, f"{wheel.name} has {size:,} bytes, more than {MOST_BYTES:,}")
    require(bool(counts) != wheel.name.endswith("-any.whl"), f"{wheel.name} has {counts} images")
    print(f"{wheel.name}: {size:,} bytes, images: {counts or 'none'}", file=sys.stderr)


def _check_image(name: str, content: bytes) -> None:
    from tenonnx_cpu.jit.code.header import unpack
    from tenonnx_cpu.jit.code.images import FRONT

    _, _, start, whole = FRONT.unpack_from(content)
    require(whole == len(content), f"{name} is not whole")
    header = unpack(memoryview(content)[FRONT.size : start], len(content) - start)
    for symbol in header.outside:
        require(SYMBOLS.fullmatch(symbol) is not None, f"{name} names {symbol}")


def try_out(wheel: Path) -> None:
    """Installs a wheel where nothing else is, and classifies digits with its kernels."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "venv", "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TENONNX_", "PYTHON"))}
        for processor in ("", "x86-64-v3"):
            environment = clean | {"TENONNX_CACHE_DIR": folder, "TENONNX_PROCESSOR": processor}
            for script in ("examples/digits/classify.py", "tools/trying.py"):
                run = [str(python), "-P", str(ROOT / script)]
                subprocess.run(run, env=environment, cwd=folder, check=True)


def require(right: bool, otherwise: str) -> None:
    """Ends with a message unless something is right."""
    if not right:
        raise SystemExit(otherwise)


if __name__ == "__main__":
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    main()
