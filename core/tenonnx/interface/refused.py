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

    reason = "compiled segments are in the model itself: weights stay shared, kernels are cached"
    hint = "`tenonnx compile` writes a model, its weights and a plan of it into one file"


NO_PACKAGES = "there are no packages of models: a session is of one model"
OPEN_VARIANT = "open the model file of the package's variant that suits the machine"


class ModelPackage(Refused):
    """Would write a package of models."""

    reason = NO_PACKAGES

    @classmethod
    def open(cls, package_root: str) -> NoReturn:
        """Refuse."""
        del package_root
        cls._refuse()

    @classmethod
    def compute_directory_hash(cls, path: str) -> NoReturn:
        """Refuse."""
        del path
        cls._refuse()


class ModelPackageContext(Refused):
    """Would read a package of models."""

    reason = NO_PACKAGES
    hint = OPEN_VARIANT


class ModelPackageComponentContext(Refused):
    """Would be a variant of a package's model."""

    reason = NO_PACKAGES
    hint = OPEN_VARIANT


class ModelPackageOptions(Refused):
    """Would say by which options a package's variants are chosen."""

    reason = NO_PACKAGES
    hint = OPEN_VARIANT


class OrtEpContextData(Refused):
    """Would hold a compiled context."""

    reason = "compiled segments are in the model itself"


class OrtEpContextDataBuffer(Refused):
    """Would take a compiled context."""

    reason = "compiled segments are in the model itself"


class OrtExternalInitializerInfo(Refused):
    """Would say where a compiled model's initializer goes."""

    reason = "compiled segments are in the model itself"
    hint = "`tenonnx convert` writes weights to a file of their own"


class OrtSyncStream(Refused):
    """Would be a device's stream."""

    reason = "a run returns when its outputs are there: there is no stream to wait on"
