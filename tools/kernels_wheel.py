"""Makes a wheel of compiled kernels: ``python tools/kernels_wheel.py --output dist``.

Whoever installs it needs no numba, and no time to compile. It is of this version of tenonnx and of
Python, and of some kinds of processor (docs/deploying.md).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tenonnx
from tenonnx_cpu.jit.code.cache import COMPILER
from tenonnx_cpu.jit.code.cpu import INSTALLED, KINDS, VARIABLE, architecture, installed, target

PROCESSORS = ("x86-64-v4+avx512vnni+avx512vbmi", "x86-64-v4+avx512vnni", "x86-64-v3")

PYPROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
description = "The kernels of tenonnx {version}, compiled for {kinds}"
license = "MIT"
requires-python = "=={python}.*"
dependencies = ["tenonnx=={version}"]

[tool.setuptools]
packages = ["{package}"]
package-data = {{ {package} = ["*"] }}
"""

SETUP = """
[bdist_wheel]
python_tag = {tag}
plat_name = manylinux2014_{machine}
"""


def main() -> None:
    """Compiles all kernels for every kind, and writes the wheel."""
    parser = argparse.ArgumentParser(
        description="Makes a wheel of compiled kernels; see docs/deploying.md.", allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=Path("dist"), help="a folder (dist)")
    parser.add_argument(
        "--processor",
        nargs="+",
        default=PROCESSORS,
        metavar="KIND",
        help=f"kinds of processor, the best first ({' '.join(PROCESSORS)})",
    )
    given = parser.parse_args()
    if installed() is not None:
        parser.error(f"{INSTALLED} is installed, and would be found instead of compiled: remove it")
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder, "cache")
        for kind in given.processor:
            warm_up(kind, cache)
        write_project(Path(folder), cache / "numba" / "tenonnx", given.processor)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", given.output, folder]
        subprocess.run(pip, check=True)


def warm_up(kind: str, cache: Path) -> None:
    """Compiles all kernels for a kind of processor."""
    os.environ[VARIABLE] = kind
    target.cache_clear()
    if target() is None:
        raise SystemExit(f"kernels for {kind} are to be compiled on such a processor")
    given = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    environment = given | {"TENONNX_CACHE_DIR": str(cache), "TENONNX_JIT": "1"}
    subprocess.run([sys.executable, "-m", "tenonnx", "warmup"], env=environment, check=True)


def write_project(folder: Path, images: Path, kinds: Sequence[str]) -> None:
    """Writes a project that holds a folder of images."""
    package = folder / INSTALLED
    package.mkdir()
    (package / "__init__.py").write_text('"""Compiled kernels of tenonnx."""\n')
    (package / KINDS).write_text("\n".join(kinds))
    for path in (images / COMPILER, *images.glob("*.image")):
        shutil.copy(path, package)
    text = PYPROJECT.format(
        name=INSTALLED.replace("_", "-"),
        package=INSTALLED,
        version=tenonnx.__version__,
        kinds=", ".join(kinds),
        python=".".join(map(str, sys.version_info[:2])),
    )
    (folder / "pyproject.toml").write_text(text)
    tag = sys.implementation.cache_tag.replace("cpython-", "cp")
    (folder / "setup.cfg").write_text(SETUP.format(tag=tag, machine=architecture()))


if __name__ == "__main__":
    main()
