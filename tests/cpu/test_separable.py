"""Blocks of depthwise convolutions between those of 1 x 1, as one kernel, against float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from running import Watch, floats, run
from scipy import special
from windows_oracle import convolve

from models import node
from tenonnx_cpu.conv import separable, separable_layout
from tenonnx_cpu.conv.conv import CONV
from tenonnx_cpu.jit.code.cpu import cpu

pytestmark = pytest.mark.skipif(cpu().lanes < 8, reason="vectors cannot be loaded in part")


class Block(NamedTuple):
    x: tuple[int, ...]
    hidden: int
    rows: int
    kernel: int = 3
    stride: int = 1
    pads: tuple[int, ...] = (1, 1, 1, 1)
    expands: bool = True
    residual: bool = False
    activation: str = "Relu"
    scaled: bool = False


BLOCKS = [
    Block((1, 16, 20, 20), 48, 16, residual=True),
    Block((1, 16, 21, 19), 48, 24, stride=2),
    Block((2, 9, 17, 23), 40, 11, kernel=5, stride=2, pads=(2, 1, 2, 2)),
    Block((1, 24, 13, 40), 24, 10, expands=False),
    Block((2, 40, 16, 9), 40, 33, stride=2, expands=False, residual=True),
    Block((1, 20, 12, 12), 300, 20, residual=True, scaled=True),
    Block((1, 12, 15, 15), 36, 12, activation="Sigmoid"),
    Block((1, 12, 15, 15), 36, 12, activation="HardSwish", scaled=True),
    Block((1, 8, 33, 31), 16, 8, kernel=7, pads=(3, 3, 3, 3)),
]

MEANING = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": special.expit,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
}


def graph(block: Block) -> tuple[list[Any], dict[str, Any]]:
    nodes: list[Any] = []
    weights: dict[str, Any] = {}

    def conv(x: str, name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        weights[f"w{name}"] = floats(*shape, seed=len(nodes), scale=1 / np.prod(shape[1:]) ** 0.5)
        weights[f"b{name}"] = floats(shape[0], seed=len(nodes) + 1)
        nodes.append(node("Conv", f"{x} w{name} b{name}", f"c{name}", **attributes))
        if block.scaled:
            for part, seed in (("s", 1), ("o", 2), ("m", 3), ("v", 4)):
                weights[f"{part}{name}"] = np.abs(floats(shape[0], seed=seed)) + np.float32(0.5)
            names = " ".join(f"{part}{name}" for part in "somv")
            nodes.append(node("BatchNormalization", f"c{name} {names}", f"n{name}"))
            return f"n{name}"
        return f"c{name}"

    x = "x"
    if block.expands:
        made = conv(x, "1", (block.hidden, block.x[1], 1, 1))
        nodes.append(node(block.activation, made, "a"))
        x = "a"
    made = conv(
        x, "2", (block.hidden, 1, block.kernel, block.kernel), group=block.hidden,
        pads=block.pads, strides=[block.stride] * 2,
    )  # fmt: skip
    nodes.append(node(block.activation, made, "d"))
    made = conv("d", "3", (block.rows, block.hidden, 1, 1))
    nodes.append(node("Add", f"{made} r", "y") if block.residual else node("Relu", made, "y"))
    return nodes, weights


def expected(block: Block, x: Any, r: Any, weights: dict[str, Any]) -> Any:
    def conv(x: Any, name: str, **attributes: Any) -> Any:
        y = convolve(x, weights[f"w{name}"], **attributes) + weights[f"b{name}"][:, None, None]
        if not block.scaled:
            return y
        s, o, m, v = (weights[f"{part}{name}"].astype(float)[:, None, None] for part in "somv")
        return (y - m) / np.sqrt(v + 1e-5) * s + o

    activate = MEANING[block.activation]
    y = activate(conv(x, "1")) if block.expands else x
    strides = [block.stride] * 2
    y = activate(conv(y, "2", strides=strides, pads=block.pads, group=block.hidden))
    y = conv(y, "3")
    return y + r if block.residual else np.maximum(y, 0)


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("band", [1 << 10, 1 << 20], ids=["bands", "whole"])
def test_block(block: Block, threads: int, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separable, "LEAST", 0)
    monkeypatch.setattr(separable_layout, "BAND", band)
    separable_layout.separable_layout.cache_clear()
    watch = Watch(separable.SEPARABLE, monkeypatch)
    nodes, weights = graph(block)
    x = floats(*block.x, seed=9)
    size = [
        (n + before + after - block.kernel) // block.stride + 1
        for n, before, after in zip(block.x[2:], block.pads[:2], block.pads[2:], strict=True)
    ]
    r = floats(block.x[0], block.rows, *size, seed=10)
    feeds = {"x": x} | ({"r": r} if block.residual else {})
    y = run(nodes, feeds, "y", weights, threads=threads)
    separable_layout.separable_layout.cache_clear()
    assert watch.calls == 1
    np.testing.assert_allclose(y, expected(block, x, r, weights), rtol=1e-4, atol=2e-5)


def test_small_images_are_convolved_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, each = Watch(separable.SEPARABLE, monkeypatch), Watch(CONV, monkeypatch)
    block = BLOCKS[0]
    nodes, weights = graph(block)
    x, r = floats(*block.x, seed=9), floats(1, 16, 20, 20, seed=10)
    y = run(nodes, {"x": x, "r": r}, "y", weights)
    assert (whole.calls, each.calls) == (0, 2)
    np.testing.assert_allclose(y, expected(block, x, r, weights), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("read", ["a", "d"])
def test_what_others_read_is_made(read: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(separable, "LEAST", 0)
    watch = Watch(separable.SEPARABLE, monkeypatch)
    block = BLOCKS[1]
    nodes, weights = graph(block)
    x = floats(*block.x, seed=9)
    y, other = run(nodes, {"x": x}, f"y {read}", weights)
    assert watch.calls == (read == "a"), "only the last two convolutions are a block then"
    assert other.shape[1] == block.hidden
    np.testing.assert_allclose(y, expected(block, x, None, weights), rtol=1e-4, atol=2e-5)
