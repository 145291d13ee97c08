"""A step's kernel called again as it was before, with nothing of Python in between.

For arrays of the shapes that it was captured with, the arguments of a kernel are known but for
where the arrays lie. What is called here is a function of CPython's (``METH_FASTCALL``) whose self
is a list: addresses of functions, what to call for arrays that nothing is captured for, and
captures, each of two arrays. ``capture`` writes them and says what is in them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tenonnx_cpu.jit import layout as at
from tenonnx_cpu.jit.code import numba_target
from tenonnx_cpu.jit.code.entry import DATA, FASTCALL, HEAD, NDIM, SHAPE, STRIDES
from tenonnx_cpu.jit.compiling import Kernel, helper, size
from tenonnx_cpu.jit.threads.memory import RESUME
from tenonnx_cpu.jit.threads.parallel_for import look
from tenonnx_cpu.jit.vectors import vector as v
from tenonnx_cpu.jit.vectors.memory import load_int as word
from tenonnx_cpu.jit.vectors.memory import load_word, store_int
from tenonnx_cpu.jit.vectors.vector import I64, POINTER, VOID, Builder, Value

# Said in place of an object by what is not able to do it.
MISS = -1


@helper
def half(address: Any) -> Any:
    """Return the half of a word at an address."""
    return np.intp(np.uint32(load_word(address)))


@intrinsic
def invoke(typing_context: Any, function: Any, arguments: Any) -> Any:
    """Call a C function at an address with words; return a word, of which half may be nothing."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given = [builder.extract_value(values[1], n) for n in range(len(arguments))]
        kind = ir.FunctionType(I64, [I64] * len(given)).as_pointer()
        return builder.call(builder.inttoptr(values[0], kind), given)

    given = types.UniTuple(types.intp, len(arguments)) if len(arguments) else types.Tuple(())
    return types.intp(types.intp, given), generate


def on_stack(words: int) -> Any:
    """Return what returns the address of so many words that last until its caller returns."""

    @v.inline_llvm(types.intp)
    def memory(b: Builder) -> Value:
        with b.goto_entry_block():
            place = b.alloca(ir.ArrayType(I64, words))
        return b.ptrtoint(place, I64)

    return memory


# Bytes of the beginning of an array's object, as kernels read it.
HEADER = 64

