"""The parts of a library, and the object file of each, kept under a digest of its source."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba

from tenonnx.weights.digest import digest
from tenonnx.weights.trusted import open_trusted, write_trusted
from tenonnx_cpu.jit.aot import pool_functions
from tenonnx_cpu.jit.aot.sources import digest_of, folders_of, module_of, name_of, require_founded
from tenonnx_cpu.jit.code import building
from tenonnx_cpu.jit.code.cpu import target
from tenonnx_cpu.jit.code.symbols import binary_interface
from tenonnx_cpu.jit.compiling import Kernel
from tenonnx_cpu.jit.packages import OWN, Package
from tenonnx_cpu.jit.threads import thread_pool
from tenonnx_cpu.jit.vectors import shared


class Part(NamedTuple):
    """A part of a library.

    Attributes:
        name: A kernel's name, or that of a module and ``shared``.
        path: Where its object file is, or is to be.
        make: Returns the object file's content.
        functions: Symbols by which other parts need it; empty for a kernel.
        is_first: Whether every library has it.
    """

    name: str
    path: Path
    make: Callable[[], bytes]
    functions: tuple[bytes, ...] = ()
    is_first: bool = False

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel."""
        return not self.functions and not self.is_first

    def is_there(self) -> bool:
        """Return whether its object file is."""
        try:
            os.close(open_trusted(self.path))
        except OSError:
            return False
        return True

    def compile(self) -> None:
        """Write its object file.

        Raises:
            Unlinkable: It calls what kernels may not.
            OSError: It cannot be written.
        """
        write_trusted(self.path, self.make())


def all_parts(folder: Path, release: str, package: Package = OWN) -> Iterator[Part]:
    """Yield all parts of a library for the CPU that this process compiles for.

    Args:
        folder: Where their objects are.
        release: The release that it is installed with; empty for none.
        package: Whose kernels it has.

    Raises:
        Unfounded: A kernel imports what it may not.
    """
    chosen = target()
    assert chosen is not None, "a process that compiles knows for what"
    made_by = f"{compiler()} {os.environ.get('NUMBA_OPT')} {binary_interface()}"
    made_by += digest_of(building.__file__)

    def path(name: str, source: str) -> Path:
        return folder / chosen.kind / f"{name}-{digest(source, made_by)[:16]}.o"

    kernels = declared(package)  # which imports what they share
    identity = "identity"
    make = partial(building.identity_object, release)
    yield Part(identity, path(identity, release), make, is_first=True)
    name = "pool_table" if package == OWN else "pool_calls"
    table = path(name, digest_of(pool_functions.__file__))
    yield Part(name, table, getattr(pool_functions, name), is_first=True)
    for file, functions in sorted(shared.GROUPS.items()):
        if file == thread_pool.__file__ and package != OWN:
            continue
        owner = package if file.startswith(os.path.join(package.root, "")) else OWN
        name = f"{name_of(file, owner)}.shared"
        yield Part(
            name,
            path(name, digest_of(file, owner)),
            partial(building.shared_object, file),
            tuple(each.name.encode() for each in functions),
            is_first=any(each.is_exported for each in functions),
        )
    for name, kernel in kernels.items():
        source = digest_of(kernel.function.__code__.co_filename, package)
        make = partial(building.kernel_object, kernel, name)
        yield Part(name, path(name, source), make)


def declared(package: Package = OWN) -> dict[str, Kernel]:
    """Import all modules of kernels; return what they declare by name: ``norm.norms.softmax``.

    Raises:
        Unfounded: One imports what it may not.
    """
    found: dict[str, Kernel] = {}
    for folder in folders_of(package):
        for path in sorted(Path(folder).glob("*.py")):
            require_founded(str(path), package)
            if path.name.startswith("_"):
                continue
            name = name_of(str(path), package)
            made = vars(importlib.import_module(module_of(str(path), package))).items()
            found |= {f"{name}.{own}": each for own, each in made if isinstance(each, Kernel)}
    return found


def compiler() -> str:
    """Return what compiles, and its version."""
    return f"numba {numba.__version__}, llvmlite {llvmlite.__version__}"
