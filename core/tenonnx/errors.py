"""Every exception tenonnx raises: onnxruntime's names, one common base, a builtin beside each.

``except TenonnxError`` catches all; ``except ValueError`` and friends work too, and so does code
written against onnxruntime's exception names. onnxruntime has several names for one mistake, by
which of its checks finds it: what is raised for such a one is of all these classes.
"""

from __future__ import annotations

from collections.abc import Iterable

DOCUMENTATION = "https://tenonnx.github.io/tenonnx"


def page(name: str) -> str:
    """Return the address of a page of the documentation; ``plugins`` is docs/plugins.md."""
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


class NoSuchFile(TenonnxError, FileNotFoundError):
    """A model or its external data is not where it should be."""


class InvalidProtobuf(TenonnxError, ValueError):
    """The bytes are not a model: truncated, damaged, or another format."""


class InvalidGraph(TenonnxError, ValueError):
    """The model is readable but not well-formed: a cycle, a dangling name, bad external data."""


class RuntimeException(TenonnxError, RuntimeError):
    """A node failed while it ran; the message names it."""


class EPFail(TenonnxError, RuntimeError):
    """An execution provider cannot be used, or broke its contract."""


class NotFound(TenonnxError, RuntimeError):
    """A configuration entry or an initializer that a caller names is not there."""


class NoModel(TenonnxError, RuntimeError):
    """A session without a model; never raised, a session that exists has one."""


class ModelLoaded(TenonnxError, RuntimeError):
    """A model was loaded twice into a session; never raised."""


class ModelLoadCanceled(TenonnxError, RuntimeError):
    """A caller cancelled the loading of a model."""


class ModelRequiresCompilation(TenonnxError, RuntimeError):
    """A provider needs a model compiled ahead; never raised, providers compile while loading."""


class EngineError(TenonnxError, RuntimeError):
    """A provider's engine failed; here that is an ``EPFail``, and this is never raised."""


class DeviceReset(TenonnxError, RuntimeError):
    """A device was lost while a model ran on it."""


class MalformedGraph(InvalidGraph, Fail, InvalidArgument):
    """The graph contradicts itself, or a node its schema: a cycle, a name that two nodes make."""


class WithoutGraph(InvalidProtobuf, InvalidArgument):
    """The bytes are empty, or a message without a graph."""


class UnknownOperator(NotSupported, InvalidGraph, Fail):
    """An operator is unknown: ``InvalidGraph`` of ONNX's domains, ``Fail`` of others."""


class NodeRefused(EPFail, InvalidGraph, Fail):
    """A provider cannot compile a node: an attribute is missing, unknown or out of range."""


class NodeFailed(RuntimeException, Fail, InvalidArgument):
    """A node failed while it ran, mostly for the shapes or values of its inputs."""


class NodeMisused(NodeFailed, InvalidGraph):
    """A node failed while it ran for types or a number of inputs that its operator does not have.

    onnxruntime infers types when it loads a model, and refuses it there.
    """


class CheckFailed(NodeFailed):
    """A session with ``SessionOptions(check=True)`` found the first node that computes wrongly."""


class OutOfMemory(NodeFailed, MemoryError):
    """A node, or loading a model, wants more memory than there is."""


class PluginError(TenonnxError, RuntimeError):
    """A plug-in failed to import, took a name that is taken, or does not fit its hook."""


# Names that an error lists; it counts the others.
MAX_LISTED_NAMES = 12


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` if a known name is close, else lists the known ones."""
    names = list(known)
    if not names:
        return ""
    import difflib

    lowered = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    if len(names) > MAX_LISTED_NAMES:
        return f" (there are {len(names)}: {', '.join(names[:MAX_LISTED_NAMES])}, ...)"
    return f" (there are: {', '.join(names)})"
