"""``Adapters``: matrices that change what a model says, in files of onnxruntime's format."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Mapping
from typing import Any
from weakref import WeakSet

import numpy as np

from tenonnx import LoraAdapter, OrtValue
from tenonnx.errors import did_you_mean
from tenonnx_generate.errors import Missing, Refused
from tenonnx_generate.model import Model

NDArray = np.ndarray[Any, np.dtype[Any]]

ADAPTER_NUMBERS = itertools.count(1)


class Adapter:
    """One adapter's file.

    Args:
        name: What it is called.
        path: The file.

    Attributes:
        number: Another for each.
        parameters: Arrays by the inputs that they are for, as views of the mapped file.
        users: Generators and requests that have it.
    """

    def __init__(self, name: str, path: str | os.PathLike[str]) -> None:
        self.name, self.number = name, next(ADAPTER_NUMBERS)
        self.users: WeakSet[object] = WeakSet()
        if not os.path.isfile(path):
            raise Missing(f"{os.fspath(path)} does not exist")
        self._mapped = LoraAdapter()
        self._mapped.Load(path)
        self.parameters: Mapping[str, NDArray] = self._mapped.parameters


class Adapters:
    """The adapters of a model, each mapped once for all generators and processes.

    Args:
        model: The model; adapters are for its inputs that have ``lora`` in their names, or values
            that callers may override.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self._loaded: dict[str, Adapter] = {}
        self._lock = threading.Lock()

    def load(self, adapter_path: str | os.PathLike[str], adapter_name: str) -> None:
        """Map an ``.onnx_adapter`` file.

        Raises:
            Missing: There is no such file.
            InvalidProtobuf: It is no adapter.
            Refused: It does not fit the model, or the name is taken.
        """
        made = Adapter(adapter_name, adapter_path)
        self._check(made, os.fspath(adapter_path))
        with self._lock:
            if adapter_name in self._loaded:
                raise Refused(
                    f"there is an adapter {adapter_name!r} already", hint="unload it before"
                )
            self._loaded[adapter_name] = made

    def unload(self, adapter_name: str) -> None:
        """Forget an adapter.

        Raises:
            Refused: There is none of that name, or generators or requests have it.
        """
        with self._lock:
            found = self._found(adapter_name)
            if count := len(found.users):
                raise Refused(
                    f"the adapter {adapter_name!r} is in use by {count} generators or requests",
                    hint="give them another, or close them",
                )
            del self._loaded[adapter_name]

    def used_by(
        self, user: object, model: Model, adapter_name: str, instead_of: Adapter | None = None
    ) -> Adapter:
        """Return an adapter, which is in use as long as the user is there, or until it is given.

        Args:
            user: Who has it from now on.
            model: The user's model.
            adapter_name: What it is called.
            instead_of: What the user had before.

        Raises:
            Refused: There is none of that name, or it is of another model.
        """
        if model is not self.model:
            raise Refused("the adapters are of another model than this is")
        with self._lock:
            found = self._found(adapter_name)
            if instead_of is not None:
                instead_of.users.discard(user)
            found.users.add(user)
            return found

    @property
    def names(self) -> list[str]:
        """The names of the adapters that are loaded."""
        return sorted(self._loaded)

    def _found(self, name: str) -> Adapter:
        if name not in self._loaded:
            raise Refused(f"there is no adapter {name!r}{did_you_mean(name, self._loaded)}")
        return self._loaded[name]

    def _check(self, adapter: Adapter, file: str) -> None:
        """Compare what a file has with the model's inputs."""
        inputs = self.model.adapter_inputs
        if not inputs.types:
            raise Refused(
                "the model has no inputs for adapters",
                hint="export it with its adapters' matrices as inputs",
            )
        sizes: dict[str, int] = {}
        for name, array in adapter.parameters.items():
            if name not in inputs.types:
                raise Refused(
                    f"{file} has {name!r}, which is no input of the model"
                    f"{did_you_mean(name, inputs.types)}"
                )
            found, expected = OrtValue(array).data_type(), inputs.shapes[name]
            fits = found == inputs.types[name] and array.ndim == len(expected)
            for size, wanted in zip(array.shape, expected, strict=False):
                known = sizes.setdefault(wanted, size) if isinstance(wanted, str) else wanted
                fits = fits and known in (size, None)
            if not fits:
                shown = [sizes.get(str(size), size) for size in expected]
                raise Refused(
                    f"{name!r} in {file} is {found}{list(array.shape)}; the model takes "
                    f"{inputs.types[name]}{shown}"
                )
        if lacking := inputs.asked - adapter.parameters.keys():
            raise Refused(f"{file} has no {min(lacking)!r}, which the model asks for")
