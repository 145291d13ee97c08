"""The CUDA kernels, compiled for the host, against formulas in float64."""

from __future__ import annotations

from typing import Any

import hosted
import numpy as np
import pytest
from kernel_calls import BFLOAT16, FLOATS, chosen, close, draw, needs_compiler

from tenonnx_contrib.fused import FUSED_ACTIVATIONS, fused_conv
from tenonnx_cuda.elementwise.formulas import ENDINGS
from tenonnx_cuda.norm import rows
from tenonnx_cuda.sources import SOURCE_TYPES, header


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("length", [1, 31, 300, 2601, -9000])
def test_softmax(dtype: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last length is one of a row that no block may hold."""
    if length < 0:
        monkeypatch.setattr(rows, "SOFTMAX", ())
        length = -length
    x = draw(0, 3, 2, length, dtype=dtype) * np.asarray(8, dtype)
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    close(chosen("Softmax", 13)(x), p, dtype)
    close(chosen("LogSoftmax", 13)(x), np.log(p), dtype)
    flat = np.exp(x.astype(np.float64).reshape(3, -1))
    close(chosen("Softmax", 11)(x), (flat / flat.sum(-1, keepdims=True)).reshape(x.shape), dtype)


@needs_compiler
@pytest.mark.parametrize("dtype", [FLOATS[0], FLOATS[2]], ids=str)
@pytest.mark.parametrize("length", [50, -9001])
def test_normalizations(dtype: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last length is one of a row that no block may hold."""
    if length < 0:
        monkeypatch.setattr(rows, "NORM", ())
        length = -length
    shape = (2, 3, length)
    x, skip = draw(1, *shape, dtype=dtype) + np.asarray(3, dtype), draw(2, *shape, dtype=dtype)
    scale, bias, extra = (draw(s, length, dtype=dtype) for s in (3, 4, 5))
    wide = [a.astype(np.float64) for a in (x, skip, scale, bias, extra)]

    def layer(v: Any, rms: bool = False) -> tuple[Any, Any, Any]:
        mean = 0 if rms else v.mean(-1, keepdims=True)
        factor = 1 / np.sqrt(((v - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
        return (v - mean) * factor * wide[2], mean, factor

    run = chosen("LayerNormalization", 17, outputs=3, epsilon=1e-5)
    y, mean, factor = run(x, scale, bias)
    expected = layer(wide[0])
    close(y, expected[0] + wide[3], dtype)
    close(mean, expected[1], np.float32)
    close(factor, expected[2], np.float32)
    close(chosen("RMSNormalization", 23, epsilon=1e-5)(x, scale), layer(wide[0], True)[0], dtype)
    run = chosen("SkipLayerNormalization", 1, outputs=4, domain="com.microsoft", epsilon=1e-5)
    y, _, _, total = run(x, skip, scale, bias, extra)
    s = wide[0] + wide[1] + wide[4]
    close(y, layer(s)[0] + wide[3], dtype)
    close(total, s, dtype)
    simple = chosen(
        "SkipSimplifiedLayerNormalization", 1, outputs=1, domain="com.microsoft", epsilon=1e-5
    )
    close(simple(x, skip, scale)[0], layer(wide[0] + wide[1], True)[0], dtype)


def test_statistics_do_not_cancel() -> None:
    """A mean far from zero leaves the variance its digits."""
    if hosted.COMPILER is None:
        pytest.skip("no C++ compiler")
    x = (1000 + draw(0, 2, 400)).astype(np.float32)
    v = x.astype(np.float64)
    expected = (v - v.mean(-1, keepdims=True)) / v.std(-1, keepdims=True)
    y, *_ = chosen("LayerNormalization", 17, epsilon=0.0)(x, np.ones(400, np.float32))
    close(y, expected, np.float32, scale=200)


@needs_compiler
@pytest.mark.parametrize("dtype", FLOATS[:1], ids=str)
@pytest.mark.parametrize(("packed", "interleaved", "turned", "ids"), [
    (False, 0, 0, True), (True, 1, 0, True), (True, 0, 4, False), (False, 1, 4, False),
])  # fmt: skip
def test_rotary_embedding(
    dtype: Any, packed: bool, interleaved: int, turned: int, ids: bool
) -> None:
    x = draw(0, 2, 3, 5, 8, dtype=dtype)
    half = (turned or 8) // 2
    angles = draw(1, 11, half) if ids else draw(1, 2, 5, half)
    cosines, sines = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    where = np.random.default_rng(2).integers(0, 11, (2, 5))
    c, s = (a.astype(np.float64)[where] if ids else a.astype(np.float64) for a in (cosines, sines))
    z = x.astype(np.float64)
    pairs = z[..., : 2 * half]
    a, b = (pairs[..., ::2], pairs[..., 1::2]) if interleaved else np.split(pairs, 2, -1)
    c, s = c[:, None], s[:, None]
    parts = [a * c - b * s, a * s + b * c]
    joined = np.stack(parts, -1).reshape(pairs.shape) if interleaved else np.concatenate(parts, -1)
    expected = np.concatenate([joined, z[..., 2 * half :]], -1)
    given = x.swapaxes(1, 2).reshape(2, 5, 24) if packed else x
    run = chosen("RotaryEmbedding", 23, interleaved=interleaved, rotary_embedding_dim=turned,
                 **({"num_heads": 3} if packed else {}))  # fmt: skip
    y = run(given, cosines, sines, *([where] if ids else []))
    close(y.reshape(2, 5, 3, 8).swapaxes(1, 2) if packed else y, expected, dtype)


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "capability"), [(FLOATS[0], (7, 5)), (FLOATS[1], (8, 0))], ids=str
)
@pytest.mark.parametrize("shape", [
    ((2, 3, 9, 8), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 4, 11, 7), (6, 2, 2, 3), {"group": 2, "strides": [2, 1], "dilations": [1, 2]}),
    ((1, 70, 6, 6), (70, 1, 3, 3), {"group": 70, "auto_pad": "SAME_UPPER"}),
    ((2, 20, 40), (70, 20, 5), {"pads": [4, 0]}),
    ((1, 60, 7, 7), (9, 60, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 6, 7, 5), (4, 3, 1, 1), {"strides": [2, 1], "group": 2}),
])  # fmt: skip
def test_convolution(dtype: Any, shape: Any, capability: tuple[int, int]) -> None:
    """The last but one has so few results that their sums are shared out among blocks."""
    x_shape, w_shape, attributes = shape
    x, w, b = draw(0, *x_shape, dtype=dtype), draw(1, *w_shape, dtype=dtype), draw(2, w_shape[0])
    b = b.astype(dtype)
    expected = convolved(x, w, b, attributes)
    run = chosen("Conv", 11, capability=capability, **attributes)
    close(run(x, w, b), expected, dtype, scale=2)


@needs_compiler
@pytest.mark.parametrize("name", ["", *sorted(ENDINGS.keys() & FUSED_ACTIVATIONS.keys() - {""})])
def test_fused_convolution(name: str) -> None:
    """A sum and an activation, by the array library; a NaN goes through."""
    x, w, b, z = draw(0, 2, 5, 9, 8), draw(1, 6, 5, 3, 3), draw(2, 6), draw(3, 2, 6, 7, 6)
    x[0, 0, 0, 0], x[1, 0, 8, 7] = np.nan, np.inf
    parameters = {"Clip": (-0.5, 1.5), "LeakyRelu": (0.3,)}.get(name, ())
    shared = {"activation": name, "activation_params": parameters}
    kept = {key: value for key, value in shared.items() if value}
    run = chosen("FusedConv", 1, domain="com.microsoft", **kept)
    for more in ((), (z,)):
        with np.errstate(invalid="ignore"):
            expected = fused_conv(np, x, w, b, *more, **shared)  # type: ignore[arg-type]  # strings
        found = run(x, w, b, *more)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(found[infinite], expected[infinite])
        known = np.isfinite(expected)
        close(found[known], expected[known].astype(np.float64), np.float32, 4)


def convolved(x: Any, w: Any, b: Any, attributes: Any) -> Any:
    """The convolution in float64."""
    from direct import convolve as directly

    geometry = {k: v for k, v in attributes.items() if k != "auto_pad"}
    if "auto_pad" in attributes:
        geometry["pads"] = [1, 1, 1, 1]
    return directly(x, w, b, kernel=w.shape[2:], **geometry)


@needs_compiler
def test_convolution_of_rounded_factors() -> None:
    """With use_tf32 it is exact for factors of 10 bits, and close for others."""
    x, w, b = draw(0, 1, 20, 9, 9), draw(1, 17, 20, 3, 3), draw(2, 17)
    run = chosen("Conv", 11, tf32=True, pads=[1, 1, 1, 1])
    short = [a.astype(BFLOAT16).astype(np.float32) for a in (x, w)]
    close(run(*short, b), convolved(*short, b, {"pads": [1] * 4}), np.float32)
    expected = convolved(x, w, b, {"pads": [1] * 4})
    error = np.linalg.norm(run(x, w, b) - expected) / np.linalg.norm(expected)
    assert 1e-5 < error < 1e-3


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "reduction"),
    [
        ("int8", "add"),
        ("uint16", "mul"),
        ("int32", "max"),
        ("int64", "min"),
        ("float16", "add"),
        ("float32", "mul"),
        ("float64", "max"),
    ],
)
def test_scatter(dtype: str, reduction: str) -> None:
    generator = np.random.default_rng(0)
    data = generator.integers(1, 4, (4, 5)).astype(dtype)
    updates = generator.integers(1, 4, (7, 5)).astype(dtype)
    indices = generator.integers(-4, 4, (7, 5))
    expected = data.copy()
    function = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    function.at(expected, (indices, np.arange(5)), updates)
    run = chosen("ScatterElements", 18, reduction=reduction)
    np.testing.assert_array_equal(run(data, indices, updates), expected)
    rows_ = generator.integers(0, 4, (7, 1))
    expected = data.copy()
    function.at(expected, rows_[:, 0], updates)
    run = chosen("ScatterND", 18, reduction=reduction)
    np.testing.assert_array_equal(run(data, rows_, updates), expected)


