"""The layout of the captures that ``replay`` reads. Imported without numba.

A capture is an array of words, the *code*, and one of objects, the *things*: first the kernels'
arguments, then whatever words of the code refer to by number. The code begins with the words below;
its sections are lists of entries. An entry's first word is its length; for every section but the
guards, a word before the first one says how many there are.

* guards, one for each of the step's inputs: ``IDENTICAL`` and a thing, or ``ARRAY``, the address
  of its dtype, its number of dimensions, its shape and its strides;
* stores, what is to be allocated: ``MADE_SMALL``, a dtype among the things, the number of
  dimensions, the shape; or ``MADE_LARGE`` and what to call, among the things;
* launches, one for each kernel: the address of its entry, how many arguments it has, where in
  scratch memory it says that it refuses, how many headers there are, the addresses of arguments
  that are the same in every run (numbers lie behind the code), and the headers, entries again:
  arrays among the arguments that differ from run to run, each with the argument's number,
  ``FROM_INPUT``, ``FROM_OUTPUT`` or ``FROM_SCRATCH``, the number of that, bytes from its beginning,
  the number of dimensions, the shape and the strides;
* results: ``MADE`` and a store; ``VIEW_OF_STORE`` or ``VIEW_OF_INPUT``, the number of that, bytes
  from its beginning, the number of dimensions, the shape and the strides, plus ``READ_ONLY`` for
  what is like that whatever it views; or ``THING``.
"""

from __future__ import annotations

# The words that a code begins with: how many inputs there are, bytes of scratch memory, whether
# there are several results, in which word each section begins, and the number of its latest replay
# among those of all captures.
COUNT, SCRATCH, MANY, GUARDS, STORES, LAUNCHES, RESULTS, USED = range(8)

FIRST = 8
ABSENT = -1

IDENTICAL, ARRAY = 0, 1
MADE_SMALL, MADE_LARGE = 0, 1
FROM_INPUT, FROM_OUTPUT, FROM_SCRATCH = 0, 1, 2
MADE, VIEW_OF_STORE, VIEW_OF_INPUT, THING = 0, 1, 2, 3
# The number that is added to the kind of a read-only view.
READ_ONLY = 4

# The number of entries that the stack has room for.
MOST_ARGUMENTS, MOST_HEADERS, MOST_OUTPUTS = 64, 24, 64

# Addresses that every capture needs: functions of CPython's, numpy's type of arrays, functions of
# numpy's, how many threads are stopped in their kernels, how many rows the table of scratch memory
# has and where they are, and how many replays there have been.
(
    INCREF, DECREF, VECTORCALL, CALL_NOTHING, TUPLE, TUPLE_SET, THREAD,
    NDARRAY, EMPTY, NEW_VIEW, SET_BASE, STOPPED, ROOMS, ROOMS_AT, REPLAYS,
) = range(15)  # fmt: skip

# A row: the thread, the address of its memory, how many bytes it has.
ROOM_WORDS = 3

# The offsets of the dtype and flags of numpy's arrays (`PyArrayObject_fields`).
DESCR, FLAGS = object.__basicsize__ + 40, object.__basicsize__ + 48

# The offsets in a dtype of the word with its kind, byte order and type number, and of its size
# (numpy 2's `PyArray_Descr`).
KIND, ITEMSIZE = object.__basicsize__ + 8, object.__basicsize__ + 24

ALIGNED, WRITEABLE = 0x100, 0x400
