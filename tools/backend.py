"""The build backend: setuptools', with a library of compiled kernels added to the wheel.

A wheel with kernels is the plain one, which is for any machine, with a library for each target CPU
(``tenonnx_cpu.jit.code.cpu.INSTALLED``) and the name of their system. One that is built where it is
installed, by ``pip install .``, has that for the processor at hand. An editable install has it in
the user's cache, as ``tenonnx warmup`` builds it; so do the objects that it is linked from lie
there, and the next installation compiles only what has changed.

``TENONNX_BUILD_KERNELS=0`` leaves kernels out. So does whatever prevents that they are built, which
one line then tells; what they are built with cannot be left out by then, and pip fails where it is
not to be had.
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
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
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

PACKAGES = ("core", "providers", "plugins")
"""The folders of this project's packages, which compile the kernels."""

SYSTEMS = ("linux-x86_64", "linux-aarch64")
"""Those that have kernels, of 64 bits and with glibc, for which numba has wheels."""
NEWEST = (3, 14)
"""The last version of Python that numba has wheels for."""

COMPILERS = ("cc", "gcc", "clang")
"""C compilers, one of which links as ``ziglang`` does."""

COST = (
    "numpy computes instead, which takes several times as long, until `tenonnx warmup` compiles "
    "kernels, which needs the extra jit"
)

Settings = Mapping[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return what a wheel is built with."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compilers()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return what an editable install is built with."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compilers()]


def _compilers() -> list[str]:
    """Return what kernels are built with: numba, what this project imports, and a linker.

    That is none where a C compiler is, which links as well: zig's is a download of 90 MB.
    """
    if why_none():
        return []
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["jit"]]
    if any(map(shutil.which, COMPILERS)):
        return [each for each in needed if not each.startswith("ziglang")]
    return needed


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build what links to this clone, and kernels into the user's cache."""
    made: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    _attempt("")
    return made


def build_wheel(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build a wheel with kernels for this processor, or say what it costs that there are none."""
    plain = Path(
        wheel_directory,
        build_meta.build_wheel(wheel_directory, config_settings, metadata_directory),
    )
    if (built := _attempt(plain.name.split("-")[1])) is None:
        return plain.name
    kind, library = built
    made = with_kernels(plain, {kind: library}, _platform())
    plain.unlink()
    return made.name


def _attempt(release: str) -> tuple[str, Path] | None:
    """Build kernels; return for which target CPU, and the library. Say what it costs if not."""
    try:
        if reason := why_none():
            raise LookupError(reason)
        kind = best_kind()
        return kind, build_library(kind, release)
    except Exception as error:  # numba and LLVM raise anything, and the plain wheel does
        say(f"{error}")
        return None


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


def build_library(
    kind: str, release: str, folder: Path | None = None, kernels: Iterable[str] = ()
) -> Path:
    """Build a library of kernels for a target CPU; return its path.

    Args:
        kind: The target CPU.
        release: The release that it is installed with; empty for none.
        folder: Where it and what it is linked from are; by default in the user's cache.
        kernels: What it has at least; all if none is named.

    Raises:
        RuntimeError: One of them fails.
    """
    _import_packages()
    from tenonnx_cpu.jit import library
    from tenonnx_cpu.jit.aot.build import build
    from tenonnx_cpu.jit.code.cpu import parse

    for name in list(os.environ):
        if name.startswith("NUMBA_"):  # which might have others compiled
            del os.environ[name]
    target = parse(kind)
    path = Path(library.cached_path(target))
    if folder is not None:
        path = folder / path.name
    if release:
        path = path.with_name(f"{path.stem}-{release}{path.suffix}")
    for name, error in build(target, str(path), _show, list(kernels), release).items():
        if error:
            raise RuntimeError(f"{name}: {error}")
    return path


def _show(name: str, done: float) -> None:
    print(f"{done:4.0%} compiling {name}", file=sys.stderr)


def _import_packages() -> None:
    for name in PACKAGES:
        if (path := str(ROOT / name)) not in sys.path:
            sys.path.insert(0, path)


def _platform() -> str:
    return re.sub(r"\W", "_", sysconfig.get_platform())


def with_kernels(plain: Path, kinds: Mapping[str, Path], system: str) -> Path:
    """Write a wheel with kernels beside one without; return its path.

    Args:
        plain: The one without.
        kinds: Libraries, by their target CPU.
        system: What pip calls the system: one tag, or several with dots between.
    """
    from tenonnx_cpu.jit.code.cpu import INSTALLED, SUFFIX

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
        for kind, library in kinds.items():
            entry = ZipInfo(f"{inside}/{kind}{SUFFIX}", record.date_time)
            entry.external_attr = record.external_attr
            files[entry] = library.read_bytes()
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
