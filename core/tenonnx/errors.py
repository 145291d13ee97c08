"""Every exception tenonnx raises: onnxruntime's names, one common base, a builtin beside each.

``except TenonnxError`` catches all; ``except ValueError`` and friends work too, and so does code
written against onnxruntime's exception names. onnxruntime has several names for one mistake, by
which of its checks finds it: what is raised for such a one is of all these classes.

To make a class takes a tenth of a module's import, and most sessions need four of these. The others
are in ``seldom_errors``, and are made when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tenonnx.seldom_errors import (
        DeviceReset as DeviceReset,
        EngineError as EngineError,
        EPFail as EPFail,
        InvalidGraph as InvalidGraph,
        InvalidProtobuf as InvalidProtobuf,
        MalformedGraph as MalformedGraph,
        ModelLoadCanceled as ModelLoadCanceled,
        ModelLoaded as ModelLoaded,
        ModelRequiresCompilation as ModelRequiresCompilation,
        NodeFailed as NodeFailed,
        NodeMisused as NodeMisused,
        NodeRefused as NodeRefused,
        NoModel as NoModel,
        NoSuchFile as NoSuchFile,
        NotFound as NotFound,
        OutOfMemory as OutOfMemory,
        PluginError as PluginError,
        RuntimeException as RuntimeException,
        UnknownOperator as UnknownOperator,
        WithoutGraph as WithoutGraph,
    )

DOCUMENTATION = "https://tenonnx.github.io/tenonnx"


def page(name: str) -> str:
    """Returns the address of a page of the documentation; ``plugins`` is docs/plugins.md."""
    return f"{DOCUMENTATION}/{name}/"


class TenonnxError(Exception):
    """The problem and, in ``hint``, its remedy.

    Args:
        message: The expected and the actual value.
        hint: One sentence with the remedy, printed on its own line.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\nHint: {self.hint}" if self.hint else message


class Fail(TenonnxError, RuntimeError):
    """Something failed that no narrower class describes."""


class InvalidArgument(TenonnxError, ValueError):
    """A caller's argument is wrong: an input's name, dtype or shape, an option, a provider."""


class NotSupported(TenonnxError, NotImplementedError):
    """No provider can run an operator of the model; onnxruntime calls it ``NotImplemented``."""


NotImplemented = NotSupported  # noqa: A001 - onnxruntime's name, imported by its clients

LISTED = 12
"""Names that an error lists; it counts the others."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns ``"; did you mean 'x'?"`` if a known name is close, else lists the known ones."""
    names = list(known)
    if not names:
        return ""
    import difflib  # for mistakes only

    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    if len(names) > LISTED:
        return f" (there are {len(names)}: {', '.join(names[:LISTED])}, ...)"
    return f" (there are: {', '.join(names)})"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    from tenonnx import seldom_errors

    for each in seldom_errors.EVERY:
        globals()[each.__name__] = each
    if name not in globals():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]
