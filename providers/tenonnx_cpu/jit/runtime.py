"""The JIT kernels that there are, and the others. Nothing here imports numba.

Kernels that are installed or in the disk cache are loaded when they are requested, in less than a
millisecond each and without numba, on systems that have code objects of machine code
(``code.code_object``). In place of any other numpy computes, and ``tenonnx warmup`` compiles it.
``TENONNX_JIT`` is for developers:

* ``1`` (default): as said;
* ``compile``: a missing kernel is compiled where it is requested, which waits for it;
* ``0``: none is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from importlib.util import find_spec
from typing import Any, TypeAlias

from tenonnx.by_name import cacheable
from tenonnx.errors import InvalidArgument
from tenonnx_cpu.jit.code import code_object
from tenonnx_cpu.jit.code.cache import cache_folder, code_path, compiler, forget_unused
from tenonnx_cpu.jit.code.cpu import NATIVE, installed, target
from tenonnx_cpu.jit.code.sources import Changed, module_of, source_of
from tenonnx_cpu.jit.threads import memory as pool_memory

log = logging.getLogger("tenonnx.jit")

COMPILE = "compile"
MODES = ("0", "1", COMPILE)

PREBUILT, CACHED, COMPILED, NUMPY = "prebuilt", "cached", "compiled", "numpy"
"""States of a kernel; see ``JitKernel.state``."""

READY = frozenset({PREBUILT, CACHED, COMPILED})

MISSING = "not compiled for this processor"
"""The reason why numpy computes in place of a kernel that ``tenonnx warmup`` would compile."""

NO_NUMBA = "numba is not installed: pip install 'tenonnx[jit]'"

KERNELS: list[JitKernel] = []
"""Every kernel declared, in order of import."""

REOPENED: set[tuple[str, str]] = set()
"""Kernels that plans want which were kept: modules that are imported later declare them, too."""

FILES: dict[tuple[str, str], str] = {}
"""The code objects, by name, of kernels that such plans were kept with. What names them is digested
of sources and of the machine, which those plans depend on: nobody need digest them again."""


Requested: TypeAlias = "dict[JitKernel, bool]"
"""The kernels that a session asked for, and whether each was there."""

ASKING: ContextVar[Requested] = ContextVar("tenonnx_asking", default={})  # noqa: B039 - shared
"""The session whose nodes are being compiled; the default is for kernels without a session."""


class JitKernel:
    """A handle on a compiled kernel, cheap to create and to ask.

    Args:
        module: Which module of kernels has it, ``family.name``; only compiling imports it.
        name: The function in it, decorated with ``compiling.kernel``.

    Attributes:
        run: The compiled function; ``None`` if it is not there. That of a kernel whose code object
            is there and was put off has no value: it is loaded when it is asked for, of the many
            kernels that a plan names or a model asks for, and few runs call.
        state: ``prebuilt``, ``cached`` or ``compiled`` if it is ready, by its origin; ``numpy``
            if it is not; empty before a request.
        reason: Why it is not ready.
        file: The name of the code object that it was loaded from, if it was.
        is_put_off: Whether it is to be loaded when ``run`` is asked for.
    """

    __slots__ = ("file", "is_put_off", "module", "name", "reason", "run", "state")

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name
        self.run: Callable[..., Any] | None = None
        self.state = self.reason = self.file = ""
        self.is_put_off = False
        KERNELS.append(self)
        if (module, name) in REOPENED:
            self.put_off()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle which kernel it is: a plan that has it asks for it again."""
        return handle, (self.module, self.name, self.file)

    def __getattr__(self, name: str) -> Any:
        """Load the kernel; for a slot without a value, which only ``run`` can be."""
        if name != "run":
            raise AttributeError(f"kernels have no {name}")
        # Its file was there; should it be damaged, numpy does the same, and a warning says why.
        if not self._load():
            self.fail(f"{self.file} cannot be loaded")
        return self.run

    @property
    def is_ready(self) -> bool:
        """Whether the kernel is there."""
        return self.state in READY

    def put_off(self) -> None:
        """Ask for the kernel, and if its code object is there load it when it is called."""
        if not self.is_ready and jit_mode() != "0" and has_code_objects():
            for path in self._places():
                if os.path.exists(path):
                    self._put_off(path)
                    break
        self.request()

    def _put_off(self, path: str) -> None:
        self._found_at(path)
        self.is_put_off = True
        del self.run

    def request(self) -> None:
        """Load the kernel, or compile it if ``TENONNX_JIT`` says so; note whether it is there."""
        if not self.is_put_off and self.run is None:
            self._find()
        ASKING.get()[self] = self.is_ready

    def _find(self) -> None:
        mode = jit_mode()
        if mode == "0" or (self.state and mode != COMPILE):
            return
        try:
            if self._is_installed() or self.load():
                return
        except Changed as changed:
            self.fail(changed)
            return
        if mode == COMPILE and has_numba():
            self.compile()
        else:
            self.state, self.reason = NUMPY, MISSING

    def _is_installed(self) -> bool:
        """Put the kernel off if its code object came with this package, as whole as that is."""
        if installed() is None or not has_code_objects():
            return False
        path = self.path()
        if os.path.dirname(path) != installed():
            return False
        FILES[self.module, self.name] = os.path.basename(path)
        self._put_off(path)
        return True

    def path(self) -> str:
        """Return where its code object is, or is to be."""
        return code_path(source_of(self.module), self.name)

    def _places(self) -> Iterator[str]:
        """Yield where its code object may be."""
        if file := FILES.get((self.module, self.name)):
            folders = installed(), cache_folder()
            yield from (os.path.join(folder, file) for folder in folders if folder)
        yield self.path()

    def load(self) -> bool:
        """Load the kernel if its code object is there, which needs no numba."""
        if not self.is_put_off and self.run is not None:
            return True
        return has_code_objects() and self._load()

    def _load(self) -> bool:
        for path in self._places():
            if (found := code_object.find(path, [code_object.ENTRY])) is not None:
                break
        else:
            return False
        if code_object.origin(pool_memory.FIND):
            pool_memory.start()
        self._found_at(path)
        self.run = code_object.builtin(self.name, found[code_object.ENTRY])
        self.is_put_off = False
        return True

    def _found_at(self, path: str) -> None:
        folder, self.file = os.path.split(path)
        self.state, self.reason = PREBUILT if folder == installed() else CACHED, ""

    def compile(self) -> None:
        """Load the kernel from the disk cache, or compile it; a failure is logged, not raised."""
        if self.run is not None:
            return
        try:
            self._compile_twice()
        except Exception as error:  # LLVM and numba raise anything; numpy computes the same
            self.fail(error)

    def _compile_twice(self) -> None:
        if self.load():
            return
        if not has_numba():
            raise ImportError(NO_NUMBA)
        try:
            self._compile()
        except Exception:  # such as memory that there was not
            log.debug("", exc_info=True)
            self._compile()

    def _compile(self) -> None:
        if _forked:
            if error := _compile_ahead([str(self)], lambda *_: None).get(str(self)):
                raise RuntimeError(error)
            if not self.load():
                raise OSError("what a process has compiled is not there")
            return
        # Of two threads that import numba at once, one sees modules that are not complete.
        with _importing:
            module = importlib.import_module(module_of(self.module))
            self.run = module.__dict__[self.name].compile(self.name)
        self.state, self.reason = COMPILED, ""

    def fail(self, reason: object) -> None:
        """Leave what the kernel is for to numpy, and log why."""
        self.state, self.reason = NUMPY, str(reason)
        if self.is_put_off:
            self.is_put_off, self.run = False, None
        log.warning("the JIT kernel %s stays on numpy: %s", self, reason)
        if isinstance(reason, BaseException):
            log.debug("", exc_info=reason)

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@cacheable
def handle(module: str, name: str, file: str = "") -> JitKernel:
    """Return a handle on a kernel by its name, and by that of its code object."""
    if file:
        FILES[module, name] = file
    same = (each for each in KERNELS if each.name == name and each.module == module)
    return next(same, None) or JitKernel(module, name)


