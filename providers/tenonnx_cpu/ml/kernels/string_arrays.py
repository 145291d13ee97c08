"""Words as CPython keeps them: what an array of str points to is read and looked up.

A layout says where in a ``str`` what lies; ``tenonnx_cpu.ml.string_arrays`` finds it out.
"""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, inlined, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import (
    load_byte,
    load_int,
    load_word,
    store_byte,
    store_int,
    store_word,
)

# The type `str` and where objects have their types; where lengths and states are, and in a state
# the bits of compact ones, of ASCII, and which the characters' size begins at; where ASCII begins,
# and other characters; a seed.
LAYOUT = (size,) * 10

NONE = (0, 0, 0)


@inlined
def word_at(word: Any, layout: Any) -> Any:
    """Return where a word's characters are, its bytes, and those of a character or 0 for ASCII.

    The first is 0 if the object is no ``str``, or one whose characters are elsewhere.
    """
    kind, kind_at, length_at, state_at, compact, ascii_bit, shift, ascii_begin, begin, _ = layout
    if word == 0 or load_int(word + kind_at) != kind:
        return NONE
    state = load_word(word + state_at)
    if state & compact != compact:
        return NONE
    length = load_int(word + length_at)
    if state & ascii_bit:
        return word + ascii_begin, length, 0
    each = (state >> shift) & 7
    return word + begin, length * each, each


@inlined
def last_of(data: Any, count: Any) -> Any:
    """Return up to eight last bytes as a number; of fewer than eight, all that there are."""
    if count >= 8:
        return load_int(data + count - 8)
    if count >= 4:
        return load_word(data) | (load_word(data + count - 4) << 32)
    found = 0
    for place in range(count):
        found = found << 8 | load_byte(data + place)
    return found


@inlined
def spread(state: Any) -> Any:
    """Have all bits of a state change the lower ones."""
    state *= -7046029254386353131  # 2**64 / the golden ratio
    return state ^ (state >> 32)


@helper
def digest(data: Any, count: Any, each: Any, seed: Any) -> Any:
    """Return a number for a word: equal ones have the same."""
    state, place = spread(seed ^ (count << 3 | each)), 0
    while place < count - 8:
        state = spread(state ^ load_int(data + place))
        place += 8
    # Twice: what differs in the upper bits alone has not changed the lowest ones after the first.
    return spread(spread(state ^ last_of(data, count)))


@inlined
def are_equal(one: Any, other: Any, count: Any) -> Any:
    """Return whether so many bytes are the same."""
    differ, place = last_of(one, count) ^ last_of(other, count), 0
    while place < count - 8:
        differ |= load_int(one + place) ^ load_int(other + place)
        place += 8
    return differ == 0


@inlined
def slot_of(data: Any, form: Any, number: Any, slots: Any, begin: Any, count: Any) -> Any:
    """Return where a word is among slots, or where it would be.

    Args:
        data: Where its characters are.
        form: Its bytes times 8, and those of a character.
        number: Its digest.
        slots: All slots.
        begin: Where the slots begin that may have it.
        count: How many these are.
    """
    at = number & (count - 1)
    while slots[begin + at, 1] != 0:
        is_form = slots[begin + at, 0] == number and slots[begin + at, 2] == form
        if is_form and are_equal(slots[begin + at, 1], data, form >> 3):
            break
        at = (at + 1) & (count - 1)
    return begin + at


@kernel(
    (In(i64, 1), LAYOUT, Out(i64, 2), Out(u8, 1)),
    Contract(
        launch="objects are alive; there are more slots than keys, a power of two",
        captured=False,
    ),
)
def place_keys(keys, layout, slots, refused):  # type: ignore[no-untyped-def] # the signature has them
    """Write keys into slots; the last of equal ones counts.

    Args:
        keys: Addresses of words.
        layout: Where in a ``str`` what lies.
        slots: Of each key its digest, where its characters are, its bytes times 8 and those of a
            character, and its number; zeros where there is none.
        refused: 1 if an object is no word.
    """
    refused[0] = 0
    for slot in range(slots.shape[0]):
        slots[slot, 1] = 0
    for number in range(keys.size):
        data, count, each = word_at(keys[number], layout)
        if data == 0:
            refused[0] = 1
            return
        found, form = digest(data, count, each, layout[9]), count << 3 | each
        at = slot_of(data, form, found, slots, 0, slots.shape[0])
        slots[at, 0], slots[at, 1], slots[at, 2], slots[at, 3] = found, data, form, number


@inlined
def copy_cell(source: Any, place: Any, target: Any, out: Any, count: Any) -> None:
    """Copy bytes."""
    place += source.ctypes.data
    out += target.ctypes.data
    while count >= 8:
        store_int(load_int(place), out)
        place, out, count = place + 8, out + 8, count - 8
    if count >= 4:
        store_word(load_word(place), out)
        place, out, count = place + 4, out + 4, count - 4
    while count > 0:
        store_byte(load_byte(place), out)
        place, out, count = place + 1, out + 1, count - 1


@parallel
def look_up_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some rows."""
    words, layout, columns, slots, cells, y, refused, grain = arguments
    for row in range(task * grain, min(words.shape[0], (task + 1) * grain)):
        line, out = y[row], 0
        for column in range(columns.shape[0]):
            place, begin, count, keys, cell, width = columns[column]
            data, length, each = word_at(words[row, place], layout)
            if data == 0:
                refused[0] = 1
                return
            found = digest(data, length, each, layout[9])
            at = slot_of(data, length << 3 | each, found, slots, begin, count)
            number = slots[at, 3] if slots[at, 1] != 0 else keys
            copy_cell(cells, cell + number * width, line, out, width)
            out += width


@kernel(
    (
        In(i64, 2), LAYOUT, In(i64, 2), In(i64, 2), In(u8, 1), Out(u8, 2), Out(u8, 1),
        size, size,
    ),
    Contract(
        plan="columns' slots and cells are there",
        launch="objects are alive, and columns' places are in a row",
        captured=False,
    ),
)  # fmt: skip
def look_up(words, layout, columns, slots, cells, y, refused, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the cells of words, column by column, into rows.

    Args:
        words: Addresses of objects.
        layout: Where in a ``str`` what lies.
        columns: Of each column its place in a row of words; where its slots begin, and how many
            there are; its keys; where its cells begin, and how many bytes each has.
        slots: As ``place_keys`` writes them, one column's after the other's.
        cells: A key's bytes after the other's, and those of what is no key.
        y: The cells.
        refused: 1 if an object is no word.
        grain: Rows of a task.
        threads: How many threads to use.
    """
    refused[0] = 0
    tasks = -(-words.shape[0] // grain)
    look_up_rows((words, layout, columns, slots, cells, y, refused, grain), tasks, threads)
