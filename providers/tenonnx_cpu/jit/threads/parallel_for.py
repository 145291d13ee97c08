"""The one thread pool: loops over tasks that the thread pool's threads share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.threads import thread_pool
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import I32, I64, POINTER, Builder

# Sums may be reordered and products fused; NaN and infinity mean what they mean elsewhere.
FASTMATH = frozenset({"nsz", "reassoc", "contract"})


def parallel(body: Callable[..., Any]) -> Any:
    """Decorate the body of a loop: called, it runs for every task on the pool.

    The body is ``body(arguments, task, worker)``; the loop is ``body(arguments, tasks, threads)``:

    * ``arguments``: a tuple, handed on.
    * ``tasks``: how many; ``task`` counts them. Every thread begins with a share of adjacent
      tasks, the same in every loop if possible: its inputs are then in its own cache if the loop
      before wrote them. Threads that are done take what others have left, so tasks may
      differ in length, and several per thread keep all busy to the end.
    * ``threads``: how many at most, the calling one among them; 1 never enters the pool.
      ``worker`` is less, and no two that run at a time have the same one.

    The body must not raise; its result is dropped.

    A loop may end before all tasks are done, and later ones of the same kernel before any is: when
    the run is to be stopped (``look``). So tasks take some hundredths of a second at most, and what
    a kernel reads that a loop should have written must not be where it reads or writes next.
    """
    dispatcher = numba_target.njit(error_model="numpy", fastmath=set(FASTMATH))(body)

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
        region = ir.LiteralStructType([ir.ArrayType(SHARE, MOST), I64, given.type])
        worker = _worker(context, builder.module, compiled, region)
        with builder.goto_entry_block():
            state = builder.alloca(region)  # numba's own way fills it with zeros
        state.align = LINE
        for most in (count, I64(MOST)):
            limit = builder.select(builder.icmp_signed("<", most, limit), most, limit)
        team = builder.select(builder.icmp_signed(">", limit, I64(1)), limit, I64(1))
        for position, value in ((THREADS, team), (GIVEN, given)):
            builder.store(value, _field(builder, state, position))
        _deal(builder, state, count, team)
        shares = builder.ptrtoint(state, I64)
        thread_pool.BEGIN.call(builder, [shares, team])
        with builder.if_else(builder.icmp_signed(">", limit, I64(1))) as (many, one):
            with many:
                thread_pool.SHARE.call(builder, [builder.ptrtoint(worker, I64), shares, limit])
            with one:
                builder.call(worker, [builder.bitcast(state, POINTER), I64(0)])
        return context.get_dummy_value()

    return generate


# A region's fields: every thread's share of the tasks, how many threads, and the arguments.
SHARES, THREADS, GIVEN = 0, 1, 2

# A share's fields: the next task, the one after the last, whether a thread has it.
NEXT, STOP, CLAIMED = 0, 1, 2

LINE = 64
# A share is on a cache line of its own.
SHARE = ir.ArrayType(I64, LINE // 8)

# Threads at most that share a loop.
MOST = 128


def _deal(builder: Any, state: Any, count: Any, team: Any) -> None:
    """Cut the tasks into a share of adjacent ones for each thread."""
    with cgutils.for_range(builder, team) as each:
        ends = (each.index, builder.add(each.index, I64(1)))
        first, stop = (builder.sdiv(builder.mul(end, count), team) for end in ends)
        for position, value in ((NEXT, first), (STOP, stop), (CLAIMED, I64(0))):
            builder.store(value, _field(builder, state, SHARES, each.index, position))


def _lent(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return arrays, or a tuple of them, without the counters of their references.

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
    """Return a function that does a share of a region's tasks, then what is left of others."""
    function = ir.Function(module, thread_pool.ENTRY, module.get_unique_name("tenonnx_worker"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    state = builder.bitcast(function.args[0], region.as_pointer())
    team = builder.load(_field(builder, state, THREADS))
    arguments = builder.load(_field(builder, state, GIVEN))
    worker = _claim(builder, state, team, function.args[1])
    with cgutils.for_range(builder, team) as others:
        share = _wrapped(builder, builder.add(worker, others.index), team)
        stop = builder.load(_field(builder, state, SHARES, share, STOP))
        following = _field(builder, state, SHARES, share, NEXT)
        take, work, done = (builder.append_basic_block(name) for name in ("take", "work", "done"))
        builder.branch(take)
        builder.position_at_end(take)
        task = builder.atomic_rmw("add", following, I64(1), "monotonic")
        builder.cbranch(builder.icmp_signed("<", task, stop), work, done)
        builder.position_at_end(work)
        given = [arguments, task, worker]
        context.call_internal_no_propagate(builder, compiled.fndesc, compiled.signature, given)
        _look(builder, state, team, task, stop)
        builder.branch(take)
        builder.position_at_end(done)
    builder.ret_void()
    return function


def _look(builder: Any, state: Any, team: Any, task: Any, stop: Any) -> None:
    """Look whether to stop, after a task that is not all that there is to do."""
    more = builder.icmp_signed("<", builder.add(task, I64(1)), stop)
    shared_by_several = builder.icmp_signed(">", team, I64(1))
    with builder.if_then(builder.or_(more, shared_by_several)):
        thread_pool.LOOK.call(builder, [builder.ptrtoint(state, I64), team])


@v.inline_llvm(types.void)
def look(builder: Builder) -> None:
    """Look whether to stop, between two loops of one task: those to come then do nothing."""
    thread_pool.LOOK.call(builder, [I64(0), I64(0)])


def _claim(builder: Any, state: Any, team: Any, number: Any) -> Any:
    """Return the share of a thread's number, or the next one that nobody has.

    There is one: no more threads come than there are shares.
    """
    before = builder.block
    look, claimed = (builder.append_basic_block(name) for name in ("look", "claimed"))
    first = builder.urem(number, team)
    builder.branch(look)
    builder.position_at_end(look)
    share = builder.phi(I64)
    share.add_incoming(first, before)
    flag = _field(builder, state, SHARES, share, CLAIMED)
    held = builder.atomic_rmw("xchg", flag, I64(1), "monotonic")
    share.add_incoming(_wrapped(builder, builder.add(share, I64(1)), team), look)
    builder.cbranch(builder.icmp_signed("==", held, I64(0)), claimed, look)
    builder.position_at_end(claimed)
    return share


def _wrapped(builder: Any, number: Any, team: Any) -> Any:
    """Return a number below twice the team's, modulo the team's."""
    within = builder.icmp_signed("<", number, team)
    return builder.select(within, number, builder.sub(number, team))


def _field(builder: Any, struct: Any, *path: Any) -> Any:
    indices = [I32(part) if isinstance(part, int) else part for part in path]
    return builder.gep(struct, [I32(0), *indices], inbounds=True)
