"""From exceptions to exit codes and to sentences on standard error."""

from __future__ import annotations

import contextlib
import enum
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TextIO

from tenonnx import errors
from tenonnx.cli.output import say

if TYPE_CHECKING:
    from tenonnx.cli.state import State


class Code(enum.IntEnum):
    """The exit codes of the command."""

    OK = 0
    PROBLEM = 1
    USAGE = 2
    MODEL = 3
    PROVIDER = 4
    RUN = 5
    PLUGIN = 6
    DEFECT = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


EXIT_CODE_MEANINGS = {
    Code.OK: "all is well",
    Code.PROBLEM: "doctor, compare, check or reduce found a problem",
    Code.USAGE: "wrong usage: an option, an input, a provider's name, a file to write",
    Code.MODEL: "the model cannot be read",
    Code.PROVIDER: "no provider runs it: an operator or a device is missing",
    Code.RUN: "the run failed",
    Code.PLUGIN: "a plug-in failed",
    Code.DEFECT: "a defect of tenonnx or of a plug-in; the traceback is printed",
    Code.INTERRUPTED: "interrupted by Ctrl-C",
    Code.BROKEN_PIPE: "the reader of the output went away",
}

_CODES: dict[type[errors.TenonnxError], Code] = {
    errors.InvalidArgument: Code.USAGE,
    errors.NoSuchFile: Code.MODEL,
    errors.InvalidProtobuf: Code.MODEL,
    errors.InvalidGraph: Code.MODEL,
    errors.NotSupported: Code.PROVIDER,
    errors.EPFail: Code.PROVIDER,
    errors.RuntimeException: Code.RUN,
    errors.Fail: Code.RUN,
    errors.PluginError: Code.PLUGIN,
}


def code_of(error: errors.TenonnxError) -> Code:
    """Return the exit code for an error: its first class that has one; ``RUN`` if none has."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), Code.RUN)


# Patterns of remedies in Python, and the same remedies in options of the command.
IN_OPTIONS: Final = (
    (r"SessionOptions\(allowed_roots=\[(.+)\]\)\.?", r"--allow-root \1"),
    (r"SessionOptions\(disabled_transforms=\[(.+)\]\)", r"--disable-transform \1"),
    (r"add it to providers=\[\.\.\.\]", "name it with --provider, too"),
    (r"providers=\[\.\.\., '(\w+)'\]", r"--provider \1"),
    (r"providers=\[\.\.\.\]", "--provider NAME"),
    (
        r"convert it: .+\.astype\('(\w+)'\)",
        r"write the file again: numpy.save(FILE, ARRAY.astype('\1'))",
    ),
    (r"add an axis: .+\[None\]", "write the file again: numpy.save(FILE, ARRAY[None])"),
    (r"; tenonnx_ray\.fetched\(address\) returns a path", ""),
)


def in_options(hint: str) -> str:
    """Return a hint to users of the interface as a hint to users of the command."""
    for pattern, option in IN_OPTIONS:
        hint = re.sub(pattern, option, hint)
    return hint


def explain(error: errors.TenonnxError) -> None:
    """Print an error and its hint."""
    say("error", str(error.args[0]))
    if error.hint:
        say("hint", in_options(error.hint))


@contextlib.contextmanager
def explained(state: State) -> Iterator[None]:
    """Turn whatever goes wrong inside into a sentence and an exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        try:
            yield
        except errors.TenonnxError as error:
            if state.verbosity:
                traceback.print_exc()
            explain(error)
            sys.exit(code_of(error))
        except MemoryError as error:
            say("error", f"out of memory: {error}" if str(error) else "out of memory")
            sys.exit(Code.RUN)
        except Exception:  # the last resort: nothing else would explain it
            traceback.print_exc()
            say("error", "this is a defect of tenonnx or of a plug-in; please report it")
            sys.exit(Code.DEFECT)


@contextlib.contextmanager
def quiet_end() -> Iterator[None]:
    """End without a word when the user, or the reader of the output, has had enough."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(Code.INTERRUPTED)
    except BrokenPipeError:
        # The interpreter flushes standard output once more as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Code.BROKEN_PIPE)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> Any:
    if issubclass(category, UserWarning):
        say("warning", str(message))
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)
