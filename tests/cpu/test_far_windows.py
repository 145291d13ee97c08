"""Windows of which a file says that they are farther apart than any image is long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import floats, run

from models import node

FAR = 1 << 61

NEAR: dict[str, Any] = {"kernel_shape": [2, 1], "strides": [2, 1]}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_one_window_of_any_stride(op: str) -> None:
    feeds = {"x": floats(1, 3, 2, 5)}
    far = run([node(op, "x", "y", **NEAR | {"strides": [FAR, 1]})], feeds, "y")
    np.testing.assert_array_equal(far, run([node(op, "x", "y", **NEAR)], feeds, "y"))


@pytest.mark.parametrize("group", [1, 3])
def test_taps_that_see_padding_alone(group: int) -> None:
    """Of three taps, the one in the middle sees the image."""
    feeds = {"x": floats(1, 3, 2, 5), "w": floats(3, 3 // group, 3, 1)}
    far = {"dilations": [FAR, 1], "pads": [FAR, 0, FAR, 0], "strides": [1, 1], "group": group}
    near = far | {"dilations": [2, 1], "pads": [2, 0, 2, 0]}
    found, expected = (run([node("Conv", "x w", "y", **each)], feeds, "y") for each in (far, near))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
