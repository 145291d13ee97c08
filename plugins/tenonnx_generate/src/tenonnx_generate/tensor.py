"""``Tensor``: an array by onnxruntime-genai's names."""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, np.dtype[Any]]

# Element types of caches and adapters, by onnxruntime's names.
FLOAT_NAMES = {"tensor(bfloat16)": "", "tensor(float)": "float32", "tensor(float16)": "float16"}

# Element types of ids, masks and positions.
IDS: dict[str, np.dtype[Any]] = {
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int64)": np.dtype(np.int64),
}


def float_type(name: str) -> np.dtype[Any]:
    """Return one of them as numpy's."""
    if not FLOAT_NAMES[name]:
        import ml_dtypes

        wide: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return wide
    return np.dtype(FLOAT_NAMES[name])


class Tensor:
    """An array.

    Args:
        array: It, or what ``numpy.asarray`` takes.
    """

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    def as_numpy(self) -> NDArray:
        """Return the array."""
        return self._array

    def shape(self) -> list[int]:
        """Return its shape."""
        return list(self._array.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        array = np.asarray(self._array, dtype)
        return array.copy() if copy else array
