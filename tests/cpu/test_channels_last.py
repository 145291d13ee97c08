"""Images that have their channels last between convolutions, against float64."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from running import Watch, floats, run, session
from scipy import special
from windows_oracle import convolve

from models import node
from tenonnx_cpu.conv import conv, inverted_residual, layout_assignment
from tenonnx_cpu.conv.inverted_residual import EXPANDED
from tenonnx_cpu.conv.layout_assignment import SUITED
from tenonnx_cpu.conv.select import CHANNELS, CONV, DEPTHWISE, PIXELS
from tenonnx_cpu.data_movement.ordered_copies import TRANSPOSE

pytestmark = pytest.mark.skipif(not SUITED, reason="vectors cannot be loaded in part")


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
    Block((1, 8, 21, 18), 24, 8, kernel=2, stride=2, pads=(1, 0, 0, 0)),
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
def test_block(block: Block, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    places, channels = Watch(PIXELS, monkeypatch), Watch(CHANNELS, monkeypatch)
    both = Watch(EXPANDED, monkeypatch)
    nodes, weights = graph(block)
    x = floats(*block.x, seed=9)
    size = [
        (n + before + after - block.kernel) // block.stride + 1
        for n, before, after in zip(block.x[2:], block.pads[:2], block.pads[2:], strict=True)
    ]
    r = floats(block.x[0], block.rows, *size, seed=10)
    feeds = {"x": x} | ({"r": r} if block.residual else {})
    y = run(nodes, feeds, "y", weights, threads=threads)
    # The last one's result is the graph's, and has its channels first.
    fused = block.expands and inverted_residual.SUITED
    calls = 1 + (block.expands and not fused), 1 - fused, fused
    assert (places.calls, channels.calls, both.calls) == calls
    assert y.flags.c_contiguous
    np.testing.assert_allclose(y, expected(block, x, r, weights), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("lines", [1, 2, 7])
@pytest.mark.parametrize(
    ("kernel", "stride", "pads"),
    [(3, 1, [1] * 4), (3, 2, [1] * 4), (5, 2, [7, 0, 9, 1]), (7, 1, [0] * 4), (2, 2, [5] * 4)],
)
def test_expanded_band_by_band(
    kernel: int, stride: int, pads: list[int], lines: int, last: bool, threads: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Lines that two bands see are kept, and windows may see padding alone."""
    both, panel = Watch(EXPANDED, monkeypatch), inverted_residual.PANEL_CHANNELS
    monkeypatch.setattr(
        inverted_residual, "MAX_BAND_FLOATS", panel * 17 * ((lines - 1) * stride + kernel)
    )
    monkeypatch.setattr(inverted_residual, "MAX_TASK_PRODUCTS", 1 << 17)
    inverted_residual.expanded_layout.cache_clear()
    x, w, b = floats(2, 6, 23, 17), floats(43, 6, 1, 1, seed=1), floats(43, seed=2)
    v, c = floats(43, 1, kernel, kernel, seed=3), floats(43, seed=4)
    slid = {"group": 43, "strides": [stride] * 2, "pads": pads}
    nodes = [node("Conv", "x w b", "a"), node("LeakyRelu", "a", "e", alpha=0.1)]
    nodes += [node("Conv", "e v c", "d", **slid), node("Relu", "d", "r")]
    nodes += [node("Conv", "r u", "z")]
    u = floats(5, 43, 1, 1, seed=5)
    if last:
        nodes = [node("Conv", "i t", "x", strides=[1, 1]), *nodes]
    t = floats(6, 6, 1, 1, seed=6)
    weights = {"w": w, "b": b, "v": v, "c": c, "u": u} | ({"t": t} if last else {})
    z = run(nodes, {"i" if last else "x": x}, "z", weights, threads=threads)
    inverted_residual.expanded_layout.cache_clear()
    assert both.calls == inverted_residual.SUITED
    made = convolve(convolve(x, t) if last else x, w) + b[:, None, None]
    made = convolve(np.where(made < 0, 0.1 * made, made), v, **slid) + c[:, None, None]
    wanted = convolve(np.maximum(made, 0), u)
    np.testing.assert_allclose(z, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.skipif(not inverted_residual.SUITED, reason="both convolutions are steps of their own")
def test_other_shapes_take_the_same_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    block = BLOCKS[1]
    nodes, weights = graph(block)
    one = session(nodes, {"x": floats(*block.x)}, "y", weights)
    one.run(None, {"x": floats(*block.x)})
    monkeypatch.setattr(inverted_residual, "packed", None)
    for seed, height in enumerate((9, 16)):
        x = floats(1, 16, height, 19, seed=seed)
        (y,) = one.run(None, {"x": x})
        np.testing.assert_allclose(y, expected(block, x, None, weights), rtol=1e-4, atol=2e-5)


def test_what_others_read_has_its_channels_first(monkeypatch: pytest.MonkeyPatch) -> None:
    places, each = Watch(PIXELS, monkeypatch), Watch(DEPTHWISE, monkeypatch)
    block = BLOCKS[1]
    nodes, weights = graph(block)
    x = floats(*block.x, seed=9)
    y, other = run(nodes, {"x": x}, "y a", weights)
    assert (places.calls, each.calls) == (1, 0)
    assert other.flags.c_contiguous
    assert other.shape[1] == block.hidden
    np.testing.assert_allclose(y, expected(block, x, None, weights), rtol=1e-4, atol=2e-5)


def test_rows_of_places_are_convolved_as_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are an image with its channels last, and so is what becomes tokens again."""
    channels, copies = Watch(CHANNELS, monkeypatch), Watch(TRANSPOSE, monkeypatch)
    x, v, w = floats(1, 9 * 14, 40), floats(40, 1, 3, 3, seed=1), floats(40, 24, seed=2)
    weights = {"v": v, "w": w, "image": np.array([1, 40, 9, 14]), "row": np.array([1, 40, -1])}
    nodes = [
        node("Neg", "x", "t"), node("Transpose", "t", "o", perm=[0, 2, 1]),
        node("Reshape", "o image", "i"), node("Conv", "i v", "c", group=40, pads=[1] * 4),
        node("Reshape", "c row", "r"), node("Transpose", "r", "u", perm=[0, 2, 1]),
        node("Sigmoid", "u", "s"), node("MatMul", "s w", "y"),
    ]  # fmt: skip
    y = run(nodes, {"x": x}, "y", weights, threads=2, shapes={"x": [1, 9 * 14, 40]})
    assert (channels.calls, copies.calls) == (1, 0)
    image = -x.transpose(0, 2, 1).reshape(1, 40, 9, 14)
    made = convolve(image, v, group=40, pads=[1] * 4).reshape(1, 40, -1).transpose(0, 2, 1)
    np.testing.assert_allclose(y, special.expit(made) @ w, rtol=1e-4, atol=2e-5)


def test_a_residual_with_its_channels_first_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = []

    def flat(array: Any) -> Any:
        made = plain(array)
        copied.append(not np.shares_memory(made, array))
        return made

    plain = conv.flat
    monkeypatch.setattr(conv, "flat", flat)
    block = BLOCKS[0]
    nodes, weights = graph(block)
    x, r = floats(*block.x, seed=9), floats(*block.x, seed=10)
    nodes = [*nodes, node("GlobalAveragePool", "y", "z")]
    z = run(nodes, {"x": x, "r": r}, "z", weights)
    assert copied
    assert not any(copied)
    mean = expected(block, x, r, weights).mean((2, 3), keepdims=True)
    np.testing.assert_allclose(z, mean, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("size", [(4, 5), (23, 9)])
def test_depthwise_result_with_its_channels_first(
    kernel: int, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(CHANNELS, monkeypatch)
    x, r = floats(2, 7, *size, seed=1), floats(2, 21, *size, seed=2)
    w, v = floats(21, 7, 1, 1, seed=3), floats(21, 1, kernel, kernel, seed=4)
    around = {"group": 21, "pads": [kernel // 2] * 4}
    nodes = [node("Conv", "x w", "a"), node("Conv", "a v", "c", **around)]
    nodes += [node("Add", "c r", "s"), node("Sigmoid", "s", "y")]
    y = run(nodes, {"x": x, "r": r}, "y", {"w": w, "v": v})
    assert watch.calls == 1
    wanted = special.expit(convolve(convolve(x, w), v, **around) + r)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


class Dense(NamedTuple):
    x: tuple[int, ...]
    rows: int
    kernel: tuple[int, int]
    attributes: dict[str, Any]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "case",
    [
        Dense((1, 3, 31, 34), 40, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        Dense((2, 17, 14, 15), 33, (3, 3), {"strides": [2, 1], "pads": [0, 2, 1, 0]}),
        Dense((1, 20, 20, 9), 8, (3, 2), {"dilations": [12, 1], "pads": [12, 0, 12, 0]}),
        Dense((1, 9, 12, 30), 70, (1, 1), {"strides": [2, 2]}),
        Dense((3, 5, 7, 7), 6, (5, 4), {"pads": [2, 1, 2, 2]}),
    ],
    ids=str,
)
def test_dense_kernels_from_and_to_channels_last(
    case: Dense, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first takes channels first and leaves them last, the second does the opposite."""
    monkeypatch.setattr(layout_assignment, "_has_depthwise", lambda _: True)
    places, other = Watch(PIXELS, monkeypatch), Watch(CONV, monkeypatch)
    x = floats(*case.x, seed=1)
    w = floats(case.rows, case.x[1], *case.kernel, seed=2, scale=0.1)
    v = floats(case.x[1], case.rows, *case.kernel, seed=3, scale=0.1)
    b = floats(case.rows, seed=4)
    nodes = [node("Conv", "x w b", "c", **case.attributes), node("Relu", "c", "a")]
    nodes.append(node("Conv", "a v", "y", **case.attributes))
    feeds = {"x": x}
    made = session(nodes, feeds, "y", {"w": w, "v": v, "b": b}, threads=threads)
    plain = np.maximum(convolve(x, w, **case.attributes) + b[:, None, None], 0)
    wanted = convolve(plain, v, **case.attributes)
    for _ in range(4):
        (y,) = made.run(None, feeds)
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    assert (places.calls, other.calls) == (8, 0)


def test_without_depthwise_convolutions_no_weights_are_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places, other = Watch(PIXELS, monkeypatch), Watch(CONV, monkeypatch)
    x, w, v = floats(1, 20, 14, 14), floats(40, 20, 1, 1), floats(20, 40, 1, 1)
    nodes = [node("Conv", "x w", "c"), node("Relu", "c", "a"), node("Conv", "a v", "y")]
    y = run(nodes, {"x": x}, "y", {"w": w, "v": v})
    assert (places.calls, other.calls) == (0, 2)
    np.testing.assert_allclose(y, convolve(np.maximum(convolve(x, w), 0), v), rtol=1e-4, atol=1e-3)


def test_gates_and_sums_between_convolutions() -> None:
    """A squeeze-and-excite block, whose gate and sum are not part of any convolution."""
    weights = {
        "w": floats(24, 5, 1, 1), "d": floats(24, 1, 3, 3, seed=1), "s": floats(6, 24, 1, 1),
        "e": floats(24, 6, 1, 1, seed=2), "p": floats(5, 24, 1, 1, seed=3, scale=0.2),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w", "a"), node("Conv", "a d", "c", group=24, pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", "c", "m"), node("Conv", "m s", "n"), node("Relu", "n", "o"),
        node("Conv", "o e", "q"), node("Sigmoid", "q", "g"), node("Mul", "g c", "h"),
        node("Add", "h a", "i"), node("Conv", "i p", "y"),
    ]  # fmt: skip
    x = floats(2, 5, 11, 9, seed=5)
    made = session(nodes, {"x": x}, "y", weights)
    a = convolve(x, weights["w"])
    c = convolve(a, weights["d"], group=24, pads=[1, 1, 1, 1])
    mean = c.mean(axis=(2, 3), keepdims=True)
    gate = special.expit(convolve(np.maximum(convolve(mean, weights["s"]), 0), weights["e"]))
    wanted = convolve(c * gate + a, weights["p"])
    for _ in range(4):
        (y,) = made.run(None, {"x": x})
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
