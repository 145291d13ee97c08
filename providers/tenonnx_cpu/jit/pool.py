"""The one thread pool: loops over tasks that the crew's threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit import crew, crew_memory, shared
from tenonnx_cpu.jit.naming import name_by_content

I32, I64 = ir.IntType(32), ir.IntType(64)
POINTER = ir.IntType(8).as_pointer()

FASTMATH = frozenset({"nsz", "reassoc", "contract"})
"""Sums may be reordered and products fused; NaN and infinity mean what they mean elsewhere."""


def start() -> Any:
    """Loads the crew's functions and sets it up; returns its memory."""
    shared.load()
    return crew_memory.start()


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
    )(name_by_content(body))

    def region(typing_context: Any, arguments: Any, tasks: Any, threads: Any) -> Any:
        dispatcher.get_call_template((arguments, types.intp, types.intp), {})
        return types.void(arguments, types.intp, types.intp), _generate(dispatcher)

    region.__doc__ = body.__doc__
    region.__name__ = body.__name__
    return intrinsic(region)


def _generate(dispatcher: Any) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given, count, limit = values
        given = _lent(context, builder, signature.args[0], given)
        compiled = dispatcher.get_compile_result(
            types.void(signature.args[0], types.intp, types.intp)
        )
        context.active_code_library.add_linking_library(compiled.library)
        region = ir.LiteralStructType([I64, I64, I64, I64, ir.ArrayType(I64, 4), given.type])
        worker = _worker(context, builder.module, compiled, region)
        state = cgutils.alloca_once(builder, region)
        few = builder.icmp_signed("<=", count, limit)
        steady = builder.and_(few, builder.icmp_signed("<=", count, I64(BITS)))
        fields = {TAKEN: I64(0), TASKS: count, WORKERS: I64(0), GIVEN: given}
        for position, value in (fields | {STEADY: builder.zext(steady, I64)}).items():
            builder.store(value, _field(builder, state, position))
        limit = builder.select(builder.icmp_signed("<", count, limit), count, limit)
        with builder.if_else(builder.icmp_signed(">", limit, I64(1))) as (many, one):
            with many:
                places = [builder.ptrtoint(pointer, I64) for pointer in (worker, state)]
                crew.SHARE.call(builder, [*places, limit])
            with one:
                builder.call(worker, [builder.bitcast(state, POINTER), I64(0)])
        return context.get_dummy_value()

    return generate


TAKEN, TASKS, WORKERS, STEADY, GIVEN = 0, 1, 2, 3, 5
"""A region's fields: tasks taken, all tasks, who has come, how tasks are taken, arguments."""

BITS = 64
"""Tasks at most that are taken by setting a bit."""


def _lent(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Returns arrays, or a tuple of them, without the counters of their references.

    Every slice counts, and threads that slice the same array would wait for one another. The caller
    of the region keeps its arrays meanwhile.
    """
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        for position, each in enumerate(kind):
            own = builder.extract_value(value, position)
            own = _lent(context, builder, each, own)
            value = builder.insert_value(value, own, position)
    return value


def _worker(context: Any, module: Any, compiled: Any, region: Any) -> Any:
    """Returns a function that takes tasks from a region until none is left."""
    function = ir.Function(module, crew.ENTRY, module.get_unique_name("tenonnx_worker"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    state = builder.bitcast(function.args[0], region.as_pointer())
    one = I64(1)
    total = builder.load(_field(builder, state, TASKS))
    steady = builder.trunc(builder.load(_field(builder, state, STEADY)), ir.IntType(1))
    worker = builder.atomic_rmw("add", _field(builder, state, WORKERS), one, "monotonic")
    arguments = builder.load(_field(builder, state, GIVEN))
    names = ("take", "next", "choose", "work", "done")
    take, following, choose, work, done = (function.append_basic_block(name) for name in names)
    builder.branch(take)
    builder.position_at_end(take)
    builder.cbranch(steady, choose, following)
    builder.position_at_end(following)
    counted = builder.atomic_rmw("add", _field(builder, state, TAKEN), one, "monotonic")
    builder.cbranch(builder.icmp_signed("<", counted, total), work, done)
    builder.position_at_end(choose)
    chosen = _choose(builder, _field(builder, state, TAKEN), total, function.args[1], done)
    builder.branch(work)
    end = builder.block
    builder.position_at_end(work)
    task = builder.phi(I64)
    task.add_incoming(counted, following)
    task.add_incoming(chosen, end)
    given = [arguments, task, worker]
    context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, given)
    builder.branch(take)
    builder.position_at_end(done)
    builder.ret_void()
    return function


def _choose(builder: Any, taken: Any, total: Any, number: Any, done: Any) -> Any:
    """Returns a task that nobody has taken, the same for a thread in every region if it can be.

    What a thread's task reads is then in its own cache if it was so in the region before.
    """
    before = builder.block
    names = ("try", "claim", "failed", "claimed")
    attempt, claim, failed, claimed = (builder.append_basic_block(name) for name in names)
    builder.branch(attempt)
    builder.position_at_end(attempt)
    turn = builder.phi(I64)
    turn.add_incoming(I64(0), before)
    builder.cbranch(builder.icmp_signed("<", turn, total), claim, done)
    builder.position_at_end(claim)
    task = builder.urem(builder.add(number, turn), total)
    bit = builder.shl(I64(1), task)
    held = builder.and_(builder.atomic_rmw("or", taken, bit, "monotonic"), bit)
    builder.cbranch(builder.icmp_unsigned("==", held, I64(0)), claimed, failed)
    builder.position_at_end(failed)
    turn.add_incoming(builder.add(turn, I64(1)), failed)
    builder.branch(attempt)
    builder.position_at_end(claimed)
    return task


def _field(builder: Any, struct: Any, position: int) -> Any:
    return builder.gep(struct, [I32(0), I32(position)], inbounds=True)
