"""The declaration of kernels: the types of their arguments, and the conditions on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from numba import types

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.code.entry import make_entry
from tenonnx_cpu.jit.threads.parallel_for import FASTMATH

# One of numba's types, which has none itself.
Type: TypeAlias = Any
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
        self.entry = entry
        self.signature = tuple(
            types.Tuple(kind) if isinstance(kind, tuple) else kind for kind in signature
        )


def kernel(
    signature: tuple[Type, ...], contract: Contract
) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare that a function is a kernel, which Python calls.

    ``@kernel((In(f32, 1), Out(f32, 1), size), Contract(launch="y is as long as x"))``: it gets
    arrays whose memory is as the signature says (nobody checks more than their number of
    dimensions: callers do), holds no GIL, and neither raises nor returns anything.
    """
    return lambda function: Kernel(function, signature, contract)


def helper(function: Callable[..., Any]) -> Any:
    """Decorate a function that kernels call; compiled into each of them."""
    options = {"error_model": "numpy", "fastmath": set(FASTMATH)}
    return numba_target.njit(**options)(function)


def pasted(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for parts of a kernel: numba compiles it as part of its caller."""
    return numba_target.njit(inline="always")(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Like ``helper``, for small functions that LLVM must inline, in loops it vectorizes."""
    options = {"error_model": "numpy", "fastmath": set(FASTMATH), "forceinline": True}
    return numba_target.njit(**options)(function)
