"""The comparison of outputs that sees everything: structure, dtypes, shapes and values."""

from __future__ import annotations

from typing import Any

import numpy as np

BFLOAT16_RTOL = 2**-6


def assert_similar(
    expected: Any, actual: Any, rtol: float = 1e-3, atol: float = 1e-7, where: str = "outputs"
) -> None:
    """Fail unless two values are of one structure, with the same dtypes, shapes and values.

    Args:
        expected: Arrays, ``None``, or lists and tuples of such.
        actual: The other result.
        rtol: Relative tolerance of floats; bfloat16's are compared to two units in the last place.
        atol: Absolute tolerance of floats; all else has to be equal.
        where: Its name in messages.
    """
    if expected is None:
        assert actual is None, where
        return
    if isinstance(expected, (list, tuple)):
        assert isinstance(actual, (list, tuple)), where
        assert len(actual) == len(expected), where
        for number, pair in enumerate(zip(expected, actual, strict=True)):
            assert_similar(*pair, rtol, atol, f"{where}[{number}]")
        return
    expected = np.asarray(expected)
    assert isinstance(actual, (np.ndarray, np.generic)), f"{where} is a {type(actual).__name__}"
    assert actual.dtype == expected.dtype, f"{where} is {actual.dtype}, not {expected.dtype}"
    assert actual.shape == expected.shape, f"{where} is {actual.shape}, not {expected.shape}"
    if expected.dtype.kind in "biuOSU":
        np.testing.assert_array_equal(actual, expected, err_msg=where)
        return
    if expected.dtype.name == "bfloat16" and rtol:
        rtol = max(rtol, BFLOAT16_RTOL)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        actual.astype(wide), expected.astype(wide), rtol=rtol, atol=atol, err_msg=where
    )
