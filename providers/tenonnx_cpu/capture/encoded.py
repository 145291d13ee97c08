"""A captured run as words and objects, and the addresses that machine code finds in them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenonnx.records import NamedTuple

NDArray: TypeAlias = np.ndarray[Any, Any]


class Encoded(NamedTuple):
    """A captured run as ``jit.layout`` says, but for the addresses of launches' arguments.

    Attributes:
        code: Its words.
        things: Its objects.
        pointers: Words that are to have addresses, and of which things.
        guards: Which thing is the first that guards compare; there is one for each input.
    """

    code: list[int]
    things: list[Any]
    pointers: list[tuple[int, int]]
    guards: int

    def addressed(self) -> tuple[NDArray, NDArray]:
        """Returns words and things; numbers lie behind the code, as integers and as floats."""
        known = [(word, self.things[n]) for word, n in self.pointers]
        numbers = sum(not isinstance(thing, np.ndarray) for _, thing in known)
        words = np.zeros(len(self.code) + 2 * numbers, np.int64)
        end = len(self.code)
        words[:end] = self.code
        for word, thing in known:
            if isinstance(thing, np.ndarray):
                words[word] = id(thing)
            else:
                words[word] = words.ctypes.data + 8 * end
                write_number(thing, words[end : end + 2])
                end += 2
        objects = np.empty(len(self.things), object)
        for n, thing in enumerate(self.things):
            objects[n] = thing
        return words, objects


def write_number(number: Any, words: NDArray) -> None:
    """Writes a number to two words: as an integer, 0 if it is none, and as a float."""
    words[0] = 0 if isinstance(number, float | np.floating) else int(number)
    words[1:].view(np.float64)[0] = float(number)
