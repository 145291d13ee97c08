"""Messages for exceptions that a node raised."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.process.exceptions import OF_ARRAYS, said_by_operator

if TYPE_CHECKING:
    from tenonnx.graph.values import NodeInfo, ValueInfo
    from tenonnx.provider import Step

# A step's line of generated code.
CALL = re.compile(r"= \w+\((.*)\)$")

MAX_NAMED_NODES = 3


def describe_failure(
    nodes: Sequence[NodeInfo], error: Exception, step: Step | None = None, provider: str = ""
) -> str:
    """Return a message that names the nodes which an exception came from, and return why.

    What an operator raises says what was expected. What numpy or Python raised where nobody
    expected it names no operand: then it is the inputs that are said, and the exception is to be
    the message's cause. Want of memory names the inputs that asked for so much. What a plug-in's
    code raised comes with its class, file and line.

    Args:
        nodes: The nodes.
        error: The exception; ``note_arguments`` may have noted the step's arguments in it.
        step: The step that failed, if it ran.
        provider: Who runs the nodes.
    """
    names = ", ".join(node.label for node in nodes[:MAX_NAMED_NODES])
    if (place := place_in_plugin(error, step)) is not None:
        raised = f"{type(error).__name__}: {error}".removesuffix(": ")
        on = f" on {provider}" if provider else ""
        return f"{names}{on}: {raised} ({place}; {_operands(nodes[0], error, step)})"
    said, programs = (
        said_by_operator(error),
        isinstance(error, (LookupError, ArithmeticError, AttributeError)),
    )
    if said is None:
        return f"{names} failed for what it was given: {_operands(nodes[0], error, step)}"
    if programs and not isinstance(error, ValueError):  # one of numpy's is both
        return f"{names}: {said}"
    if isinstance(error, ValueError):
        names_one = any(re.search(rf"\b{n}\b", said) for n in _formal_names(nodes[0], step))
        said += "" if names_one else f" (of {_operands(nodes[0], error, step)})"
    elif isinstance(error, MemoryError) and nodes[0].inputs:
        said += f" (of {_operands(nodes[0], error, step)})"
    return f"{names}: {type(error).__name__}: {said}"


def place_in_plugin(error: Exception, step: Step | None = None) -> str | None:
    """Return file and line of the code outside of tenonnx that an exception left.

    It is the innermost such place, or the beginning of the step's function if that could not even
    be called; ``None`` if neither is a plug-in's.
    """
    place, found = error.__traceback__, None
    while place is not None:
        frame = place.tb_frame
        if _is_outside(str(frame.f_globals.get("__name__", ""))):
            found = frame.f_code.co_filename, place.tb_lineno
        place = place.tb_next
    function = None if step is None else _innermost(step.call)
    if found is None and _is_outside(str(getattr(function, "__module__", ""))):
        code = getattr(function, "__code__", None)
        found = code and (code.co_filename, code.co_firstlineno)
    return found and f"{Path(found[0]).name}, line {found[1]}"


def _is_outside(module: str) -> bool:
    """Return whether a module is a plug-in's: not tenonnx's, Python's, or of arrays."""
    top = module.partition(".")[0]
    return bool(top) and not (
        top in OF_ARRAYS or top in sys.stdlib_module_names - {"__main__"} or top in _own_packages()
    )


@functools.cache
def _own_packages() -> frozenset[str]:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        listed = distribution("tenonnx").read_text("top_level.txt")
    except PackageNotFoundError:
        listed = None
    return frozenset((listed or "").split()) | {"tenonnx"}


def _innermost(function: Any) -> Any:
    """Return the function that a partial or another wrapper calls in the end."""
    while inner := getattr(function, "func", getattr(function, "function", None)):
        function = inner
    return function


def misgiven(step: Step, error: Exception) -> tuple[ValueInfo, str] | None:
    """Return an input of a failed step that is not what the model says, and what it is.

    Another step made it: that one is to blame. ``None`` if there is none.
    """
    for value, array in zip(step.inputs, vars(error).get("arguments", ()), strict=False):
        if value is None or value.constant is not None:
            continue
        if array is None:
            return value, "nothing"
        dtype, shape = getattr(array, "dtype", None), getattr(array, "shape", None)
        if dtype is None or shape is None:
            continue
        of_words = value.dtype is None or np.dtype(value.dtype).kind in "OSUT"
        said = value.shape
        unlike = said is not None and (
            len(said) != len(shape)
            or any(isinstance(a, int) and a != b for a, b in zip(said, shape, strict=True))
        )
        if unlike or not (of_words or str(dtype) == str(value.dtype)):
            return value, f"{dtype}{list(shape)}"
    return None


def note_arguments(error: Exception, filename: str, source: str) -> None:
    """Note in an exception which arguments the step had whose line of generated code it left.

    Args:
        error: The exception; an inner step's note stays.
        filename: The code's.
        source: The code's text.
    """
    place, found = error.__traceback__, None
    while place is not None:
        if place.tb_frame.f_code.co_filename == filename:
            found = place
        place = place.tb_next
    if found is None:
        return
    frame, lines = found.tb_frame, source.splitlines()
    line = lines[found.tb_lineno - 1] if found.tb_lineno <= len(lines) else ""
    if call := CALL.search(line):
        known = {**frame.f_globals, **frame.f_locals}
        arguments = [known.get(name) for name in call[1].split(", ")]
        vars(error).setdefault("arguments", arguments)


def _operands(node: NodeInfo, error: Exception, step: Step | None) -> str:
    """Return a node's inputs with their formal names, dtypes and shapes, as they were if known."""
    given = vars(error).get("arguments", ())
    arrays = dict(zip(step.inputs, given, strict=False)) if step is not None else {}
    each = zip(_formal_names(node, step), node.inputs, strict=False)
    return ", ".join(_described(name, value, arrays.get(value)) for name, value in each)


def _formal_names(node: NodeInfo, step: Step | None) -> Iterator[str]:
    """Yield the names of a node's operands: its schema's, its kernel's, or numbers."""
    from tenonnx.graph.validation import schema_of

    names: Sequence[str] = ()
    if (schema := schema_of(node)) is not None:
        names = [formal.name for formal in schema.inputs]
        if schema.inputs and schema.inputs[-1].option.name == "Variadic":
            names = names[:-1]
    elif step is not None and len(step.nodes) == 1:
        code = getattr(_innermost(step.call), "__code__", None)
        names = code.co_varnames[1 : code.co_argcount] if code else ()
    yield from names
    for number in range(len(names), len(node.inputs)):
        yield f"input {number + 1}"


def _described(name: str, value: ValueInfo | None, array: Any) -> str:
    if value is None:
        return f"{name} nothing"
    if hasattr(array, "shape") and hasattr(array, "dtype"):
        return f"{name} '{value.name}' {array.dtype}{list(array.shape)}"
    return f"{name} {value}"
