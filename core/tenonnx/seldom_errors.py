"""The exceptions that few sessions need; all of them have names in ``errors``."""

from __future__ import annotations

from tenonnx.errors import Fail, InvalidArgument, NotSupported, TenonnxError


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


class OutOfMemory(NodeFailed, MemoryError):
    """A node wanted more memory than there is."""


class PluginError(TenonnxError, RuntimeError):
    """A plug-in failed to import, took a name that is taken, or does not fit its hook."""


EVERY = [each for each in vars().values() if getattr(each, "__module__", None) == __name__]

for _each in EVERY:
    _each.__module__ = "tenonnx.errors"
