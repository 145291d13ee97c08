"""The look by which a thread in a kernel finds that it is to stop.

Between two tasks, the thread that asked for a loop looks at a clock, and every few hundredths of a
second at Python: signals are handled, and ``interrupts.look`` is called. An exception of either
stays pending, nobody takes another task of this loop, loops that the kernel comes to do none at
all, and the kernel's entry returns to Python as calls do that raise.

Each thread has one word of its own: the time from which on it looks. ``NEVER`` is a helper's, and
any thread's of which Python knows that nothing stops it. ``STOPPED`` says that an exception waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from numba.core import cgutils

from tenonnx_cpu.jit.code.cpu import compiled_architecture
from tenonnx_cpu.jit.threads.memory import (
    FORKS,
    KEY,
    LOCAL,
    LOOK,
    ROOM_ROWS,
    ROOM_WORDS,
    ROOMS,
    STOPS,
)
from tenonnx_cpu.jit.threads.place import place, read
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.vector import I8, I32, I64, POINTER, VOID, Builder, Value

NEVER, STOPPED, NOW = I64(-1), I64(1), I64(0)

# Ticks of the clock between two looks: 33 ms at 2 GHz.
X86_PERIOD = 1 << 26

# Bytes from one share of tasks to the next; the number of the next task is the first word.
LINE = 64

# The number of a task that no loop has.
DRAINED = 1 << 62


def _clock(b: Builder) -> tuple[Value, Value]:
    """Return the time, and how long it is from look to look."""
    if compiled_architecture() == "x86_64":
        return v.call_function(b, "llvm.readcyclecounter", I64), I64(X86_PERIOD)
    # Assembly would be for LLVM's parser, of which llvmlite has this machine's alone.
    register = "llvm.read_volatile_register.i64"
    ticks, speed = (
        v.call_function(b, register, I64, b.module.add_metadata([f"{name}_el0"]))
        for name in ("cntvct", "cntfrq")
    )
    return ticks, b.lshr(speed, I64(5))


def _own(b: Builder) -> Value:
    """Return this thread's word."""
    return b.ptrtoint(
        v.call_function(b, "pthread_getspecific", POINTER, read(b, KEY, "monotonic")), I64
    )


def _set_own(b: Builder, word: Value) -> None:
    value = b.inttoptr(word, POINTER)
    v.call_function(b, "pthread_setspecific", I32, read(b, KEY, "monotonic"), value)


def _set_up(b: Builder) -> Value:
    return b.icmp_unsigned("!=", read(b, LOOK, "acquire"), I64(0))


def keep_out(b: Builder) -> None:
    """Have this thread never look, as helpers do not."""
    with b.if_then(_set_up(b)):
        _set_own(b, NEVER)


def begin(b: Builder, arguments: Sequence[Value]) -> None:
    """Before a loop: leaves nothing of it to do if this thread's kernel has been stopped."""
    with (
        b.if_then(b.icmp_signed(">", read(b, STOPS, "monotonic"), I64(0)), likely=False),
        b.if_then(b.icmp_unsigned("==", _own(b), STOPPED)),
    ):
        _drain(b, *arguments)


def look(b: Builder, arguments: Sequence[Value]) -> None:
    """Between two tasks: leaves nothing of the loop to do if this thread is to stop.

    Takes the address of the loop's shares, and how many there are, which may be none.
    """
    with b.if_then(_set_up(b)):
        ticks, _ = _clock(b)
        word = _own(b)
        with b.if_then(b.icmp_unsigned(">=", ticks, word), likely=False):
            with b.if_then(b.icmp_unsigned("!=", word, STOPPED)):
                _ask(b, arguments[1])
            with b.if_then(b.icmp_unsigned("==", _own(b), STOPPED)):
                _drain(b, *arguments)


def _drain(b: Builder, shares: Value, count: Value) -> None:
    with cgutils.for_range(b, count) as each:
        following = b.add(shares, b.mul(each.index, I64(LINE)))
        b.store_atomic(I64(DRAINED), b.inttoptr(following, I64.as_pointer()), "monotonic", 8)


