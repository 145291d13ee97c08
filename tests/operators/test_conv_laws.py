from __future__ import annotations

import tracemalloc
from typing import Any

import direct
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tenonnx_array import TABLE


def kernel(op: str, version: int = 28, outputs: int = 1, **attributes: Any) -> Any:
    found = TABLE.find("", op, version)
    assert found is not None
    return found.bind(np, attributes, outputs)


def integers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float64)


SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def geometries(draw: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The size of an image, and windows that fit into it with its padding."""
    rank = draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = rank) -> tuple[int, ...]:
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    kernel, strides, dilations = each(1, 4), each(1, 4), each(1, 3)
    pads = each(0, 3, 2 * rank)
    size = each(1, 8 if rank < 3 else 5)
    totals = np.array(size) + pads[:rank] + pads[rank:]
    assume(np.all((np.array(kernel) - 1) * dilations < totals))
    windows = {"strides": strides, "dilations": dilations, "pads": pads}
    return size, windows | {"kernel_shape": kernel}


GROUPS = st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 1, 1), (2, 2, 3), (4, 1, 2)])


@given(geometries(), GROUPS, st.integers(1, 3), SEEDS)
def test_convolution_is_a_sum_over_windows(
    geometry: Any, groups: tuple[int, int, int], n: int, seed: int
) -> None:
    size, windows = geometry
    group, c, m = groups
    x = integers(seed, n, group * c, *size)
    w = integers(seed + 1, group * m, c, *windows["kernel_shape"])
    b = integers(seed + 2, group * m)
    y = kernel("Conv", group=group, **windows)(x, w, b)
    named = {"kernel" if k == "kernel_shape" else k: v for k, v in windows.items()}
    np.testing.assert_array_equal(y, direct.convolve(x, w, b, group=group, **named))


@given(geometries(), GROUPS, SEEDS)
def test_transposed_convolution_is_the_adjoint(
    geometry: Any, groups: tuple[int, int, int], seed: int
) -> None:
    size, windows = geometry
    group, c, m = groups
    x = integers(seed, 2, group * c, *size)
    w = integers(seed + 1, group * m, c, *windows["kernel_shape"])
    y = kernel("Conv", group=group, **windows)(x, w)
    other = integers(seed + 2, *y.shape)
    begins, ends = np.split(np.array(windows["pads"]), 2)
    reach = (np.array(windows["kernel_shape"]) - 1) * windows["dilations"] + 1
    least = (np.array(y.shape[2:]) - 1) * windows["strides"] + reach - begins - ends
    rest = tuple(map(int, size - least))
    back = kernel("ConvTranspose", group=group, output_padding=rest, **windows)(other, w)
    assert back.shape == x.shape
    assert np.vdot(y, other) == np.vdot(x, back)


@given(geometries(), st.booleans(), SEEDS)
def test_pooling_looks_at_every_window(geometry: Any, ceil: bool, seed: int) -> None:
    size, windows = geometry
    x = integers(seed, 2, 3, *size)
    named = {"kernel" if k == "kernel_shape" else k: v for k, v in windows.items()}
    expected = direct.maximum(x, ceil=ceil, **named)
    y = kernel("MaxPool", ceil_mode=int(ceil), **windows)(x)[0]
    np.testing.assert_array_equal(y, expected)
    best, places = kernel("MaxPool", outputs=2, ceil_mode=int(ceil), **windows)(x)
    np.testing.assert_array_equal(best, expected)
    seen = np.isfinite(best)
    np.testing.assert_array_equal(x.reshape(-1)[places[seen]], best[seen])
    first = direct.places(x, ceil=ceil, **named)
    np.testing.assert_array_equal(places[seen], first[seen])


@given(geometries(), st.booleans(), SEEDS)
def test_the_mean_counts_what_it_sums(geometry: Any, padding: bool, seed: int) -> None:
    size, windows = geometry
    x = integers(seed, 1, 2, *size)
    pool = kernel("AveragePool", count_include_pad=int(padding), **windows)
    ones = pool(np.ones_like(x))
    assert np.all((ones >= 0) & (ones <= 1))
    if not padding:
        assert np.all((ones == 0) | (ones == 1))
    np.testing.assert_allclose(pool(x + 3), pool(x) + 3 * ones, atol=1e-12)


@given(geometries(), SEEDS)
def test_offsets_by_whole_elements_shift_the_image(geometry: Any, seed: int) -> None:
    size, windows = geometry
    kernel_shape = windows["kernel_shape"]
    x, w = integers(seed, 1, 4, *size), integers(seed + 1, 2, 2, *kernel_shape)
    shift = np.random.default_rng(seed).integers(-2, 3, len(size))
    plain = kernel("Conv", group=2, **windows)
    output = plain(x, w).shape[2:]
    offset = np.broadcast_to(
        shift.reshape(-1, *(1,) * len(output)).astype(np.float64), (len(size), *output)
    )
    offset = np.tile(offset, (2 * int(np.prod(kernel_shape)), *(1,) * len(output)))[None]
    moved = np.pad(x, [(0, 0), (0, 0), *((4, 4) for _ in size)])
    moved = np.roll(moved, -shift, axis=tuple(range(2, x.ndim)))
    wider = windows | {"pads": (0,) * (2 * len(size))}
    begins = windows["pads"][: len(size)]
    ends = windows["pads"][len(size) :]
    cut = [slice(4 - b, 4 + n + e) for n, b, e in zip(size, begins, ends, strict=True)]
    expected = kernel("Conv", group=2, **wider)(moved[(..., *cut)], w)
    actual = kernel("DeformConv", group=2, offset_group=2, **windows)(x, w, offset)
    np.testing.assert_array_equal(actual, expected)


@given(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=4), SEEDS)
def test_state_carries_a_causal_convolution(k: int, lengths: list[int], seed: int) -> None:
    x, w, b = integers(seed, 2, 3, sum(lengths)), integers(seed, 3, 1, k), integers(seed, 3)
    run = kernel("CausalConvWithState", outputs=2)
    whole, last = run(x, w, b)
    state, parts = None, []
    for part in np.split(x, np.cumsum(lengths)[:-1], axis=2):
        y, state = run(part, w, b, state)
        parts.append(y)
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), whole)
    np.testing.assert_array_equal(state, last)
    np.testing.assert_array_equal(
        whole, direct.convolve(x, w, b, kernel=(k,), pads=(k - 1, 0), group=3)
    )


@given(st.integers(1, 3), st.integers(1, 4), SEEDS)
def test_unpooling_then_pooling_gives_back(k: int, count: int, seed: int) -> None:
    x = np.random.default_rng(seed).random((2, 3, k * count, k * count)) + 1
    square: dict[str, Any] = {"kernel_shape": (k, k), "strides": (k, k)}
    top, places = kernel("MaxPool", outputs=2, **square)(x)
    sparse = kernel("MaxUnpool", **square)(top, places)
    assert sparse.shape == x.shape
    np.testing.assert_array_equal(kernel("MaxPool", **square)(sparse)[0], top)
    np.testing.assert_array_equal(sparse[sparse != 0], x[sparse != 0])


def peak(call: Any, *inputs: Any) -> int:
    call(*inputs)
    tracemalloc.start()
    try:
        call(*inputs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


BATCH = np.ones((8, 64, 56, 56), np.float32)


@pytest.mark.parametrize(
    ("call", "w", "most"),
    [
        (kernel("Conv", pads=(1, 1, 1, 1)), np.ones((64, 64, 3, 3), np.float32), 5 << 20),
        (kernel("Conv", group=64, pads=(3, 3, 3, 3)), np.ones((64, 1, 7, 7), np.float32), 5 << 20),
        (kernel("Conv"), np.ones((64, 64, 1, 1), np.float32), 1 << 20),
        (kernel("ConvTranspose"), np.ones((64, 64, 3, 3), np.float32), 10 << 20),
    ],
    ids=["general", "depthwise", "pointwise", "transposed"],
)
def test_convolution_takes_little_beyond_its_result(call: Any, w: Any, most: int) -> None:
    assert peak(call, BATCH, w) - call(BATCH, w).nbytes <= most


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "says"),
    [
        ("Conv", [(1, 4, 5, 5), (2, 3, 3, 3)], {}, "found \\(2, 3, 3, 3\\)"),
        ("Conv", [(1, 4, 5, 5), (3, 2, 3, 3)], {"group": 2}, "divisible by group=2"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3)], {}, "same rank"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3, 3)], {"kernel_shape": (2, 3)}, "kernel_shape"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 6, 3)], {}, "spans 6"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3, 3)], {"strides": (0, 1)}, "strides .* at least 1"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3, 3)], {"strides": (1,)}, "strides to be 2 numbers"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3, 3)], {"pads": (1, 1)}, "pads to be 4 numbers"),
        ("Conv", [(1, 4, 5, 5), (2, 4, 3, 3)], {"auto_pad": "SAME"}, "auto_pad"),
        ("ConvTranspose", [(1, 4, 5, 5), (3, 2, 3, 3)], {}, "found \\(3, 2, 3, 3\\)"),
        ("ConvTranspose", [(1, 4, 5, 5), (4, 2, 3, 3)], {"strides": (2,)}, "strides to be 2"),
        ("ConvTranspose", [(1, 4, 2, 2), (4, 2, 1, 1)], {"pads": (1, 1, 1, 1)}, "at least 1"),
        ("MaxPool", [(1, 4, 5, 5)], {"kernel_shape": (3,)}, "kernel_shape to be 2 numbers"),
        ("AveragePool", [(1, 4, 5, 5)], {"kernel_shape": (3, 7)}, "spans 7"),
        ("DeformConv", [(1, 4, 5, 5), (2, 4, 3, 3), (1, 9, 3, 3)], {}, "offset of shape"),
        ("MaxUnpool", [(1, 1, 2, 2), (1, 1, 2, 3)], {"kernel_shape": (2, 2)}, "indices"),
    ],
)
def test_what_does_not_fit_is_named(op: str, shapes: Any, attributes: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        kernel(op, **attributes)(*(np.zeros(shape, np.float32) for shape in shapes))


def test_places_beyond_the_image_are_refused() -> None:
    unpool = kernel("MaxUnpool", kernel_shape=(2,), strides=(2,))
    with pytest.raises(ValueError, match="found 4"):
        unpool(np.ones((1, 1, 2), np.float32), np.array([[[0, 4]]]))
