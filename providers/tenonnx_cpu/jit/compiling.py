"""Compiling kernels: their argument types, the flags they share, and the disk cache."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import llvmlite.binding as llvm
import numba
from numba import types
from numba.core import caching
from numba.core.compiler_lock import global_compiler_lock

from tenonnx.weights.trusted import make_folder, open_trusted
from tenonnx_cpu.jit.code import building, code_object, numba_target
from tenonnx_cpu.jit.code.cache import cache_folder, code_path, source_stamp
from tenonnx_cpu.jit.code.code_object import ENTRY
from tenonnx_cpu.jit.code.cpu import target
from tenonnx_cpu.jit.code.entry import make_entry
from tenonnx_cpu.jit.code.naming import name_by_content
from tenonnx_cpu.jit.code.sources import ROOT, module_of
from tenonnx_cpu.jit.threads import parallel_for
from tenonnx_cpu.jit.threads.parallel_for import FASTMATH

if not code_object.SUPPORTED and (_asked := target()) is not None:
    # numba reads its variables anew whenever one of them has changed.
    os.environ["NUMBA_CPU_NAME"] = _asked.level.name
    os.environ["NUMBA_CPU_FEATURES"] = _asked.features
    numba.config.reload_config()

Type: TypeAlias = Any
"""One of numba's types, which has none itself."""
f32, f64 = types.float32, types.float64
i8, i16, i32, i64 = types.int8, types.int16, types.int32, types.int64
u8, u16, u32 = types.uint8, types.uint16, types.uint32
size = types.intp
boolean = types.boolean


def In(dtype: Type, ndim: int, layout: str = "C") -> Type:  # noqa: N802 - it names a type
    """An array that is read: aligned, writeable or not, and contiguous unless layout is "A"."""
    return types.Array(dtype, ndim, layout, readonly=True)


def Out(dtype: Type, ndim: int) -> Type:  # noqa: N802
    """An array that is written: C-contiguous and aligned."""
    return types.Array(dtype, ndim, "C")


class Contract(NamedTuple):
    """The conditions on a kernel's arguments, and who checks them: the kernel checks no shape.

    If one does not hold, numpy's kernel runs instead, and reports the error. ``tests/guard`` breaks
    every contract, and finds a kernel that then reads or writes beyond its arrays.

    Attributes:
        plan: Conditions on constants and attributes, checked once.
        launch: Conditions on dtypes, shapes and strides, checked before a capture.
        values: Conditions on the numbers in inputs, checked in each run: by the kernel, which then
            refuses (``Launch.refusal``), or by the launch, which is then not captured.
        captured: Whether launches are.
        addressed: Whether it gets addresses instead of arrays.
    """

    plan: str = ""
    launch: str = ""
    values: str = ""
    captured: bool = True
    addressed: bool = False


class Kernel:
    """A function that is compiled for the argument types it names, and for no others.

    Args:
        function: What to compile.
        signature: Its arguments' types. A tuple of types is one argument of the function, a tuple,
            and as many of a call.
        contract: What must hold of them; ``None`` if they are not arrays.
        entry: Makes a module with what CPython calls, of a name and of what numba compiled.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: tuple[Type, ...],
        contract: Contract | None = None,
        entry: Callable[[str, Any], Any] = make_entry,
    ) -> None:
        self.function = function
        self.contract = contract
        self._entry = entry
        self.signature = tuple(
            types.Tuple(kind) if isinstance(kind, tuple) else kind for kind in signature
        )
        self._compiled: Callable[..., Any] | None = None

    def compile(self, name: str = "") -> Callable[..., Any]:
        """Load it from the disk cache, or compile it; return what to call.

        Args:
            name: What its module calls it, if that is not the function's own name.
        """
        with global_compiler_lock:
            if self._compiled is None:
                parallel_for.start()
                name = name or self.function.__name__
                self._compiled = self._builtin(name) if code_object.SUPPORTED else self.dispatcher()
            return self._compiled

    def _builtin(self, name: str) -> Callable[..., Any]:
        """Return the code object's entry as a function of CPython's."""
        path = code_path(self.function.__code__.co_filename, name)
        found = code_object.find(path, [ENTRY])
        return code_object.builtin(name, (found or self._build(name, path))[ENTRY])

    def keep(self, name: str) -> None:
        """Compile it into the disk cache, unless it is there, and do not load it."""
        path = code_path(self.function.__code__.co_filename, name)
        with global_compiler_lock:
            if not os.path.exists(path):
                self._build(name, path)

    def _build(self, name: str, path: str) -> dict[str, int]:
        dispatcher = helper(self.function)
        dispatcher.compile(self.signature)
        compiled = dispatcher.overloads[self.signature]
        module = compiled.library.whole(compiled.fndesc.mangled_name)
        building.optimize(module)
        # By itself: a kernel that is inlined into its entry is slower.
        entry = llvm.parse_assembly(str(self._entry(name, compiled)))
        building.optimize(entry)
        module.link_in(entry)
        return building.build(module, [ENTRY], path)

    def dispatcher(self) -> Callable[..., Any]:
        """Return numba's own way to call it, and have numba keep it."""
        options = {"error_model": "numpy", "fastmath": set(FASTMATH), "no_cfunc_wrapper": True}
        dispatcher = numba.njit(nogil=True, **options)(name_by_content(self.function))
        dispatcher._cache = _Cache(self.function)
        dispatcher.compile(self.signature)
        dispatcher.disable_compile()

        def call(*given: Any) -> None:
            values = iter(given)
            dispatcher(*(_next(kind, values) for kind in self.signature))

        return call


