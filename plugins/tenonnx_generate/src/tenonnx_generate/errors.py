"""Errors of a folder or a request: of onnxruntime-genai's class and of Python's own."""

from __future__ import annotations

from tenonnx import EPFail, Fail, InvalidArgument, NoSuchFile, NotSupported


class Refused(InvalidArgument, Fail):
    """A folder says, or a caller asks for, what cannot be: a number, a name, a token, a type."""


class Missing(NoSuchFile, Fail):
    """A file of a folder is not where it should be."""


class Unsupported(NotSupported, Fail):
    """A folder or a caller asks for what is not to be had here."""


class NotInstalled(EPFail, ModuleNotFoundError):
    """A library of the extra is not there."""