stack_of_slots = on_stack(at.MOST_ARGUMENTS)
stack_of_headers = on_stack(HEADER // 8 * at.MOST_HEADERS)
stack_of_stores = on_stack(at.MOST_OUTPUTS)


@helper
def is_same_dtype(one: Any, other: Any) -> Any:
    """Return whether two dtypes describe the same elements.

    An array that was unpickled, as other processes send it, has a dtype object of its own.
    """
    return one == other or (
        word(one + at.KIND) == word(other + at.KIND)
        and word(one + at.ITEMSIZE) == word(other + at.ITEMSIZE)
    )


@helper
def is_array_as(array: Any, guard: Any, api: Any) -> Any:
    """Return whether an object is an array of the dtype, shape and strides that a guard tells.

    Along an axis of one element, any stride will do.
    """
    if word(array + HEAD - 8) != word(api + 8 * at.NDARRAY):
        return False
    if not is_same_dtype(word(array + at.DESCR), word(guard + 16)):
        return False
    ndim = word(guard + 24)
    if half(array + NDIM) != ndim or not half(array + at.FLAGS) & at.ALIGNED:
        return False
    shape, strides = word(array + SHAPE), word(array + STRIDES)
    wanted = guard + 32
    for axis in range(ndim):
        if word(shape + 8 * axis) != word(wanted + 8 * axis):
            return False
    wanted += 8 * ndim
    for axis in range(ndim):
        if word(strides + 8 * axis) != word(wanted + 8 * axis) and word(shape + 8 * axis) != 1:
            return False
    return True


@helper
def fits(code: Any, things: Any, args: Any, count: Any, api: Any) -> Any:
    """Return whether a capture is of such arguments."""
    if word(code + 8 * at.COUNT) != count:
        return False
    guard = code + 8 * word(code + 8 * at.GUARDS)
    for position in range(count):
        given = word(args + 8 * position)
        if word(guard + 8) == at.IDENTICAL:
            if given != word(things + 8 * word(guard + 16)):
                return False
        elif not is_array_as(given, guard, api):
            return False
        guard += 8 * word(guard)
    return True


@helper
def room_of(least: Any, api: Any) -> Any:
    """Return the address of this thread's scratch memory, or 0 if there is less of it."""
    own = invoke(word(api + 8 * at.THREAD), ())
    row = api + 8 * at.ROOMS
    end = word(row)
    row = word(row + 8)
    for _ in range(end):
        if word(row) == own and word(row + 16) >= least:
            return word(row + 8)
        row += 8 * at.ROOM_WORDS
    return 0


@helper
def drop(stores: Any, count: Any, api: Any) -> None:
    """Let go of what has been made."""
    for n in range(count):
        invoke(word(api + 8 * at.DECREF), (word(stores + 8 * n),))


@helper
def make(code: Any, things: Any, stores: Any, api: Any) -> Any:
    """Make the arrays that are written; return how many, or ``MISS`` if an error was raised."""
    place = code + 8 * word(code + 8 * at.STORES)
    count = word(place)
    place += 8
    for n in range(count):
        thing = word(things + 8 * word(place + 16))
        if word(place + 8) == at.MADE_SMALL:
            invoke(word(api + 8 * at.INCREF), (thing,))
            made = invoke(word(api + 8 * at.EMPTY), (word(place + 24), place + 32, thing, 0))
        else:
            made = invoke(word(api + 8 * at.CALL_NOTHING), (thing,))
        if made == 0:
            drop(stores, n, api)
            return MISS
        store_int(made, stores + 8 * n)
        place += 8 * word(place)
    return count


@v.inline_llvm(types.intp)
def let_go(b: Builder) -> Value:
    """Let other threads have the interpreter; return what takes it back."""
    return b.ptrtoint(v.call_function(b, "PyEval_SaveThread", POINTER), I64)


@v.inline_llvm(types.boolean, types.intp)
def take_back(b: Builder, thread: Value) -> Value:
    """Take the interpreter back; return whether the thread was stopped meanwhile."""
    v.call_function(b, "PyEval_RestoreThread", VOID, b.inttoptr(thread, POINTER))
    stopped = cgutils.is_not_null(b, v.call_function(b, "PyErr_Occurred", POINTER))
    with b.if_then(stopped, likely=False):
        v.call_function(b, RESUME, VOID)
    return stopped


@helper
def lay_out(
    launch: Any, args: Any, stores: Any, room: Any, headers: Any, slots: Any, api: Any
) -> None:
    """Write a kernel's arguments; arrays among them are seen as the capture says."""
    count = word(launch + 16)
    place = launch + 40
    for n in range(count):
        store_int(word(place + 8 * n), slots + 8 * n)
    place += 8 * count
    for _ in range(word(launch + 32)):
        source, index = word(place + 16), word(place + 24)
        if source == at.FROM_SCRATCH:
            start = room
        elif source == at.FROM_OUTPUT:
            start = word(word(stores + 8 * index) + DATA)
        else:
            start = word(word(args + 8 * index) + DATA)
        ndim = word(place + 40)
        store_int(word(api + 8 * at.NDARRAY), headers + HEAD - 8)
        store_int(start + word(place + 32), headers + DATA)
        store_int(ndim, headers + NDIM)
        store_int(place + 48, headers + SHAPE)
        store_int(place + 48 + 8 * ndim, headers + STRIDES)
        store_int(headers, slots + 8 * word(place + 8))
        headers += HEADER
        place += 8 * word(place)


@helper
def launch_all(
    code: Any, args: Any, stores: Any, room: Any, headers: Any, slots: Any, api: Any
) -> Any:
    """Call the kernels; return 1, 0 with an error raised, or ``MISS`` if one refuses.

    Other threads have the interpreter meanwhile.
    """
    launch = code + 8 * word(code + 8 * at.LAUNCHES)
    count = word(launch)
    if count == 0:
        return 1
    launch += 8
    thread = let_go()
    for n in range(count):
        lay_out(launch, args, stores, room, headers, slots, api)
        invoke(word(launch + 8), (0, slots, -1))
        refusal = word(launch + 24)
        if refusal != at.ABSENT and half(room + refusal):
            return 0 if take_back(thread) else MISS
        if n + 1 < count:
            look()
            if word(word(api + 8 * at.STOPPED)) > 0:  # some thread; if this one, here it ends
                if take_back(thread):
                    return 0
                thread = let_go()
        launch += 8 * word(launch)
    return 0 if take_back(thread) else 1


@helper
def view(array: Any, place: Any, api: Any) -> Any:
    """Return a view of an array, as a result tells, or 0 with an error raised."""
    ndim = word(place + 32)
    flags = 0 if word(place + 8) >= at.READ_ONLY else half(array + at.FLAGS) & at.WRITEABLE
    descr = word(array + at.DESCR)
    invoke(word(api + 8 * at.INCREF), (descr,))
    made = invoke(
        word(api + 8 * at.NEW_VIEW),
        (
            word(api + 8 * at.NDARRAY), descr, ndim, place + 40, place + 40 + 8 * ndim,
            word(array + DATA) + word(place + 24), flags, 0,
        ),
    )  # fmt: skip
    if made:
        invoke(word(api + 8 * at.INCREF), (array,))
        invoke(word(api + 8 * at.SET_BASE), (made, array))
    return made


@helper
def result(place: Any, things: Any, args: Any, stores: Any, api: Any) -> Any:
    """Return one of a step's results, or 0 with an error raised."""
    kind, index = word(place + 8) % at.READ_ONLY, word(place + 16)
    if kind == at.VIEW_OF_INPUT:
        return view(word(args + 8 * index), place, api)
    if kind == at.VIEW_OF_STORE:
        return view(word(stores + 8 * index), place, api)
    made = word(stores + 8 * index) if kind == at.MADE else word(things + 8 * index)
    invoke(word(api + 8 * at.INCREF), (made,))
    return made


@helper
def results(code: Any, things: Any, args: Any, stores: Any, api: Any) -> Any:
    """Return all results: one, or a tuple."""
    place = code + 8 * word(code + 8 * at.RESULTS)
    count = word(place)
    place += 8
    if not word(code + 8 * at.MANY):
        return result(place, things, args, stores, api)
    many = invoke(word(api + 8 * at.TUPLE), (count,))
    if many == 0:
        return 0
    for n in range(count):
        one = result(place, things, args, stores, api)
        if one == 0:
            invoke(word(api + 8 * at.DECREF), (many,))
            return 0
        invoke(word(api + 8 * at.TUPLE_SET), (many, n, one))
        place += 8 * word(place)
    return many


@helper
def perform(
    code: Any, things: Any, args: Any, stores: Any, headers: Any, slots: Any, api: Any
) -> Any:
    """Do what was captured; return its results, 0 with an error raised, or ``MISS``."""
    count = make(code, things, stores, api)
    if count == MISS:
        return 0
    # ``make`` may call Python, and that a signal's handler, whose session may replace this memory.
    room = 0
    if word(code + 8 * at.SCRATCH):
        room = room_of(word(code + 8 * at.SCRATCH), api)
        if room == 0:
            drop(stores, count, api)
            return MISS
    said = launch_all(code, args, stores, room, headers, slots, api)
    if said != 1:
        drop(stores, count, api)
        return said
    found = results(code, things, args, stores, api)
    drop(stores, count, api)
    return found


def _entry(symbol: str, compiled: Any) -> ir.Module:
    """Return a module with what CPython calls: words in, a word out."""
    context = numba_target.context()
    module = context.codegen().create_library(symbol).create_ir_module(symbol)
    function = ir.Function(module, FASTCALL, symbol)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    own, given, count = function.args
    words = [builder.ptrtoint(own, I64), builder.ptrtoint(given, I64), count]
    _, found = context.call_internal_no_propagate(
        builder, compiled.fndesc, compiled.signature, words
    )
    builder.ret(builder.inttoptr(found, POINTER))
    return module


def _replay(cell: Any, args: Any, count: Any) -> Any:
    """Do what a capture says, if there is one of such arguments; else what the list says.

    Args:
        cell: Self.
        args: Where the addresses of the arguments are.
        count: How many there are.

    Returns:
        The results, or 0 with an error raised.
    """
    # The list's first item is an array of no references: its address says where functions are.
    slots, headers, stores = stack_of_slots(), stack_of_headers(), stack_of_stores()
    items = word(cell + HEAD + 8)
    api = word(word(items) + DATA)
    position = 2
    while position < word(cell + HEAD):
        captured, objects = word(items + 8 * position), word(items + 8 * position + 8)
        code, things = word(captured + DATA), word(objects + DATA)
        if fits(code, things, args, count, api):
            replays = word(api + 8 * at.REPLAYS) + 1
            store_int(replays, api + 8 * at.REPLAYS)
            store_int(replays, code + 8 * at.USED)
            # While the kernel runs, another thread may take the capture out of the list.
            invoke(word(api + 8 * at.INCREF), (captured,))
            invoke(word(api + 8 * at.INCREF), (objects,))
            found = perform(code, things, args, stores, headers, slots, api)
            invoke(word(api + 8 * at.DECREF), (captured,))
            invoke(word(api + 8 * at.DECREF), (objects,))
            if found != MISS:
                return found
            break
        position += 2
    items = word(cell + HEAD + 8)
    store_int(cell, slots)
    for n in range(count):
        store_int(word(args + 8 * n), slots + 8 + 8 * n)
    return invoke(word(api + 8 * at.VECTORCALL), (word(items + 8), slots, count + 1, 0))


replay = Kernel(_replay, (size, size, size), entry=_entry)
