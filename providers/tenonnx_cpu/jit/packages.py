"""The packages that have kernels: this provider's, and those of plug-ins. Imported without numba.

A package with kernels has a library of its own. Its kernels are in folders ``kernels``, at its top
or in folders below. A distribution announces them by an entry point: its name is the domain of
operators, its value the module that calls kernels for these, which is imported when a model has one
of them.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Container, Iterator
from importlib.util import find_spec
from typing import NamedTuple

from tenonnx.errors import PluginError
from tenonnx.process.distributions import EntryPoint, entry_points
from tenonnx_cpu.jit.code.cpu import PACKAGE

# The group of entry points by which distributions announce packages with kernels.
KERNEL_ENTRIES = "tenonnx.kernels"


class Package(NamedTuple):
    """A package with kernels.

    Attributes:
        name: By which it is imported.
        root: Its folder.
    """

    name: str
    root: str


# This provider's.
OWN = Package(os.path.basename(PACKAGE), PACKAGE)


@functools.cache
def package_of(name: str) -> Package:
    """Return a package by its name; do not import it.

    Raises:
        PluginError: There is none.
    """
    if name == OWN.name:
        return OWN
    spec = find_spec(name)
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        raise PluginError(f"{name} has no kernels: it is no package with an __init__.py")
    return Package(name, os.path.dirname(spec.origin))


def plugin_packages() -> list[Package]:
    """Return the packages with kernels that plug-ins have."""
    names = dict.fromkeys(each.package for each in entry_points(KERNEL_ENTRIES))
    return [package_of(name) for name in names if name != OWN.name]


def import_callers(domains: Container[str] | None = None) -> None:
    """Import the modules of plug-ins that call kernels.

    Args:
        domains: Of these operators; all if ``None``.

    Raises:
        PluginError: One cannot be imported; all others have been.
    """
    failed: PluginError | None = None
    for each in _announced():
        if domains is None or each.name in domains:
            try:
                importlib.import_module(each.value)
            except Exception as error:  # a stranger's code may raise anything
                failed = PluginError(
                    f"{each.value} of {each.distribution} {each.version}, which calls the kernels "
                    f"of {each.name}, cannot be imported: {type(error).__name__}: {error}",
                    hint="TENONNX_JIT=0 does without kernels",
                )
                failed.__cause__ = error
    if failed is not None:
        raise failed


def _announced() -> Iterator[EntryPoint]:
    return (each for each in entry_points(KERNEL_ENTRIES) if each.package != OWN.name)
