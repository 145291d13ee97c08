"""The threads that share the loops of kernels: how they are called, wait and sleep.

One thread asks for help at a time, through a word that holds the seats still free (low half) and
the helpers at work (high half). Helpers watch the word for a while, then sleep. The caller
works, too. When nothing is left to do, it takes back the free seats and waits for the helpers at
work: no call waits for a thread that is slow to wake. If the helpers are busy, it works alone.

The code is in LLVM's language, because a small kernel takes little longer than the time from a
call to the helpers' first task: below a microsecond while they watch.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from tenonnx_cpu.jit.code.cpu import compiled_architecture
from tenonnx_cpu.jit.threads import look as looking
from tenonnx_cpu.jit.threads.memory import (
    CALLED,
    CONDITION,
    DATA,
    FIND,
    LOCK,
    MUTEX,
    REST,
    RESUME,
    SIZE,
    SLEEPERS,
    SPINS,
    STARTED,
    WAKE,
    WORD,
)
from tenonnx_cpu.jit.threads.place import at, place, read, write
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.shared import Shared
from tenonnx_cpu.jit.vectors.vector import I32, I64, POINTER, VOID, Builder, Value, call_function

SEATS = 0xFFFFFFFF
AT_WORK = 1 << 32
# Looks at the word between two offers of the core to somebody else.
IMPATIENCE = 4096

# The function that the pool calls: with data, and the thread's number; the caller's is 0.
ENTRY = ir.FunctionType(VOID, [POINTER, I64])


def _pause(b: Builder) -> None:
    """Tell the core that this loop waits."""
    machine = compiled_architecture()
    if machine == "x86_64":
        call_function(b, "llvm.x86.sse2.pause", VOID)
    elif machine in ("aarch64", "arm64"):
        call_function(b, "llvm.aarch64.hint", VOID, I32(1))


def _call_entry(b: Builder, entry: Value, data: Value, number: Value) -> None:
    b.call(b.inttoptr(entry, ENTRY.as_pointer()), [b.inttoptr(data, POINTER), number])


def _help(b: Builder, arguments: Sequence[Value]) -> None:
    """The loop of a pool's thread, which gets its number alone."""
    names = ("watch", "look", "sit", "sat", "idle", "sleep")
    watch, look, sit, sat, idle, sleep = (b.append_basic_block(name) for name in names)
    looking.keep_out(b)
    b.branch(watch)
    b.position_at_end(watch)
    b.branch(look)

    b.position_at_end(look)
    turn = b.phi(I64)
    turn.add_incoming(I64(0), watch)
    word = read(b, WORD, "monotonic")
    b.cbranch(_has_seats(b, word), sit, idle)

    b.position_at_end(sit)
    taken = b.cmpxchg(place(b, WORD), word, b.add(word, I64(AT_WORK - 1)), "seq_cst", "monotonic")
    turn.add_incoming(I64(0), sit)
    b.cbranch(b.extract_value(taken, 1), sat, look)

    b.position_at_end(sat)
    _call_entry(b, read(b, CALLED), read(b, DATA), b.ptrtoint(arguments[0], I64))
    b.atomic_rmw("sub", place(b, WORD), I64(AT_WORK), "seq_cst")
    b.branch(watch)

    b.position_at_end(idle)
    _pause(b)
    following = b.add(turn, I64(1))
    turn.add_incoming(following, idle)
    b.cbranch(b.icmp_signed("<", following, read(b, SPINS, "monotonic")), look, sleep)

    b.position_at_end(sleep)
    _sleep(b)
    b.branch(watch)
    # Nobody comes here: a helper ends with the process.
    b.position_at_end(b.append_basic_block("never"))


def _has_seats(b: Builder, word: Value) -> Value:
    return b.icmp_unsigned("!=", b.and_(word, I64(SEATS)), I64(0))


def _sleep(b: Builder) -> None:
    """Sleep until a seat is free."""
    doze, wait, awake = (b.append_basic_block(name) for name in ("doze", "wait", "awake"))
    call_function(b, "pthread_mutex_lock", I32, at(b, MUTEX))
    b.atomic_rmw("add", place(b, SLEEPERS), I64(1), "seq_cst")
    b.branch(doze)
    b.position_at_end(doze)
    # Whoever asks writes the word first and looks for sleepers then: one of both sees the other.
    b.cbranch(_has_seats(b, read(b, WORD, "seq_cst")), awake, wait)
    b.position_at_end(wait)
    call_function(b, "pthread_cond_wait", I32, at(b, CONDITION), at(b, MUTEX))
    b.branch(doze)
    b.position_at_end(awake)
    b.atomic_rmw("sub", place(b, SLEEPERS), I64(1), "seq_cst")
    call_function(b, "pthread_mutex_unlock", I32, at(b, MUTEX))


