"""Messages for exceptions that a node raised."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenonnx import graph as graphs

if TYPE_CHECKING:
    import onnx_ir as ir

NUMPY = re.compile(r"ufunc|dtype|out of bounds|Cannot cast|No loop|too many indices")
"""numpy's messages about arrays, in exceptions that Python raises too."""

LIBRARIES = (ValueError, RuntimeError, MemoryError, OSError)
"""Exceptions of libraries with messages about the mismatch."""

PYTHON = re.compile(
    r"unpack|domain error|is not in (list|tuple)|empty (sequence|iterable)"
    r"|must not be zero|negative shift|NaN to integer|zip\(\)|not in range"
)
"""Python's own messages in these exceptions."""

NUMBER = re.compile(r"invalid literal for int\(\) with base 10: (.*)", re.DOTALL)

MAX_NODES = 3


def blame(nodes: Sequence[ir.Node], error: Exception) -> str:
    """Returns a message that names the nodes which an exception came from, and says why.

    What an operator raises says what was expected. What Python raised where nobody expected it
    says how the program is made, and nothing of the model: then it is the inputs that are said,
    and the exception is to be the message's cause.
    """
    names = ", ".join(graphs.label(node) for node in nodes[:MAX_NODES])
    said, programs = shown(error), isinstance(error, (LookupError, ArithmeticError, AttributeError))
    if said is None:
        return (
            f"{names} failed for what it was given: {', '.join(map(_described, nodes[0].inputs))}"
        )
    if programs and not isinstance(error, ValueError):  # one of numpy's is both
        return f"{names}: {said}"
    return f"{names}: {type(error).__name__}: {said}"


def shown(error: BaseException) -> str | None:
    """Returns an exception's text; ``None`` if it is Python's own and says nothing of a model."""
    said = str(error)
    if type(error).__module__ != "builtins":
        return said
    if isinstance(error, LIBRARIES) and not isinstance(error, RecursionError):
        if number := NUMBER.match(said):
            return f"{number[1]:.80} is no integer"
        by_python = PYTHON.search(said) and not _raised_by_statement(error)
        return said if said and not by_python else None
    if _raised_by_statement(error):
        return said
    return said if isinstance(error, (TypeError, IndexError)) and NUMPY.search(said) else None


def _raised_by_statement(error: BaseException) -> bool:
    """Says whether a ``raise`` is where an exception comes from, and not a call or an operation."""
    from opcode import opmap  # for mistakes only

    place = error.__traceback__
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_code[place.tb_lasti] == opmap["RAISE_VARARGS"]


def _described(value: ir.Value | None) -> str:
    if value is None:
        return "nothing"
    kind = value.dtype.name.lower() if value.dtype is not None else "?"
    shape = value.shape if value.shape is not None else "[?]"
    return f"{value.name} {kind}{shape}"