def reopen(requested: Mapping[JitKernel, bool]) -> str | None:
    """Ask for kernels again that a plan was kept with; return why it cannot be used.

    Args:
        requested: Them, and whether each was there.
    """
    wanted = {(each.module, each.name) for each, was_ready in requested.items() if was_ready}
    REOPENED.update(wanted)
    for each, was_ready in requested.items():
        each.put_off()
        if each.is_ready != was_ready:
            return f"the kernel {each} {'is there now' if each.is_ready else 'is missing'}"
    return None


_importing = threading.RLock()  # a signal's handler may compile, too

_forked = False
"""Whether another thread may have had numba's locks when this process was forked."""


def _after_fork() -> None:
    global _forked, _importing
    _importing = threading.RLock()
    _forked = code_object.SUPPORTED and "numba" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def jit_mode() -> str:
    """Return ``TENONNX_JIT``.

    Raises:
        InvalidArgument: It is none of the modes.
    """
    mode = os.environ.get("TENONNX_JIT", "1") or "1"
    if mode not in MODES:
        raise InvalidArgument(f"TENONNX_JIT is {mode!r}; expected one of {', '.join(MODES)}")
    return mode


def has_kernels() -> bool:
    """Return whether there may be kernels: compiled ones, or those to be compiled here."""
    mode = jit_mode()
    return mode != "0" and (has_code_objects() or (mode == COMPILE and has_numba()))


@functools.cache
def has_code_objects() -> bool:
    """Return whether there may be code objects, installed or in the cache."""
    return code_object.SUPPORTED and (compiler() is not None or installed() is not None)


@functools.cache
def has_numba() -> bool:
    """Return whether numba is installed; do not import it."""
    return find_spec("numba") is not None


def warm_up(tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
    """Compile kernels now, so that the disk cache has them.

    Args:
        tell: Called before each kernel with its name and the share of all that is done.
        everything: All kernels, and not only those requested so far.

    Returns:
        For every kernel by name, whether it is compiled; nothing if none ever is.
    """
    if jit_mode() == "0" or not (has_numba() or has_code_objects()):
        return {}
    chosen = [kernel for kernel in KERNELS if everything or kernel.state]
    with contextlib.suppress(Changed):
        _compile_ahead([str(kernel) for kernel in chosen if not kernel.load()], tell)
    for kernel in chosen:
        kernel.compile()
    forget_unused()
    return {str(kernel): kernel.run is not None for kernel in chosen}


def _compile_ahead(kernels: Sequence[str], tell: Callable[[str, float], None]) -> Mapping[str, str]:
    """Compile kernels into the cache in worker processes; return errors of what they could not."""
    if not kernels or not code_object.SUPPORTED or not has_numba():
        return {}
    from pathlib import Path

    from tenonnx_cpu.jit.code.ahead import compile_ahead
    from tenonnx_cpu.jit.code.child import Died

    kind = chosen.kind if (chosen := target()) else NATIVE
    try:
        return compile_ahead(kind, Path(cache_folder()), tell, kernels)
    except (Died, OSError) as error:
        return dict.fromkeys(kernels, str(error))