def _hire(b: Builder, wanted: Value) -> None:
    """Start helpers up to a number."""
    helper = cgutils.get_or_insert_function(b.module, ir.FunctionType(VOID, [POINTER]), HELP.name)
    entry = b.bitcast(helper, POINTER)
    handle = b.ptrtoint(cgutils.alloca_once(b, I64), I64)
    head, body, done = (b.append_basic_block(name) for name in ("hire", "hired", "staffed"))
    b.branch(head)
    b.position_at_end(head)
    started = read(b, STARTED)
    b.cbranch(b.icmp_signed("<", started, wanted), body, done)
    b.position_at_end(body)
    number = b.add(started, I64(1))
    call_function(b, "pthread_create", I32, handle, I64(0), entry, number)
    write(b, number, STARTED)
    b.branch(head)
    b.position_at_end(done)


def _wake(b: Builder) -> None:
    """Wake helpers that sleep."""
    with b.if_then(b.icmp_signed(">", read(b, SLEEPERS, "seq_cst"), I64(0)), likely=False):
        call_function(b, "pthread_mutex_lock", I32, at(b, MUTEX))
        call_function(b, "pthread_cond_broadcast", I32, at(b, CONDITION))
        call_function(b, "pthread_mutex_unlock", I32, at(b, MUTEX))


def _dismiss(b: Builder) -> None:
    """Take the free seats back and wait for the helpers at work."""
    b.atomic_rmw("and", place(b, WORD), I64(-AT_WORK), "seq_cst")
    before = b.block
    head, body, done = (b.append_basic_block(name) for name in ("leaving", "waits", "left"))
    b.branch(head)
    b.position_at_end(head)
    turn = b.phi(I64)
    turn.add_incoming(I64(1), before)
    busy = b.icmp_unsigned("!=", read(b, WORD), I64(0))
    b.cbranch(busy, body, done)
    b.position_at_end(body)
    _pause(b)
    with b.if_then(b.icmp_unsigned("==", b.urem(turn, I64(IMPATIENCE)), I64(0)), likely=False):
        call_function(b, "sched_yield", I32)
    turn.add_incoming(b.add(turn, I64(1)), b.block)
    b.branch(head)
    b.position_at_end(done)


def _share(b: Builder, arguments: Sequence[Value]) -> None:
    """Have an entry called with some data by up to so many threads, this one among them."""
    entry, data, threading_config = arguments
    own = b.cmpxchg(place(b, LOCK), I64(0), I64(1), "acquire", "monotonic")
    with b.if_else(b.extract_value(own, 1)) as (ours, others):
        with ours:
            most = read(b, SIZE, "monotonic")
            fewer = b.sub(threading_config, I64(1))
            seats = b.select(b.icmp_signed("<", fewer, most), fewer, most)
            _hire(b, seats)
            write(b, entry, CALLED)
            write(b, data, DATA)
            b.atomic_rmw("xchg", place(b, WORD), seats, "seq_cst")
            _wake(b)
            _call_entry(b, entry, data, I64(0))
            _dismiss(b)
            write(b, I64(0), LOCK)
        with others:
            _call_entry(b, entry, data, I64(0))


def _find(b: Builder, arguments: Sequence[Value]) -> None:
    """Write the address of the thread pool's memory to an address."""
    b.store(at(b, 0), b.inttoptr(arguments[0], I64.as_pointer()))


def _rest(b: Builder, arguments: Sequence[Value]) -> None:
    """Look at the word so many times, as a helper does."""

    def look(_turn: Value, carried: list[Value]) -> list[Value]:
        read(b, WORD, "monotonic")
        _pause(b)
        return carried

    v.loop(b, arguments[0], [], look)


HELP = Shared(__file__, "tenonnx_pool_help", [POINTER], _help)
SHARE = Shared(__file__, "tenonnx_pool_share", [I64] * 3, _share)
BEGIN = Shared(__file__, "tenonnx_pool_begin", [I64, I64], looking.begin)
LOOK = Shared(__file__, "tenonnx_pool_look", [I64, I64], looking.look)
Shared(__file__, RESUME, [], looking.resume)
Shared(__file__, WAKE, [I64], looking.wake, exported=True)
Shared(__file__, FIND, [I64], _find, exported=True)
Shared(__file__, REST, [I64], _rest, exported=True)
