"""Texts cut into tokens, which are runs of some letters, and looked up."""

from __future__ import annotations

from typing import Any

from tenonnx_cpu.jit.compiling import Contract, In, Out, helper, i64, kernel, size, u8
from tenonnx_cpu.jit.threads.parallel_for import parallel
from tenonnx_cpu.jit.vectors.memory import load_byte
from tenonnx_cpu.ml.kernels.string_arrays import LAYOUT, digest, slot_of, word_at

# Stands among letters for what is part of no token.
BETWEEN = 255

# Characters of a text, of which a run can be stopped before and after.
MAX_TEXT_CHARACTERS = 1 << 22


@helper
def next_token(data: Any, place: Any, length: Any, letters: Any) -> Any:
    """Return where a token begins and ends from a place on; both are the end if none does."""
    while place < length and letters[load_byte(data + place)] == BETWEEN:
        place += 1
    end = place
    while end < length and letters[load_byte(data + end)] != BETWEEN:
        end += 1
    return place, end


@parallel
def count_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some texts."""
    texts, layout, letters, shortest, counts, refused, grain = arguments
    for row in range(task * grain, min(texts.size, (task + 1) * grain)):
        data, length, each = word_at(texts[row], layout)
        if data == 0 or each or length > MAX_TEXT_CHARACTERS:
            refused[0] = 1
            return
        end = count = 0
        while end < length:
            begin, end = next_token(data, end, length, letters)
            count += end - begin >= shortest
        counts[row] = count


@kernel(
    (In(i64, 1), LAYOUT, In(u8, 1), size, Out(i64, 1), Out(u8, 1), size, size),
    Contract(
        plan="there are 128 letters, and tokens are no shorter than 1",
        launch="objects are alive; there is a count for each",
        captured=False,
    ),
)
def count_tokens(texts, layout, letters, shortest, counts, refused, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write how many tokens each text has.

    Args:
        texts: Addresses of objects.
        layout: Where in a ``str`` what lies.
        letters: What becomes of each character in a token, or 255 for those in none.
        shortest: The characters of a token at least.
        counts: How many there are.
        refused: 1 if an object is no text of ASCII, or too long.
        grain: Texts of a task.
        threads: How many threads to use.
    """
    refused[0] = 0
    tasks = -(-texts.size // grain)
    count_rows((texts, layout, letters, shortest, counts, refused, grain), tasks, threads)


@helper
def number_of(token: Any, count: Any, letters: Any, slots: Any, own: Any, seed: Any) -> Any:
    """Return a token's number among slots, or -1; ``own`` has room for the longest key."""
    if count > own.size:
        return -1
    for i in range(count):
        own[i] = letters[load_byte(token + i)]
    data = own.ctypes.data
    at = slot_of(data, count << 3, digest(data, count, 0, seed), slots, 0, slots.shape[0])
    return slots[at, 3] if slots[at, 1] != 0 else -1


@parallel
def number_rows(arguments: Any, task: Any, worker: Any) -> None:
    """Do some texts."""
    texts, layout, letters, shortest, slots, rooms, padding, numbers, grain = arguments
    for row in range(task * grain, min(texts.size, (task + 1) * grain)):
        data, length, _ = word_at(texts[row], layout)
        line, own = numbers[row], rooms[worker]
        end = count = 0
        while end < length:
            begin, end = next_token(data, end, length, letters)
            if end - begin >= shortest:
                found = number_of(data + begin, end - begin, letters, slots, own, layout[9])
                line[count] = found
                count += 1
        while count < line.size:
            line[count] = padding
            count += 1


@kernel(
    (
        In(i64, 1), LAYOUT, In(u8, 1), size, In(i64, 2), Out(u8, 2), size, Out(i64, 2), size, size,
    ),
    Contract(
        plan="there are 128 letters; rooms are for each thread, and as long as the longest key",
        launch="texts were counted, and rows of numbers are as long as the greatest count",
        captured=False,
    ),
)  # fmt: skip
def number_tokens(texts, layout, letters, shortest, slots, rooms, padding, numbers, grain, threads):  # type: ignore[no-untyped-def] # the signature has them
    """Write the numbers of each text's tokens.

    Args:
        texts: Addresses of objects.
        layout: Where in a ``str`` what lies.
        letters: What becomes of each character in a token, or 255 for those in none.
        shortest: The characters of a token at least.
        slots: The keys, as ``place_keys`` writes them.
        rooms: Where a thread has a token with its letters changed.
        padding: What stands behind the last token.
        numbers: The numbers, -1 for a token that is no key.
        grain: Texts of a task.
        threads: How many threads to use.
    """
    tasks = -(-texts.size // grain)
    arguments = texts, layout, letters, shortest, slots, rooms, padding, numbers, grain
    number_rows(arguments, tasks, threads)
