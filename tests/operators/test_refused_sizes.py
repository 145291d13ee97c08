"""Tensors whose size is in the data or the attributes are refused before they fill the memory."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from case import Case
from cases import feeds_of, model_of

import tenonnx
from tenonnx_array import allocation

MANY = 1999
"""Of a square that takes more than the memory that the tests pretend to have."""

X = np.ones((2, 3), np.float32)
IMAGE = np.ones((1, 1, 4, 4), np.float32)
BYTES = np.ones((1, 1, 4, 4), np.uint8)
KERNEL = np.ones((1, 1, 3, 3), np.float32)
ROI = np.array([[0, 0, 3, 3]], np.float32)
SHAPE, SPATIAL, PADS = (MANY, MANY), (1, 1, MANY, MANY), (MANY,) * 4
GROWN = [1, 1, MANY / 4, MANY / 4]
ONE, ZERO = np.float32(1), np.uint8(0)
QUANTIZED = [BYTES, ONE, ZERO, BYTES[:, :, :1, :1], ONE, ZERO, ONE, ZERO]
POOLED: dict[str, Any] = {"kernel_shape": (1, 1), "pads": (0, 0, 0, 0)}
GRAMS = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0,
    "ngram_counts": (0,), "ngram_indexes": (MANY**2,), "pool_int64s": (1,),
}  # fmt: skip


def ints(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values)


def floats(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


Row = partial(Case, expected=None)
CASES = [
    Row("ConstantOfShape", 9, [ints(*SHAPE)]),
    Row("Expand", 13, [X[:1, :1], ints(*SHAPE)]),
    Row("Tile", 13, [X, ints(*SHAPE)]),
    Row("Tile", 1, [X, ONE * MANY**2, ONE]),
    Row("Range", 11, [ONE, ONE * MANY**2, ONE]),
    Row("OneHot", 11, [np.arange(MANY), np.array(MANY), floats(0, 1)]),
    Row("Pad", 1, [X], attributes={"paddings": (0, 0, *SHAPE)}),
    *(Row("Pad", 19, [X, ints(0, 0, *SHAPE)], attributes={"mode": m}) for m in ("edge", "wrap")),
    Row("Pad", 11, [X, ints(0, 0, *SHAPE)]),
    Row("CenterCropPad", 18, [X, ints(*SHAPE)]),
    Row("Resize", 10, [IMAGE, floats(*GROWN)]),
    *(
        Row("Resize", 19, [IMAGE, None, floats(*GROWN)], attributes={"mode": mode}, name=mode)
        for mode in ("nearest", "linear", "cubic")
    ),
    Row("Resize", 13, [IMAGE, None, None, ints(*SPATIAL)]),
    Row("Upsample", 7, [IMAGE], attributes={"scales": GROWN}),
    Row("RandomNormal", 1, [], attributes={"shape": SHAPE}),
    Row("RandomUniform", 1, [], attributes={"shape": SHAPE}),
    Row("Multinomial", 7, [X], attributes={"sample_size": MANY**2}),
    Row("Conv", 11, [IMAGE, KERNEL], attributes={"pads": PADS}),
    Row("ConvInteger", 10, [BYTES, BYTES], attributes={"pads": PADS}),
    Row("QLinearConv", 10, QUANTIZED, attributes={"pads": PADS}),
    Row("ConvTranspose", 11, [IMAGE, KERNEL], attributes={"output_shape": SHAPE}, name="shape"),
    Row("ConvTranspose", 11, [IMAGE, KERNEL], attributes={"strides": SHAPE}, name="strides"),
    Row("Col2Im", 18, [X[:1, :1, None], ints(*SHAPE), ints(1, 1)], attributes={"strides": SHAPE}),
    *(
        Row(op, 22, [IMAGE], attributes={"kernel_shape": SHAPE, "pads": (MANY - 1,) * 4})
        for op in ("MaxPool", "AveragePool", "LpPool")
    ),
    Row("MaxUnpool", 11, [IMAGE, ints(*range(16)).reshape(IMAGE.shape), ints(*SPATIAL)],
        attributes={"kernel_shape": (1, 1)}),
    Row("RoiAlign", 16, [IMAGE, ROI, ints(0)],
        attributes={"output_height": MANY, "output_width": MANY}),
    Row("MaxRoiPool", 1, [IMAGE, floats(0, 0, 0, 3, 3)[None]], attributes={"pooled_shape": SHAPE}),
    Row("AffineGrid", 20, [X[None], ints(*SPATIAL)]),
    *(Row(f"{w}Window", 17, [np.array(MANY**2)]) for w in ("Hann", "Hamming", "Blackman")),
    Row("MelWeightMatrix", 17, [np.array(n) for n in (MANY, 2 * MANY, 8192, ONE, ONE * 4096)]),
    Row("DFT", 20, [IMAGE[..., :1], np.array(MANY**2), np.array(2)]),
    Row("STFT", 17, [np.ones((1, 2 * MANY, 1), np.float32), np.array(1), None, np.array(MANY)]),
    Row("TfIdfVectorizer", 9, [ints(1, 2)], attributes=GRAMS),
    Row("StringConcat", 20, [np.array(["a" * 2**12] * 2**11), np.array(["b"])]),
]  # fmt: skip


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "available_memory", lambda: 1 << 22)
    monkeypatch.setattr(allocation, "_MAX_UNCHECKED_BYTES", 1 << 16)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.usefixtures("small_memory")
def test_sizes_that_do_not_fit(case: Case) -> None:
    session = tenonnx.InferenceSession(model_of(case))
    with pytest.raises(tenonnx.RuntimeException, match=rf"{case.op} 'y0'.* are available"):
        session.run(None, feeds_of(case))


def test_sizes_beyond_any_address() -> None:
    case = Row("Tile", 13, [X, ints(2**40, 2**40)])
    with pytest.raises(tenonnx.RuntimeException, match=r"are available \(of input 'x0'"):
        tenonnx.InferenceSession(model_of(case)).run(None, feeds_of(case))


def test_a_session_survives_running_out_of_memory() -> None:
    """The sum of a row and a column fits into no address space; the next run is like any."""
    case = Row("Add", 14, [np.ones((2, 1), np.float32), np.ones((1, 2), np.float32)])
    proto = model_of(case)
    for given in proto.graph.input:
        given.type.tensor_type.ClearField("shape")
    session = tenonnx.InferenceSession(proto)
    huge = np.broadcast_to(np.float32(1), 10**7)
    both = r"Add 'y0'.*MemoryError: .* A 'x0' float32\[10000000, 1\], B 'x1' float32\[1, 10000000\]"
    with pytest.raises(tenonnx.RuntimeException, match=both) as caught:
        session.run(None, {"x0": huge[:, None], "x1": huge[None]})
    assert isinstance(caught.value, MemoryError)
    (y,) = session.run(None, feeds_of(case))
    np.testing.assert_array_equal(y, np.full((2, 2), 2, np.float32))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("0::/a/b", ("memory.max", "memory.current", "file")),
        ("4:memory:/a/b", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")),
    ],
)
def test_what_control_groups_leave(line: str, names: tuple[str, str, str], tmp_path: Path) -> None:
    (tmp_path / "own").write_text(line)
    limit, used, cache = names
    above = tmp_path / ("a" if line.startswith("0") else "memory/a")
    (above / "b").mkdir(parents=True)

    def left() -> float:
        return allocation._left_in_groups(tmp_path / "own", tmp_path)

    assert left() == np.inf
    (above / used).write_text("700\n")
    (above / "memory.stat").write_text(f"anon 500\n{cache} 150\n")
    (above / limit).write_text("max\n")
    assert left() == np.inf
    (above / limit).write_text("1000\n")
    assert left() == 450