def _ask(b: Builder, count: Value) -> None:
    """Let Python say whether this thread stops, and whether it has to look again."""
    forks = read(b, FORKS)
    held = v.call_function(b, "PyGILState_Ensure", I32)
    rest = cgutils.alloca_once_value(b, I32(0))
    aside = _set_aside(b)
    handled = v.call_function(b, "PyErr_CheckSignals", I32)
    with b.if_then(b.icmp_signed("==", handled, I32(0))):
        function = b.inttoptr(read(b, LOOK), POINTER)
        said = v.call_function(b, "PyObject_CallNoArgs", POINTER, function)
        with b.if_then(cgutils.is_not_null(b, said)):
            b.store(v.call_function(b, "PyObject_IsTrue", I32, said), rest)
            v.call_function(b, "Py_DecRef", VOID, said)
    # The child of a handler that forked has no helpers any more, nor what they were computing.
    forked = b.icmp_signed("!=", forks, read(b, FORKS))
    fine = cgutils.is_null(b, v.call_function(b, "PyErr_Occurred", POINTER))
    lost = b.and_(b.and_(forked, fine), b.icmp_signed(">", count, I64(1)))
    with b.if_then(lost, likely=False):
        _raise(b, "PyExc_RuntimeError", "the process was forked while a kernel ran")
    _put_back(b, *aside)
    failed = cgutils.is_not_null(b, v.call_function(b, "PyErr_Occurred", POINTER))
    v.call_function(b, "PyGILState_Release", VOID, held)
    with b.if_then(failed):
        b.atomic_rmw("add", place(b, STOPS), I64(1), "monotonic")
    ticks, period = _clock(b)
    sleeps = b.icmp_signed(">", b.load(rest), I32(0))
    following = b.select(sleeps, NEVER, b.add(ticks, period))
    _set_own(b, b.select(failed, STOPPED, following))


def _raise(b: Builder, kind: str, message: str) -> None:
    v.call_function(
        b, "PyErr_SetString", VOID, b.load(v.variable(b, kind, POINTER)), v.text(b, message)
    )


def _set_aside(b: Builder) -> tuple[Value, Value]:
    """Take this thread's scratch memory from it, in which the kernel is working.

    A signal's handler may run sessions: they get memory of their own. Returns the memory, and the
    address of its row in the table of threads, both 0 if there is none.
    """
    local = b.inttoptr(read(b, LOCAL), POINTER)
    memory = v.call_function(b, "PyObject_GetAttrString", POINTER, local, v.text(b, "room"))
    with b.if_else(cgutils.is_not_null(b, memory)) as (some, none):
        with some:
            _give(b, v.variable(b, "_Py_NoneStruct", I8))
        with none:
            v.call_function(b, "PyErr_Clear", VOID)
    found = cgutils.alloca_once_value(b, I64(0))
    own = v.call_function(b, "PyThread_get_thread_ident", I64)
    with cgutils.for_range(b, I64(ROOM_ROWS)) as each:
        row = b.add(read(b, ROOMS, "monotonic"), b.mul(each.index, I64(8 * ROOM_WORDS)))
        thread = b.inttoptr(row, I64.as_pointer())
        with b.if_then(b.icmp_signed("==", b.load(thread), own)):
            b.store(I64(-1), thread)
            b.store(row, found)
    return memory, b.load(found)


def _put_back(b: Builder, memory: Value, row: Value) -> None:
    """Give the memory back; an exception that waits stays."""
    with b.if_then(cgutils.is_not_null(b, memory)):
        waiting = [cgutils.alloca_once(b, POINTER) for _ in range(3)]
        v.call_function(b, "PyErr_Fetch", VOID, *waiting)
        # What a handler's sessions worked in goes first: that may call Python, and a handler.
        _give(b, v.variable(b, "_Py_NoneStruct", I8))
        _give(b, memory)
        v.call_function(b, "Py_DecRef", VOID, memory)
        v.call_function(b, "PyErr_Restore", VOID, *map(b.load, waiting))
    with b.if_then(b.icmp_unsigned("!=", row, I64(0))):
        b.store(
            v.call_function(b, "PyThread_get_thread_ident", I64), b.inttoptr(row, I64.as_pointer())
        )


def _give(b: Builder, memory: Value) -> None:
    local = b.inttoptr(read(b, LOCAL), POINTER)
    v.call_function(b, "PyObject_SetAttrString", I32, local, v.text(b, "room"), memory)


def resume(b: Builder, arguments: Sequence[Value]) -> None:
    """In a kernel's entry, which is about to raise: the thread's next kernel is a new one."""
    del arguments
    with b.if_then(b.icmp_unsigned("==", _own(b), STOPPED)):
        _set_own(b, NOW)
        b.atomic_rmw("sub", place(b, STOPS), I64(1), "monotonic")


def wake(b: Builder, arguments: Sequence[Value]) -> None:
    """Have this thread look in its next loop."""
    del arguments
    _set_own(b, NOW)
