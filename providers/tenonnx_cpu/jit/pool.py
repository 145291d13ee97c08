"""The one thread pool: numba's, told apart by layer, and loops over tasks that run on it.

TBB's layer starts a region in a few microseconds, sleeps when idle, may be entered from several
threads and survives a fork. Where it is missing, numba's own ``workqueue`` serves behind a lock.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.ufunc.parallel import _launch_threads

I32, I64 = ir.IntType(32), ir.IntType(64)
POINTER = ir.IntType(8).as_pointer()
VOID = ir.VoidType()

FASTMATH = frozenset({"nsz", "reassoc", "contract"})
"""Sums may be reordered and products fused; NaN and infinity mean what they mean elsewhere."""

_lock = threading.Lock()
_forked = False


@functools.cache
def start() -> str:
    """Starts the pool, unless somebody has; returns the name of its layer."""
    with _lock:
        chosen = numba.config.THREADING_LAYER
        if chosen == "default":
            numba.config.THREADING_LAYER = "tbb" if _load_tbb() else "workqueue"
        try:
            _launch_threads()
        finally:
            numba.config.THREADING_LAYER = chosen
        return str(numba.threading_layer())


def _load_tbb() -> bool:
    """Makes libtbb known to the linker; the wheel of that name puts it beside Python's own."""
    names = {"darwin": "libtbb.12.dylib", "win32": "tbb12.dll"}
    name = names.get(sys.platform, "libtbb.so.12")
    folder = Path(sys.prefix, "Library/bin" if sys.platform == "win32" else "lib")
    for candidate in (str(folder / name), name):
        with contextlib.suppress(OSError):
            ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
            return True
    return False


def guarded(run: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a kernel that any thread may call at any time, whatever the layer.

    Its last argument is how many threads it may use.
    """
    layer = start()
    if layer == "tbb":
        return run

    def locked(*arguments: Any) -> None:
        # GNU's OpenMP ends a forked child that enters a region.
        if arguments[-1] == 1 or (_forked and layer == "omp"):
            run(*arguments[:-1], 1)
        else:
            with _lock:
                run(*arguments)

    return locked


def _after_fork() -> None:
    global _lock, _forked
    _lock, _forked = threading.Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def parallel(body: Callable[..., Any]) -> Any:
    """Decorates the body of a loop: called, it runs for every task on the pool.

    The body is ``body(arguments, task, worker)``; the loop is ``body(arguments, tasks, threads)``:

    * ``arguments``: a tuple, handed on.
    * ``tasks``: how many; ``task`` counts them. Threads take the next one when they are done with
      one, so tasks may differ in length, and several per thread keep all busy to the end.
    * ``threads``: how many at most, the calling one among them; 1 never enters the pool.
      ``worker`` is less, and no two that run at a time have the same one.

    The body must not raise; what it returns is dropped.
    """
    dispatcher = numba.njit(
        error_model="numpy", fastmath=set(FASTMATH), no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(body)

    def region(typing_context: Any, arguments: Any, tasks: Any, threads: Any) -> Any:
        dispatcher.get_call_template((arguments, types.intp, types.intp), {})
        return types.void(arguments, types.intp, types.intp), _generate(dispatcher)

    region.__doc__ = body.__doc__
    region.__name__ = body.__name__
    return intrinsic(region)


def _generate(dispatcher: Any) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given, count, limit = values
        compiled = dispatcher.get_compile_result(
            types.void(signature.args[0], types.intp, types.intp)
        )
        context.active_code_library.add_linking_library(compiled.library)
        region = ir.LiteralStructType([I64, I64, I64, ir.ArrayType(I64, 5), given.type])
        worker = _worker(context, builder.module, compiled, region)
        state = cgutils.alloca_once(builder, region)
        zero = I64(0)
        for position, value in ((0, zero), (1, count), (2, zero), (4, given)):
            builder.store(value, _field(builder, state, position))
        team = builder.select(builder.icmp_signed("<", count, limit), count, limit)
        size = cgutils.alloca_once_value(builder, team)
        data = builder.bitcast(state, POINTER)
        nothing = POINTER.as_pointer()(None)
        with builder.if_else(builder.icmp_signed(">", team, I64(1))) as (many, one):
            with many:
                fork = cgutils.get_or_insert_function(builder.module, FORK, "numba_parallel_for")
                entry = builder.bitcast(worker, POINTER)
                small = builder.trunc(team, I32)
                builder.call(fork, [entry, nothing, size, size, data, zero, zero, small])
            with one:
                builder.call(worker, [nothing, size, size, data])
        return context.get_dummy_value()

    return generate


ENTRY = ir.FunctionType(VOID, [POINTER.as_pointer(), I64.as_pointer(), I64.as_pointer(), POINTER])
"""What a layer calls: arguments, dimensions, steps, data; only the last one matters here."""

FORK = ir.FunctionType(
    VOID,
    [POINTER, POINTER.as_pointer(), I64.as_pointer(), I64.as_pointer(), POINTER, I64, I64, I32],
)
"""What numba's layers offer: entry, and what to call it with; team size last."""


def _worker(context: Any, module: Any, compiled: Any, region: Any) -> Any:
    """Returns a function that takes tasks from a region until none is left."""
    function = ir.Function(module, ENTRY, module.get_unique_name("tenonnx_worker"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    state = builder.bitcast(function.args[3], region.as_pointer())
    one = I64(1)
    total = builder.load(_field(builder, state, 1))
    worker = builder.atomic_rmw("add", _field(builder, state, 2), one, "monotonic")
    arguments = builder.load(_field(builder, state, 4))
    take, work, done = (function.append_basic_block(name) for name in ("take", "work", "done"))
    builder.branch(take)
    builder.position_at_end(take)
    task = builder.atomic_rmw("add", _field(builder, state, 0), one, "monotonic")
    builder.cbranch(builder.icmp_signed("<", task, total), work, done)
    builder.position_at_end(work)
    given = [arguments, task, worker]
    context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, given)
    builder.branch(take)
    builder.position_at_end(done)
    builder.ret_void()
    return function


def _field(builder: Any, struct: Any, position: int) -> Any:
    return builder.gep(struct, [I32(0), I32(position)], inbounds=True)
