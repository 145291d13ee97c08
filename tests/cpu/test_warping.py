from __future__ import annotations

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

from models import node
from tenonnx_contrib.matching import dynamic_time_warping
from tenonnx_cpu.ml import warping

require_kernels()


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 1), (20, 31), (1, 12, 5)])
@pytest.mark.parametrize("odd", [False, True])
def test_paths_are_numpys(
    shape: tuple[int, ...], odd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watch(warping.WARP, monkeypatch)
    costs = np.round(floats(*shape))  # many of which are equal
    if odd:
        costs.reshape(-1)[::3] = np.inf
        costs.reshape(-1)[1::7] = np.nan
    made = session(
        [node("DynamicTimeWarping", "x", "y", domain="com.microsoft")], {"x": costs}, "y",
        domains={"": 21, "com.microsoft": 1}, kinds={"y": 6},
    )  # fmt: skip
    np.testing.assert_array_equal(made.run(None, {"x": costs})[0], dynamic_time_warping(np, costs))
    assert watched.calls == 1
