"""Laws of resizing, sampling, normalizing and decoding, for any data."""

from __future__ import annotations

import builtins
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from tenonnx_array import TABLE

SIDES = st.integers(1, 6)
IMAGES = st.tuples(st.just(1), st.integers(1, 3), SIDES, SIDES).flatmap(
    lambda shape: hnp.arrays(np.float32, shape, elements=st.floats(-100, 100, width=32))
)


def run(op: str, *inputs: Any, version: int = 22, outputs: int = 1, **attributes: Any) -> Any:
    kernel = TABLE.find("", op, version)
    assert kernel is not None
    for x in inputs:
        if isinstance(x, np.ndarray):
            x.flags.writeable = False
    return kernel.bind(np, attributes, outputs)(*inputs)


@given(IMAGES, SIDES, SIDES, st.sampled_from(["nearest", "linear", "cubic"]), st.booleans())
def test_a_resized_constant_is_that_constant(
    x: Any, height: int, width: int, mode: str, antialias: bool
) -> None:
    flat = np.full_like(x, x.flat[0])
    sizes = np.int64([*x.shape[:2], height, width])
    y = run("Resize", flat, None, None, sizes, mode=mode, antialias=int(antialias))
    assert y.shape == tuple(sizes)
    np.testing.assert_allclose(y, x.flat[0], rtol=1e-5, atol=1e-5)


@given(hnp.arrays(np.uint8, (1, 1, 4, 5)), SIDES, SIDES)
def test_bytes_of_one_value_keep_it(x: Any, height: int, width: int) -> None:
    flat = np.full_like(x, x.flat[0])
    sizes = np.int64([1, 1, height, width])
    for mode in ("linear", "cubic"):
        assert (run("Resize", flat, None, None, sizes, mode=mode) == x.flat[0]).all()


@given(IMAGES, st.integers(1, 4), st.integers(1, 4))
def test_repeated_elements_come_back(x: Any, rows: int, columns: int) -> None:
    scales = np.float32([1, 1, rows, columns])
    large = run("Resize", x, None, scales)
    np.testing.assert_array_equal(large, x.repeat(rows, axis=2).repeat(columns, axis=3))
    np.testing.assert_array_equal(run("Resize", large, None, 1 / scales), x)


@given(IMAGES, st.sampled_from(["nearest", "linear", "cubic"]), st.integers(0, 1))
def test_the_grid_of_the_identity_returns_the_image(x: Any, mode: str, align: int) -> None:
    theta = np.float32([[[1, 0, 0], [0, 1, 0]]])
    grid = run("AffineGrid", theta, np.int64(x.shape), align_corners=align)
    y = run("GridSample", x, grid, mode=mode, align_corners=align, padding_mode="border")
    np.testing.assert_allclose(y, x, atol=2e-3)


@given(IMAGES)
def test_the_whole_image_is_a_region(x: Any) -> None:
    height, width = x.shape[2:]
    y = run(
        "RoiAlign",
        x,
        np.float32([[0, 0, width, height]]),
        np.int64([0]),
        output_height=height,
        output_width=width,
        sampling_ratio=1,
    )
    np.testing.assert_allclose(y, x, atol=1e-3)


@given(IMAGES, st.floats(-3, 3), st.floats(0.5, 4))
def test_normalized_images_forget_shift_and_scale(x: Any, shift: float, factor: float) -> None:
    x = x + np.arange(x[0, 0].size, dtype=np.float32).reshape(x.shape[2:])
    one, zero = np.ones(x.shape[1], np.float32), np.zeros(x.shape[1], np.float32)
    moved = x * np.float32(factor) + np.float32(shift)
    expected = run("InstanceNormalization", x, one, zero, epsilon=1e-12)
    actual = run("InstanceNormalization", moved, one, zero, epsilon=1e-12)
    np.testing.assert_allclose(actual, expected, atol=5e-3)


def encoded(pixels: Any, form: str = "png") -> Any:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_decoded_pixels_are_those_encoded() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3)).astype(np.uint8)
    for form in ("png", "bmp", "tiff", "ppm"):
        np.testing.assert_array_equal(run("ImageDecoder", encoded(pixels, form)), pixels)
    blue_first = run("ImageDecoder", encoded(pixels), pixel_format="BGR")
    np.testing.assert_array_equal(blue_first, pixels[..., ::-1])
    gray = run("ImageDecoder", encoded(pixels[..., 0]), pixel_format="Grayscale")
    np.testing.assert_array_equal(gray, pixels[..., :1])


@given(st.floats(0, 0.9))
def test_a_cut_stream_is_an_empty_image(part: float) -> None:
    whole = encoded(np.random.default_rng(0).integers(0, 256, (9, 9, 3)).astype(np.uint8))
    assert run("ImageDecoder", whole[: int(part * len(whole))]).shape == (0, 0, 3)


def test_decoding_without_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"tenonnx\[images\]"):
        run("ImageDecoder", np.zeros(4, np.uint8))


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Resize", [np.zeros((1, 2), np.float32)], {}, "found neither"),
        ("Resize", [np.zeros(2), None, np.float32([2, 2])], {}, "for each of 1 axes"),
        ("Resize", [np.zeros(2), None, np.float32([2])], {"mode": "bicubic"}, "'bicubic'"),
        ("GridSample", [np.zeros((1, 1, 2, 2)), np.zeros((1, 2, 2, 3))], {}, "expected a grid"),
        ("AffineGrid", [np.zeros((1, 3, 4)), np.int64([1, 1, 2, 2])], {}, "theta of shape"),
        ("RoiAlign", [np.zeros((1, 1, 2, 2)), np.zeros((1, 5)), np.int64([0])], {}, "rois"),
        ("NonMaxSuppression", [np.zeros((1, 2, 4)), np.zeros((2, 1, 2))], {}, "boxes of shape"),
        ("ImageDecoder", [np.zeros(4, np.uint8)], {"pixel_format": "YUV"}, "'YUV'"),
        ("GroupNormalization", [np.zeros((1, 4, 2))] + [np.ones(4)] * 2, {"num_groups": 3}, "3"),
    ],
)
def test_what_does_not_fit_is_told(
    op: str, inputs: list[Any], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(op, *inputs, **attributes)
