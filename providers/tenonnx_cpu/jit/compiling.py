"""Compiling kernels: their argument types, the flags they share, and the disk cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numba
from numba import types
from numba.core import caching

from tenonnx_cpu.jit import pool, shared
from tenonnx_cpu.jit.cache import cache_folder, source_stamp
from tenonnx_cpu.jit.naming import name_by_content
from tenonnx_cpu.jit.pool import FASTMATH

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


class Kernel:
    """A function that is compiled for the argument types it names, and for no others."""

    def __init__(self, function: Callable[..., Any], signatures: tuple[tuple[Type, ...], ...]):
        self.function = function
        self.signatures = signatures
        self._compiled: Callable[..., Any] | None = None

    def compile(self) -> Callable[..., Any]:
        """Loads it from the disk cache, or compiles it; returns what to call."""
        if self._compiled is None:
            shared.load()
            pool.start()
            dispatcher = helper(self.function, nogil=True)
            dispatcher._cache = _Cache(self.function)
            for signature in self.signatures:
                dispatcher.compile(signature)
            dispatcher.disable_compile()
            self._compiled = dispatcher
        return self._compiled


def kernel(*signatures: tuple[Type, ...]) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorates a function that Python calls: ``@kernel((In(f32, 1), Out(f32, 1), size))``.

    It gets arrays whose memory is as the signature says (nobody checks: callers do), holds no
    GIL, and neither raises nor returns anything.
    """
    return lambda function: Kernel(function, signatures)


def helper(function: Callable[..., Any], *, nogil: bool = False) -> Any:
    """Decorates a function that kernels call; compiled into each of them."""
    return numba.njit(
        nogil=nogil,
        error_model="numpy",
        fastmath=set(FASTMATH),
        no_cpython_wrapper=not nogil,
        no_cfunc_wrapper=True,
    )(name_by_content(function))


def pasted(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for what a kernel consists of: numba compiles it as part of its caller."""
    return numba.njit(inline="always")(name_by_content(function))


def inlined(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for small functions that LLVM must inline, in loops it vectorises."""
    return numba.njit(
        error_model="numpy",
        fastmath=set(FASTMATH),
        forceinline=True,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
    )(name_by_content(function))


class _Locator(caching._CacheLocator):
    """Puts a kernel into ``cache_folder``, and knows it again by all of its source.

    numba's own locators look at the file of the function alone, not at what it calls.
    """

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._py_file = file

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return source_stamp(Path(self._py_file))

    def get_disambiguator(self) -> str:
        # Versions side by side, as two environments have them, keep a file each.
        return f"{self._line}-{self.get_source_stamp()[:12]}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class _Cache(caching.FunctionCache):
    """A function cache that does without a folder it cannot read or write."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with contextlib.suppress(OSError):
            return super().load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)
