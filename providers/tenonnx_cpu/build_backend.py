"""A build backend: setuptools', with libraries of compiled kernels added to the wheel.

It is tenonnx's own (``tools/backend.py``), and that of plug-ins with kernels: their
``pyproject.toml`` names packages with kernels as entry points in the group ``tenonnx.kernels``.

A wheel with kernels is the plain one, which is for any machine, with a library for each target CPU
(in a folder ``kernels`` of the package) and the name of their system. One that is built where it is
installed, by ``pip install .``, has that for the processor at hand. An editable install has it in
the user's cache, as ``tenonnx warmup`` builds it; so do the objects that it is linked from lie
there, and the next installation compiles only what has changed.

``TENONNX_PROCESSOR`` names other target CPUs, as in ``x86-64-v3,x86-64-v4``, and
``TENONNX_BUILD_KERNELS=0`` leaves kernels out. So does whatever prevents that they are built, which
one line then tells; what they are built with cannot be left out by then, and pip fails where it is
not to be had.

Nothing of this project is imported at the top: it is not installed yet when it is built itself.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import platform
import re
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
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

BUILD_VARIABLE = "TENONNX_BUILD_KERNELS"

# As in `tenonnx_cpu.jit.packages`.
KERNEL_ENTRIES = "tenonnx.kernels"

# This distribution, and its extra with what kernels are built with.
OWN, EXTRA = "tenonnx", "jit"

# Those that have kernels, of 64 bits and with glibc, for which numba has wheels.
SYSTEMS = ("linux-x86_64", "linux-aarch64")
# The last version of Python that numba has wheels for.
NEWEST = (3, 14)

# C compilers, one of which links as `ziglang` does.
COMPILERS = ("cc", "gcc", "clang")

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
    """Return what kernels are built with: numba, what the project imports, and a linker.

    That is none where a C compiler is, which links as well: zig's is a download of 90 MB.
    """
    if why_none():
        return []
    project = _project()
    extra = project.get("optional-dependencies", {}).get(EXTRA)
    needed = [*project["dependencies"], *(_required() if extra is None else extra)]
    if any(map(shutil.which, COMPILERS)):
        return [each for each in needed if not each.startswith("ziglang")]
    return needed


def _required() -> Iterator[str]:
    """Yield what an installed tenonnx has in its extra."""
    for each in metadata.requires(OWN) or ():
        requirement, _, condition = each.partition(";")
        if re.search(rf"extra == ['\"]{EXTRA}['\"]", condition):
            yield requirement.strip()


def _described() -> dict[str, Any]:
    return tomllib.loads(Path("pyproject.toml").read_text("utf-8"))


def _project() -> dict[str, Any]:
    project: dict[str, Any] = _described()["project"]
    return project


def packages() -> list[str]:
    """Return the packages with kernels of the project in the working directory."""
    announced = _project().get("entry-points", {}).get(KERNEL_ENTRIES, {})
    return list(dict.fromkeys(value.partition(".")[0] for value in announced.values()))


def build_editable(
    wheel_directory: str,
    config_settings: Settings = None,
    metadata_directory: str | None = None,
) -> str:
    """Build what links to these sources, and kernels into the user's cache."""
    made: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    _attempt(installed=False)
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
    if not (built := _attempt(installed=True)):
        return plain.name
    made = with_kernels(plain, built, _platform())
    plain.unlink()
    return made.name


# Libraries, by their package and target CPU.
Built = Mapping[str, Mapping[str, Path]]


def _attempt(*, installed: bool) -> Built:
    """Build kernels; return them, of packages that have some. Say what it costs if there are none.

    Args:
        installed: Whether they are installed, or in the user's cache.
    """
    try:
        if reason := why_none():
            raise LookupError(reason)
        find_packages()
        release, kinds = _release() if installed else "", wanted_kinds()
        return {
            name: {kind: build_library(kind, release, package=name) for kind in kinds}
            for name in packages()
        }
    except Exception as error:  # numba and LLVM raise anything, and the plain wheel does
        say(f"{error}")
        return {}


