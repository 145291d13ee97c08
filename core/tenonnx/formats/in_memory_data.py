"""Tensors and files that callers hand over in memory instead of leaving them to the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.errors import InvalidArgument, NotFound, did_you_mean

if TYPE_CHECKING:
    from tenonnx.weights.registry import WeightRegistry
    from tenonnx.weights.weight import Weight


@dataclass(frozen=True)
class Supplied:
    """The caller's data in place of a model's own; used without a copy.

    Attributes:
        initializers: Values by the initializers' names: arrays, or what has a ``numpy`` method.
        files: Buffers by the names of files of external data.
    """

    initializers: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.initializers or self.files)

    def weight(self, registry: WeightRegistry, tensor: Any, name: str) -> Weight:
        """Return the weight that an initializer is to be.

        Raises:
            InvalidArgument: It differs from the model's in element type or shape.
        """
        given = self.initializers[name]
        array = given.numpy() if hasattr(given, "numpy") else np.asarray(given)
        dtype, shape = tensor.dtype, tuple(tensor.shape.numpy())
        if array.dtype != dtype.numpy() or array.shape != shape:
            raise InvalidArgument(
                f"initializer {name!r}: expected {dtype.name}{list(shape)}, got {array.dtype}"
                f"{list(array.shape)}"
            )
        return registry.from_array(array, dtype)

    def refuse_unknown(self, names: Iterable[str]) -> None:
        """Refuse values of initializers that the model has not.

        Raises:
            NotFound: There is such a value.
        """
        known = set(names)
        for name in self.initializers:
            if name not in known:
                raise NotFound(
                    f"the model has no initializer {name!r}{did_you_mean(name, sorted(known))}"
                )


NO_DATA = Supplied()
