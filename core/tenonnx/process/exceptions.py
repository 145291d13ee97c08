"""Texts of exceptions: an operator's or a library's, and Python's own, which explain nothing."""

from __future__ import annotations

import re

from tenonnx.errors import TenonnxError

# numpy's messages about arrays, in exceptions that Python raises too.
NUMPY = re.compile(r"ufunc|dtype|out of bounds|Cannot cast|No loop|too many indices")

# Exceptions of libraries with messages about the mismatch.
LIBRARY_ERRORS = (ValueError, RuntimeError, MemoryError, OSError)

# Python's own messages in these exceptions.
PYTHON = re.compile(
    r"unpack|domain error|is not in (list|tuple)|empty (sequence|iterable)"
    r"|must not be zero|negative shift|NaN to integer|zip\(\)|not in range"
)

NUMBER = re.compile(r"invalid literal for int\(\) with base 10: (.*)", re.DOTALL)

# Packages whose messages know arrays and axes, but no operand of a node.
OF_ARRAYS = ("numpy", "ml_dtypes", "onnx", "onnx_ir")


def said_by_operator(error: Exception) -> str | None:
    """Return what an operator said; ``None`` if it was numpy or Python."""
    place = raised_in(error)
    foreign = place is None or place.partition(".")[0] in OF_ARRAYS
    of_arrays = type(error).__module__.partition(".")[0] in ("builtins", *OF_ARRAYS)
    about_arrays = isinstance(error, (ValueError, TypeError, LookupError))
    if foreign and of_arrays and about_arrays and not isinstance(error, TenonnxError):
        number = NUMBER.match(str(error))
        return f"{number[1]:.80} is no integer" if number else None
    return message_of(error)


def message_of(error: BaseException) -> str | None:
    """Return an exception's text; ``None`` if it is Python's own and says nothing of a model."""
    said = str(error)
    if type(error).__module__ != "builtins":
        return said
    raised = raised_in(error) is not None
    if isinstance(error, LIBRARY_ERRORS) and not isinstance(error, RecursionError):
        if number := NUMBER.match(said):
            return f"{number[1]:.80} is no integer"
        return said if said and (raised or not PYTHON.search(said)) else None
    if raised:
        return said
    return said if isinstance(error, (TypeError, IndexError)) and NUMPY.search(said) else None


def raised_in(error: BaseException) -> str | None:
    """Return the module of the ``raise`` that an exception comes from; ``None`` without one."""
    from opcode import opmap

    place = error.__traceback__
    if place is None:
        return None
    while place.tb_next is not None:
        place = place.tb_next
    frame = place.tb_frame
    raises = frame.f_code.co_code[place.tb_lasti] == opmap["RAISE_VARARGS"]
    return str(frame.f_globals.get("__name__", "")) if raises else None
