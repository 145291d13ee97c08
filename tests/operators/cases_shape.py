"""Shapes, slices and padding at versions, and in corners, that the backend suite leaves out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from case import Case

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
V = np.array([1, 2, 3], np.float32)
M = np.array([[1, 2], [3, 4]], np.float32)
WORDS = np.array([["a", "b"], ["c", "d"]], object)
BF16 = X.astype(ml_dtypes.bfloat16)
FLATTEN = [1, 9, 11, 13, 21, 23, 24, 25]


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def depth_to_space(x: np.ndarray, b: int, mode: str) -> np.ndarray:
    n, c, h, w = x.shape
    out = np.empty((n, c // b**2, h * b, w * b), x.dtype)
    for k, i, j in np.ndindex(*out.shape[1:]):
        block = (i % b) * b + j % b
        source = block * out.shape[1] + k if mode == "DCR" else k * b**2 + block
        out[:, k, i, j] = x[:, source, i // b, j // b]
    return out


DEEP = np.arange(2 * 12 * 2 * 3, dtype=np.int32).reshape(2, 12, 2, 3)

CASES = [
    Case("Shape", 1, [X], ints(2, 3, 4)),
    Case("Shape", 25, [X], ints(), {"start": 2, "end": 1}, name="empty"),
    Case("Shape", 15, [X], ints(2, 3), {"start": -9, "end": -1}, name="clamped"),
    *[Case("Size", v, [X], np.array(24)) for v in (1, 21, 24)],
    Case("Size", 25, [np.float32(3)], np.array(1), name="scalar"),
    Case("Reshape", 1, [X], X.reshape(3, 8), {"shape": (3, -1), "consumed_inputs": (0,)}),
    Case("Reshape", 1, [X], X.reshape(2, 12), {"shape": (0, 12)}, name="copied"),
    Case("Reshape", 14, [V[:0], ints(0, 5)], np.zeros((0, 5), np.float32), {"allowzero": 1}),
    Case("Reshape", 25, [np.float32(7), ints(1, -1)], np.array([[7]], np.float32), name="scalar"),
    Case("Reshape", 25, [V[:1], ints()], np.array(1, np.float32), name="to-scalar"),
    Case(
        "Reshape",
        13,
        [np.zeros((1, 0, 12, 64), np.float32), ints(0, 0, -1)],
        np.zeros((1, 0, 768), np.float32),
        name="inferred-beside-empty",
    ),
    *[Case("Flatten", v, [X], X.reshape(6, 4), {"axis": 2 if v < 11 else -1}) for v in FLATTEN],
    Case("Flatten", 25, [np.float32(7)], np.array([[7]], np.float32), {"axis": 0}, name="scalar"),
    Case("Squeeze", 11, [X[:1, :, :1]], X[0, :, 0], {"axes": (0, -1)}, name="negative"),
    Case("Squeeze", 11, [X[:1, :, :1]], X[0, :, 0]),
    Case("Squeeze", 13, [X[:1], ints()], X[:1], name="no-axes"),
    Case("Squeeze", 25, [X[:1, :1, :1]], X[0, 0, 0], name="to-scalar"),
    Case("Unsqueeze", 11, [X], X[:, None, :, :, None], {"axes": (-1, 1)}, name="negative"),
    Case("Unsqueeze", 25, [np.float32(2), ints(0, -1)], np.array([[2]], np.float32), name="scalar"),
    Case("Transpose", 21, [X], np.einsum("abc->cab", X), {"perm": (2, 0, 1)}),
    Case("Transpose", 21, [X], np.einsum("abc->cba", X), name="default"),
    Case("Expand", 13, [X[:, :1], ints(3, 1)], np.repeat(X[:, :1], 3, 1)),
    Case("Expand", 13, [np.float32(2), ints(2, 0)], np.zeros((2, 0), np.float32), name="scalar"),
    Case("DepthToSpace", 1, [DEEP], depth_to_space(DEEP, 2, "DCR"), {"blocksize": 2}),
    *[
        Case(
            "DepthToSpace",
            v,
            [DEEP],
            depth_to_space(DEEP, 2, mode),
            {"blocksize": 2, "mode": mode},
            name=mode,
        )
        for v in (11, 13, 28)
        for mode in ("DCR", "CRD")
    ],
    *[
        Case("SpaceToDepth", v, [depth_to_space(DEEP, 2, "DCR")], DEEP, {"blocksize": 2})
        for v in (1, 13, 28)
    ],
    Case(
        "SpaceToDepth",
        28,
        [depth_to_space(DEEP, 2, "CRD")],
        DEEP,
        {"blocksize": 2, "mode": "CRD"},
        name="CRD",
    ),
    Case("Slice", 1, [X], X[1:2, 0:2], {"starts": (1, 0), "ends": (1000, -1), "axes": (0, 1)}),
    Case("Slice", 1, [X], X[:, 1:3], {"starts": (0, 1), "ends": (2, 3)}, name="no-axes"),
    Case("Slice", 10, [X, ints(0, 3), ints(9, -9), ints(1, 2), ints(2, -2)], X[:, 0:3:2, 3::-2]),
    Case("Slice", 10, [X, ints(1), ints(2)], X[1:2], name="no-axes"),
    Case(
        "Slice",
        13,
        [V, ints(-10), ints(np.iinfo(np.int64).min), ints(0), ints(-1)],
        V[:1],
        name="backward-from-before-the-first",
    ),
    Case("Split", 1, [X], (X[..., :2], X[..., 2:]), {"axis": 2}, name="even"),
    Case("Split", 1, [V], (V[:1], V[1:]), {"split": (1, 2)}, name="attribute"),
    Case("Split", 1, [V, np.array([1, 2], np.float32)], (V[:1], V[1:]), name="input"),
    Case("Split", 11, [X], (X[..., :1], X[..., 1:]), {"axis": -1, "split": (1, 3)}),
    Case("Split", 13, [V, ints(0, 3)], (V[:0], V), name="zero-length"),
    Case(
        "Split",
        18,
        [np.arange(4)],
        tuple(map(np.array, ([0, 1], [2, 3], np.zeros(0, np.int64)))),
        {"num_outputs": 3},
        name="more-than-fit",
    ),
    Case("Concat", 1, [X, X[:, :1]], np.stack([*X.swapaxes(0, 1), X[:, 0]], 1), name="default"),
    Case("Concat", 1, [V, V], np.hstack([V, V]), {"axis": 0}),
    Case("Concat", 11, [X, X[..., :1]], np.dstack([X, X[..., :1]]), {"axis": -1}),
    Case("Concat", 13, [WORDS], WORDS, {"axis": 0}, name="one-input"),
    Case("Tile", 1, [X, np.float32(2), np.float32(1)], np.hstack([X, X])),
    Case("Tile", 13, [V, ints(0)], V[:0], name="zero"),
    Case("Tile", 13, [WORDS, ints(1, 2)], np.hstack([WORDS, WORDS]), name="strings"),
    Case(
        "Pad", 1, [V], np.array([9, 1, 2, 3, 9, 9], np.float32), {"paddings": (1, 2), "value": 9.0}
    ),
    Case(
        "Pad",
        1,
        [M],
        np.array([[2, 1, 2, 1], [4, 3, 4, 3]], np.float32),
        {"paddings": (0, 1, 0, 1), "mode": "reflect"},
        name="reflect",
    ),
    Case("Pad", 2, [V], np.array([0, 1, 2], np.float32), {"pads": (1, -1)}, name="crop"),
    *[
        Case("Pad", 21, [V, ints(*pads), np.float32(5)], np.full(size, 5, "f"), name=f"{pads}")
        for pads, size in (((-4, 2), 1), ((2, -4), 1), ((-9, 9), 3), ((-3, 1), 1), ((-4, 1), 0))
    ],
    Case(
        "Pad",
        21,
        [M, ints(-3, 1, 4, 0), np.float32(5)],
        np.full((3, 3), 5, np.float32),
        name="more-than-there-is-and-more",
    ),
    Case("Pad", 21, [V, ints(-4, 1)], V[:0], {"mode": "edge"}, name="edge-of-nothing"),
    *[
        Case("Pad", v, [V, ints(2, 1), np.array(5, np.float32)], np.array([5, 5, 1, 2, 3, 5], "f"))
        for v in (11, 13, 18, 19, 21, 23)
    ],
    *[
        Case("Pad", v, [V, ints(2, 1)], np.array(row, np.float32), {"mode": mode}, name=mode)
        for v in (11, 23)
        for mode, row in [
            ("edge", [1, 1, 1, 2, 3, 3]),
            ("reflect", [3, 2, 1, 2, 3, 2]),
            *([("wrap", [2, 3, 1, 2, 3, 1])] if v >= 19 else []),
        ]
    ],
    Case(
        "Pad",
        19,
        [V, ints(4, -1)],
        np.array([1, 2, 1, 2, 1, 2], np.float32),
        {"mode": "wrap"},
        name="wrap-what-cropping-left",
    ),
    Case(
        "Pad",
        25,
        [M, ints(1, 0), None, ints(-1)],
        np.array([[0, 1, 2], [0, 3, 4]], np.float32),
        name="one-axis",
    ),
    Case(
        "Pad",
        13,
        [WORDS, ints(0, 0, 0, 1)],
        np.array([["a", "b", ""], ["c", "d", ""]], object),
        name="strings",
    ),
    Case("Pad", 13, [V > 1, ints(1, 0)], np.array([False, False, True, True]), name="bool"),
    Case(
        "Pad",
        21,
        [BF16[0, 0], ints(0, 1), np.array(1.5, BF16.dtype)],
        np.array([0, 1, 2, 3, 1.5], BF16.dtype),
        name="bfloat16",
    ),
    Case("Pad", 13, [np.array(3), ints()], np.array(3), name="scalar"),
    Case(
        "CenterCropPad",
        18,
        [X[0], ints(2, 7)],
        np.pad(X[0, :2], ((0, 0), (1, 2))),
        name="odd",
    ),
    Case(
        "CenterCropPad",
        18,
        [WORDS, ints(3)],
        np.array([["a", "b", ""], ["c", "d", ""]], object),
        {"axes": (-1,)},
        name="strings",
    ),
    Case(
        "Trilu",
        14,
        [X, np.array(1)],
        X * np.array([[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]], np.float32),
        name="batch",
    ),
    Case(
        "Trilu",
        14,
        [WORDS],
        np.array([["a", ""], ["c", "d"]], object),
        {"upper": 0},
        name="strings",
    ),
    Case(
        "Trilu",
        14,
        [np.full((2, 2), np.nan)],
        np.array([[np.nan, np.nan], [0, np.nan]]),
        name="nan",
    ),
]