def why_none() -> str:
    """Return why no kernels are compiled here; nothing if they are."""
    if os.environ.get(BUILD_VARIABLE) == "0":
        return f"{BUILD_VARIABLE} is 0"
    if sysconfig.get_platform() not in SYSTEMS or platform.libc_ver()[0] != "glibc":
        return f"they are compiled for {' and '.join(SYSTEMS)} with glibc"
    if sys.implementation.name != "cpython" or sys.version_info[:2] > NEWEST:
        return f"they are compiled on CPython up to {'.'.join(map(str, NEWEST))}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "they are compiled for Python with its global lock"
    return ""


def say(reason: str) -> None:
    """Say that there are no kernels, and what that costs."""
    project = _project()["name"]
    print(f"{project} is built without compiled kernels: {reason}; {COST}", file=sys.stderr)


def wanted_kinds() -> list[str]:
    """Return the target CPUs that are asked for; by default this process's alone.

    Raises:
        LookupError: This processor is of none.
    """
    from tenonnx_cpu.jit.code import cpu

    if asked := os.environ.get(cpu.VARIABLE):
        return [cpu.parse(kind.strip()).kind for kind in asked.split(",")]
    if found := cpu.target():
        return [found.kind]
    raise LookupError(f"this processor is none of {', '.join(cpu.KINDS)}")


def _release() -> str:
    """Return the release that libraries fit: tenonnx's, which is built now or installed."""
    project = _project()
    return str(project["version"]) if project["name"] == OWN else metadata.version(OWN)


def build_library(
    kind: str,
    release: str,
    folder: Path | None = None,
    kernels: Iterable[str] = (),
    package: str = "tenonnx_cpu",
) -> Path:
    """Build a library of kernels for a target CPU; return its path.

    Args:
        kind: The target CPU.
        release: The release of tenonnx that it is installed with; empty for none.
        folder: Where it and what it is linked from are; by default in the user's cache.
        kernels: What it has at least; all if none is named.
        package: Whose kernels.

    Raises:
        RuntimeError: One of them fails.
    """
    from tenonnx_cpu.jit import library
    from tenonnx_cpu.jit.aot.build import build
    from tenonnx_cpu.jit.code.cpu import parse
    from tenonnx_cpu.jit.packages import package_of

    for name in list(os.environ):
        if name.startswith("NUMBA_"):  # which might have others compiled
            del os.environ[name]
    target, whose = parse(kind), package_of(package)
    path = Path(library.cached_path(target, whose))
    if folder is not None:
        path = folder / path.name
    if release:
        path = path.with_name(f"{path.stem}-{release}{path.suffix}")
    errors = build(target, str(path), _show, list(kernels), release, whose)
    for name, error in errors.items():
        if error:
            raise RuntimeError(f"{name}: {error}")
    return path


def _show(name: str, done: float) -> None:
    print(f"{done:4.0%} compiling {name}", file=sys.stderr)


def find_packages() -> None:
    """Have the project's packages found where they are; setuptools is told where that is."""
    told = _described().get("tool", {}).get("setuptools", {}).get("packages", {})
    for name in told.get("find", {}).get("where", ["src", "."]):
        if (path := str(Path(name).absolute())) not in sys.path and Path(path).is_dir():
            sys.path.insert(0, path)
    importlib.invalidate_caches()


def _platform() -> str:
    return re.sub(r"\W", "_", sysconfig.get_platform())


def with_kernels(plain: Path, built: Built, system: str) -> Path:
    """Write a wheel with kernels beside one without; return its path.

    Args:
        plain: The one without.
        built: The libraries.
        system: What pip calls the system: one tag, or several with dots between.
    """
    from tenonnx_cpu.jit.code.cpu import INSTALLED, SUFFIX

    folder = Path(INSTALLED).name
    made = plain.with_name(plain.name.replace("-none-any.whl", f"-none-{system}.whl"))
    with ZipFile(plain) as source, ZipFile(made, "w", ZIP_DEFLATED, compresslevel=9) as target:
        files = {entry: source.read(entry) for entry in source.infolist()}
        record = next(entry for entry in files if entry.filename.endswith(".dist-info/RECORD"))
        del files[record]
        for entry in files:
            if entry.filename.endswith(".dist-info/WHEEL"):
                files[entry] = _tagged(files[entry].decode(), system).encode()
        for package, kinds in built.items():
            for kind, library in kinds.items():
                entry = ZipInfo(f"{package}/{folder}/{kind}{SUFFIX}", record.date_time)
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
