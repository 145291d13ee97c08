from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

import tenonnx
from models import node
from tenonnx_cpu.attention.rotary_operator import EMBED

require_kernels()

HEADS, SIZE, ROWS = 3, 16, 40


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(EMBED, monkeypatch)


def problem(packed: bool, positions: str, pairs: int) -> dict[str, Any]:
    batch, length = (1, 1) if positions == "one token" else (2, 5)
    base = floats(batch, length, HEADS, SIZE)
    x = base.reshape(batch, length, -1) if packed else base.swapaxes(1, 2)
    shape = (batch, length, pairs) if positions == "own" else (ROWS, pairs)
    angles = floats(*shape, seed=1)
    feeds = {"x": x, "cos": np.cos(angles), "sin": np.sin(angles)}
    if positions == "start":
        feeds["ids"] = np.array([ROWS - length])
    elif positions != "own":
        feeds["ids"] = np.random.default_rng(2).integers(0, ROWS, (batch, length))
    return feeds


def compare(feeds: Any, inputs: str, kernel: Watch, patch: pytest.MonkeyPatch, **given: Any) -> Any:
    """Return what a node gives, having seen that numpy's kernel gives the same."""
    made = node("RotaryEmbedding", inputs, "y", **given)
    domains = {"com.microsoft": 1} if "domain" in given else None
    one = session([made], feeds, "y", opset=23, kinds={"ids": 7}, domains=domains)
    (fast,) = one.run(None, feeds)
    assert kernel.calls == 1
    patch.setattr(EMBED, "run", None)
    (numpys,) = one.run(None, feeds)
    assert fast.shape == numpys.shape == feeds["x"].shape
    np.testing.assert_allclose(fast, numpys, rtol=1e-6, atol=1e-6)
    return fast


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("positions", ["own", "each", "one token"])
@pytest.mark.parametrize("part", [0, 6])
def test_the_operator(
    packed: bool,
    interleaved: int,
    positions: str,
    part: int,
    kernel: Watch,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feeds = problem(packed, positions, (part or SIZE) // 2)
    given = {"interleaved": interleaved, "rotary_embedding_dim": part}
    if packed:
        given["num_heads"] = HEADS
    inputs = "x cos sin ids" if "ids" in feeds else "x cos sin"
    y = compare(feeds, inputs, kernel, monkeypatch, **given)
    x = feeds["x"]
    if packed:
        x, y = (a.reshape(*a.shape[:2], HEADS, -1).swapaxes(1, 2) for a in (x, y))
    np.testing.assert_array_equal(y[..., part or SIZE :], x[..., part or SIZE :])
    # What is turned keeps its length.
    turned = part or SIZE
    norms = [np.linalg.norm(a[..., :turned].astype(np.float64), axis=-1) for a in (x, y)]
    np.testing.assert_allclose(*norms, rtol=1e-6)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("positions", ["start", "each", "one token"])
def test_microsofts_operator(
    packed: bool, positions: str, kernel: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = problem(packed, positions, SIZE // 2)
    compare(feeds, "x ids cos sin", kernel, monkeypatch, domain="com.microsoft")


@pytest.mark.parametrize("last", [-1, ROWS])
def test_positions_without_angles_are_refused(
    last: int, kernel: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = problem(False, "each", SIZE // 2)
    feeds["ids"][1, 4] = last
    for mode in ("1", "0"):
        monkeypatch.setenv("TENONNX_JIT", mode)
        one = session([node("RotaryEmbedding", "x cos sin ids", "y")], feeds, "y", opset=23,
                      kinds={"ids": 7})  # fmt: skip
        with pytest.raises(tenonnx.RuntimeException, match=rf"position_ids from 0 to .*{last}"):
            one.run(None, feeds)
    assert kernel.calls == 1