def test_complex_numbers_are_not_scattered_without_their_imaginary_parts() -> None:
    """They are left to the array library."""
    x, indices = np.ones((2, 3), np.complex64), np.zeros((1, 3), np.int64)
    for op, where in (("ScatterElements", indices), ("ScatterND", indices[:, :1])):
        run = chosen(op, 18, reduction="add", plain=lambda data, *_: data)
        np.testing.assert_array_equal(run(x, where, x[:1]), x)


@needs_compiler
def test_sixteen_bits_round_as_numpy_rounds() -> None:
    text = header("common") + (
        'extern "C" __global__ void copy(const float* x, T* y, float* z, int n) {\n'
        "    for (int i = threadIdx.x; i < n; i += blockDim.x) { put(&y[i], x[i]);"
        " z[i] = number(y[i]); } }\n"
    )
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, dtype=np.uint32)
    x = np.concatenate([bits.view(np.float32), np.float32([0, -0.0, np.inf, -np.inf, 1e-8, 65520])])
    x = x[~np.isnan(x)]
    for dtype in FLOATS[1:]:
        y, z = np.empty(x.size, dtype), np.empty(x.size, np.float32)
        launch = hosted.compile_kernel(text, "copy", (f"-DT={SOURCE_TYPES[dtype]}",))
        launch((1,), (32,), (x, y, z, np.int32(x.size)))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y.view(np.uint16), x.astype(dtype).view(np.uint16))
        np.testing.assert_array_equal(z, y.astype(np.float32))