def _next(kind: Type, values: Iterator[Any]) -> Any:
    """Take as many of a call's arguments as make one of a type."""
    if isinstance(kind, types.BaseTuple):
        return tuple(next(values) for _ in kind)
    return next(values)


def kernel(
    signature: tuple[Type, ...], contract: Contract
) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare that a function is a kernel, which Python calls.

    ``@kernel((In(f32, 1), Out(f32, 1), size), Contract(launch="y is as long as x"))``: it gets
    arrays whose memory is as the signature says (nobody checks more than their number of
    dimensions: callers do), holds no GIL, and neither raises nor returns anything.
    """
    return lambda function: Kernel(function, signature, contract)


def declared() -> dict[str, Kernel]:
    """Import all modules of kernels; return what they declare by name: ``norm.norms.softmax``."""
    found: dict[str, Kernel] = {}
    for path in sorted(Path(ROOT).glob("*/kernels/[!_]*.py")):
        name = f"{path.parts[-3]}.{path.stem}"
        made = vars(importlib.import_module(module_of(name))).items()
        found |= {f"{name}.{own}": each for own, each in made if isinstance(each, Kernel)}
    return found


def helper(function: Callable[..., Any]) -> Any:
    """Decorate a function that kernels call; compiled into each of them."""
    options = {"error_model": "numpy", "fastmath": set(FASTMATH)}
    return numba_target.njit(**options)(name_by_content(function))


def pasted(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for parts of a kernel: numba compiles it as part of its caller."""
    return numba_target.njit(inline="always")(name_by_content(function))


def inlined(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for small functions that LLVM must inline, in loops it vectorizes."""
    options = {"error_model": "numpy", "fastmath": set(FASTMATH), "forceinline": True}
    return numba_target.njit(**options)(name_by_content(function))


class _Locator(caching._CacheLocator):
    """A kernel's place in ``cache_folder``, under the digest of all of its source.

    numba's own locators look at the file of the function alone, not at what it calls.
    """

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = file

    def get_cache_path(self) -> str:
        return cache_folder()

    def ensure_cache_path(self) -> None:
        make_folder(cache_folder())

    def get_source_stamp(self) -> str:
        return source_stamp(self._py_file)

    def get_disambiguator(self) -> str:
        # Versions side by side, as two environments have them, keep a file each.
        return f"{self._line}-{self.get_source_stamp()[:12]}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Files(caching.IndexDataCacheFile):
    """numba's files, which it unpickles: only trusted ones, and whatever is damaged is none."""

    def _load_index(self) -> Any:
        try:
            os.close(open_trusted(self._index_path))
            return super()._load_index()
        except Exception:  # a damaged pickle raises anything
            return {}

    def _load_data(self, name: str) -> Any:
        try:
            os.close(open_trusted(self._data_path(name)))
            return super()._load_data(name)
        except Exception as error:
            raise OSError(str(error)) from error  # which numba takes for a file that is gone


class _Cache(caching.FunctionCache):
    """A function cache that does without a folder it cannot read or write."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file.__class__ = _Files

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with contextlib.suppress(OSError):
            return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)
