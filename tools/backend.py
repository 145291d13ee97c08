"""The build backend: setuptools', with compiled kernels added to the wheel.

A wheel with kernels is the plain one, which is for any machine, with a folder of code objects for
each target CPU (``tenonnx_cpu.jit.code.cpu.INSTALLED``) and the name of their system. One that is
built where it is installed, by ``pip install .``, has those for the processor at hand. Editable
installs have none: ``tenonnx warmup`` compiles them, and tests and benchmarks what they need.

``TENONNX_BUILD_KERNELS=0`` leaves them out. So does whatever prevents that they are compiled, which
one line then tells; what they are compiled with cannot be left out by then, and pip fails where it
is not to be had.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).parents[1]
VARIABLE = "TENONNX_BUILD_KERNELS"

KEPT = ROOT / "build" / "kernels"
"""The folder of compiled kernels for the next wheel of the same sources, and for the tests."""

PACKAGES = ("core", "providers", "plugins")
"""The folders of this project's packages, which compile the kernels."""

SYSTEMS = ("linux-x86_64", "linux-aarch64")
"""Those that have code objects, of 64 bits and with glibc, for which numba has wheels."""
NEWEST = (3, 14)
"""The last version of Python that numba has wheels for."""

COST = (
    "numpy computes instead, which takes several times as long, until `tenonnx warmup` compiles "
    "kernels, which needs the extra jit"
)

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what a wheel is built with: for kernels, numba and what this project imports."""
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    if why_none():
        return needed
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    return [*needed, *project["dependencies"], *project["optional-dependencies"]["jit"]]


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel with kernels for this processor, or says what it costs that there are none."""
    plain = Path(
        wheel_directory,
        build_meta.build_wheel(wheel_directory, config_settings, metadata_directory),
    )
    if reason := why_none():
        say(reason)
        return plain.name
    try:
        kind = best_kind()
        made = with_kernels(plain, {kind: compile_kind(kind, kept_folder())}, _platform())
    except Exception as error:  # numba and LLVM raise anything, and the plain wheel does
        say(f"they could not be compiled ({error})")
        return plain.name
    plain.unlink()
    return made.name


def why_none() -> str:
    """Return why no kernels are compiled here; nothing if they are."""
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE} is 0"
    if sysconfig.get_platform() not in SYSTEMS or platform.libc_ver()[0] != "glibc":
        return f"they are compiled for {' and '.join(SYSTEMS)} with glibc"
    if sys.implementation.name != "cpython" or sys.version_info[:2] > NEWEST:
        return f"they are compiled on CPython up to {'.'.join(map(str, NEWEST))}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "they are compiled for Python with its global lock"
    return ""


def say(reason: str) -> None:
    """Say that there are no kernels, and what that costs."""
    print(f"tenonnx is built without compiled kernels: {reason}; {COST}", file=sys.stderr)


def best_kind() -> str:
    """Return the best target CPU that this processor supports.

    Raises:
        LookupError: It is of none.
    """
    _import_packages()
    from tenonnx_cpu.jit.code.cpu import KINDS, VARIABLE, best_of, parse

    if asked := os.environ.get(VARIABLE):
        return parse(asked).kind
    if found := best_of(map(parse, KINDS)):
        return found.kind
    raise LookupError(f"this processor is none of {', '.join(KINDS)}")


def kept_folder() -> Path:
    """Return the folder of ``KEPT`` for what is compiled from these sources; delete the others.

    What it holds is of the same sources, compiler, Python and processor.
    """
    _import_packages()
    from tenonnx.process.distributions import version
    from tenonnx.weights.digest import digest
    from tenonnx_cpu.jit.code.cache import machine_stamp
    from tenonnx_cpu.jit.code.sources import INDEX, write_index

    with tempfile.TemporaryDirectory() as folder:
        write_index(folder)
        sources = Path(folder, INDEX).read_text("ascii")
    name = digest(f"{machine_stamp(version('numba'))}\n{sources}")[:16]
    for other in KEPT.glob("*"):
        if other.name != name:
            shutil.rmtree(other)
    return KEPT / name


def compile_kind(kind: str, folder: Path, kernels: Iterable[str] = ()) -> Path:
    """Compile kernels for a target CPU, all unless some are named.

    Returns:
        The folder of their code objects, and of an index of their sources.

    Raises:
        RuntimeError: One of them fails.
    """
    _import_packages()
    from tenonnx_cpu.jit.code.ahead import compile_ahead
    from tenonnx_cpu.jit.code.sources import write_index

    for name in list(os.environ):
        if name.startswith(("NUMBA_", "TENONNX_")):  # which might have others compiled
            del os.environ[name]
    target = folder / kind / "tenonnx"
    errors = compile_ahead(kind, target, _show, list(kernels))
    for name, error in errors.items():
        if error:
            raise RuntimeError(f"{name}: {error}")
    write_index(str(target))
    return target


def _show(name: str, done: float) -> None:
    print(f"{done:4.0%} compiling {name}", file=sys.stderr)


def _import_packages() -> None:
    for name in PACKAGES:
        if (path := str(ROOT / name)) not in sys.path:
            sys.path.insert(0, path)


def _platform() -> str:
    return re.sub(r"\W", "_", sysconfig.get_platform())


def with_kernels(plain: Path, kinds: Mapping[str, Path], system: str) -> Path:
    """Write a wheel with code objects beside one without; return its path.

    Args:
        plain: The one without.
        kinds: Folders of code objects, by their target CPU.
        system: What pip calls the system: one tag, or several with dots between.
    """
    from tenonnx_cpu.jit.code.ahead import kept_in
    from tenonnx_cpu.jit.code.cpu import INSTALLED

    package = Path(INSTALLED).parent
    inside = Path(INSTALLED).relative_to(package.parent).as_posix()
    made = plain.with_name(plain.name.replace("-none-any.whl", f"-none-{system}.whl"))
    with ZipFile(plain) as source, ZipFile(made, "w", ZIP_DEFLATED, compresslevel=9) as target:
        files = {entry: source.read(entry) for entry in source.infolist()}
        record = next(entry for entry in files if entry.filename.endswith(".dist-info/RECORD"))
        del files[record]
        for entry in files:
            if entry.filename.endswith(".dist-info/WHEEL"):
                files[entry] = _tagged(files[entry].decode(), system).encode()
        for kind, folder in kinds.items():
            for path in kept_in(folder):
                entry = ZipInfo(f"{inside}/{kind}/{path.name}", record.date_time)
                entry.external_attr = record.external_attr
                files[entry] = path.read_bytes()
        rows = [_row(entry.filename, content) for entry, content in files.items()]
        files[record] = "\n".join([*rows, f"{record.filename},,", ""]).encode()
        for entry, content in files.items():
            target.writestr(entry, content, ZIP_DEFLATED)
    return made


def _tagged(text: str, system: str) -> str:
    """Return what a wheel says of itself, but that it is of a system."""
    lines = [line for line in text.splitlines() if line and not line.startswith(("Tag:", "Root-"))]
    tags = [f"Tag: py3-none-{tag}" for tag in system.split(".")]
    return "\n".join([*lines, "Root-Is-Purelib: false", *tags, ""])


def _row(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"
