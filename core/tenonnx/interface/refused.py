"""Classes of onnxruntime's that have no place here; using one says why, and what to do."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from tenonnx.errors import NotSupported


class Refused:
    """A class that cannot be instantiated."""

    reason: ClassVar[str]
    hint: ClassVar[str | None] = None

    def __init__(self, *arguments: Any, **more: Any) -> None:
        del arguments, more
        self._refuse()

    @classmethod
    def _refuse(cls) -> NoReturn:
        raise NotSupported(f"{cls.__name__}: {cls.reason}", hint=cls.hint)


class ModelCompiler(Refused):
    """Would write models with compiled contexts in them."""

    reason = "there are no compiled context models: weights stay shared, kernels are cached"
    hint = "SessionOptions.optimized_model_filepath writes the model as transforms left it"


class OrtEpContextData(Refused):
    """Would hold a compiled context."""

    reason = "there are no compiled context models"


class OrtEpContextDataBuffer(Refused):
    """Would take a compiled context."""

    reason = "there are no compiled context models"


class OrtExternalInitializerInfo(Refused):
    """Would say where a compiled model's initializer goes."""

    reason = "there are no compiled context models"
    hint = "`tenonnx convert` writes weights to a file of their own"


class OrtSyncStream(Refused):
    """Would be a device's stream."""

    reason = "a run returns when its outputs are there: there is no stream to wait on"
