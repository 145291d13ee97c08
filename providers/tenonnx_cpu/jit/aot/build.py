"""Building a library of kernels: in processes of its own, for any target CPU.

Nothing here imports numba. Object files are kept, so that a library is built again in the time that
the changed kernels take.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tenonnx.errors import Fail
from tenonnx.process.cores import available_cores
from tenonnx.weights.folder import forget_unused
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.code.cpu import Target, target
from tenonnx_cpu.jit.packages import OWN, Package, package_of
from tenonnx_cpu.jit.remarks import NUMBA
from tenonnx_cpu.jit.runtime import KERNELS, full_name, has_numba, jit_mode, split

log = logging.getLogger("tenonnx.jit")

MODULE = "tenonnx_cpu.jit.aot.worker"

# The folder of object files, beside libraries.
OBJECTS = "objects"

# Of processes that compile. They need no threads of numpy's, and no colors in messages of errors,
# which numba makes and drops whenever it looks for the definition that fits.
VARIABLES = {"OPENBLAS_NUM_THREADS": "1", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}

# Hears what has been compiled, and the share of all that is done.
Tell = Callable[[str, float], None]


class BuildError(Fail):
    """A library could not be built."""


class _Ended(Exception):
    """The process that builds ended; its last words."""


def build(
    kind: Target,
    path: str,
    tell: Tell,
    kernels: Sequence[str] = (),
    release: str = "",
    package: Package = OWN,
) -> dict[str, str]:
    """Build a library, from objects that are there and others that are compiled.

    Args:
        kind: The target CPU.
        path: Where the library is to be; objects are in a folder beside it.
        tell: Called after each object that is compiled.
        kernels: Which ones it has at least; all if none is named.
        release: The release of tenonnx that it is installed with, if it is.
        package: Whose kernels it has.

    Returns:
        For every kernel: why it failed, or ``""``. The library lacks those that did.

    Raises:
        BuildError: There is no linker, or the process that builds ends; with its last words.
    """
    order = {
        "kind": kind.kind,
        "folder": os.path.join(os.path.dirname(path), OBJECTS),
        "path": path,
        "kernels": list(kernels),
        "workers": available_cores(),
        "release": release,
        "package": package,
    }
    whose = "" if package == OWN else f"{package.name}: "
    try:
        for answer in _answers(order):
            if "errors" in answer:
                return dict(answer["errors"])
            if "failed" in answer:
                raise BuildError(f"kernels could not be built: {whose}{answer['failed']}")
            tell(answer["name"], answer["done"] / answer["all"])
    except (OSError, _Ended) as error:
        raise BuildError(f"kernels could not be built: {whose}{error}") from None
    raise BuildError(f"kernels could not be built: {whose}the compiler ended before it was done")


def _answers(order: dict[str, Any]) -> Iterator[dict[str, Any]]:
    environment = os.environ | VARIABLES
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    # Safe path: no module of the working directory is taken for numba.
    command = [sys.executable, "-P", "-m", MODULE, json.dumps(order)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=said, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            yield from map(json.loads, process.stdout)
        except BaseException:
            process.kill()
            raise
        if code := process.wait():
            said.seek(0)
            words = said.read().strip().splitlines()
            raise _Ended(words[-1] if words else f"the compiler ended with status {code}")


def warm_up(tell: Tell) -> dict[str, bool]:
    """Build the libraries for this process's target CPU, so that later sessions find them.

    Args:
        tell: See ``build``.

    Returns:
        For every kernel that is declared, whether it is there; nothing if none ever is.

    Raises:
        BuildError: A library cannot be built.
    """
    kind = target()
    if jit_mode() == "0" or kind is None or not library.SUPPORTED:
        return {}
    lacking = dict.fromkeys(each.package for each in KERNELS.values() if each.run is None)
    if lacking and not has_numba():
        raise BuildError("numba is not installed, which compiles kernels", hint=NUMBA)
    for number, name in enumerate(lacking):

        def tell_all(part: str, done: float, before: int = number) -> None:
            tell(part, (before + done) / len(lacking))

        for kernel, error in build_cached(package_of(name), kind, tell_all).items():
            if error:
                log.warning("the kernel %s stays on numpy: %s", kernel, error)
    forget_unused(library.cached_files())
    return {name: each.run is not None for name, each in KERNELS.items()}


def build_cached(
    package: Package, kind: Target, tell: Tell, kernels: Sequence[str] = ()
) -> dict[str, str]:
    """Build a package's library in the user's cache, where this process finds it from now on.

    Args:
        package: The package.
        kind, tell: See ``build``.
        kernels: Full names of those that it has at least, of any packages; all if none is named.

    Returns:
        For every kernel, by its full name: why it failed, or ``""``.

    Raises:
        BuildError: It cannot be built.
    """
    # A name that is none, where all are another package's, has no kernel compiled.
    own = [split(name)[1] if split(name)[0] == package.name else "" for name in kernels]
    errors = build(kind, library.cached_path(kind, package), tell, own, package=package)
    library.forget()
    for each in KERNELS.values():
        each.forget()
    return {full_name(name, package.name): error for name, error in errors.items()}
