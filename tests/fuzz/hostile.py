"""Numbers, words and arrays that are at the edge of something, or beyond it."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np

POWERS = [1 << n for n in (7, 8, 15, 16, 24, 31, 32, 40, 53, 62, 63)]
EDGES = [0, 1, 2, 3, 5, 8, 10, 17, 64, 1000]
EDGES += [edge + step for edge in POWERS for step in (-1, 0, 1)]
INTEGERS = sorted({sign * edge for edge in EDGES for sign in (1, -1)})
FLOATS = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, 1e-320, 1e-7, 0.5, -1.0]
FLOATS += [3.4028235e38, -1e38, 1e300, 65504.0, 65520.0, 2.0**31, 2.0**63, -(2.0**63), 1 / 3]
WORDS = [
    *("", " ", "\0", "a\0b", "\n", "'", '"', "%s", "{}", "{0}", "\\", "é", "名前", "\u202e", "ß"),
    *("x" * 256, "x" * 70_000, "..", "../../etc/passwd", "/etc/passwd", "/dev/zero", ".", "a/b"),
    *("-1", "1e9", "0x10", "1 ", "٣", "nan", "None", "True", "x0", "y0", "ai.onnx", "ai.onnx.ml"),
    *("(a+)+$", "[", "(?P<a>", "a{1,9999}", "\\", ".*", "ij,jk->ik", "...i,...i", "->", "i->ii"),
    *("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "reverse", "bidirectional", "linear", "cubic"),
    *("constant", "reflect", "edge", "wrap", "mean", "sum", "none", "add", "mul", "max", "min"),
    *("DCR", "CRD", "half_pixel", "align_corners", "asymmetric", "SOFTMAX", "LOGISTIC", "PROBIT"),
    *("BRANCH_LEQ", "LEAF", "BRANCH_MEMBER", "TFIDF", "tf_crop_and_resize", "Tanh", "Affine", "NX"),
]
SIZES = [0, 1, 2, 3, 7, 8, 16, 17, 33]
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "O", "c8", "c16"]

Array = np.ndarray[Any, Any]


def integer(draw: random.Random, near: int = 0, bits: int = 64, signed: bool = True) -> int:
    """Return an integer that fits; half of the time one close to what was there."""
    value = draw.choice(INTEGERS)
    if draw.random() < 0.5:
        value = draw.choice([near - 1, near + 1, -near, near * 2, -near - 1, near // 2, 0, 1, -1])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def spoiled(array: Array, draw: random.Random) -> Array:
    """Return the array with hostile elements: one, a few, or all of them."""
    made = np.array(array)
    if not made.size:
        return made
    count = draw.choice([1, 1, 2, 5, made.size])
    flat = made.reshape(-1)
    for place in (draw.randrange(made.size) for _ in range(min(count, 64))):
        flat[place] = element(made.dtype, flat[place], draw)
    if count == made.size > 64:
        flat[:] = flat[0]
    return made


def element(dtype: Any, old: Any, draw: random.Random) -> Any:
    """Return a hostile element for an array of the dtype."""
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        return dtype.type(integer(draw, int(old), bits, dtype.kind == "i"))
    if dtype.kind in "OUS":
        return draw.choice(WORDS)
    if dtype.kind == "b":
        return not old
    if dtype.kind == "V":
        info = ml_dtypes.iinfo(dtype) if "int" in dtype.name else None
        number = draw.choice([info.min, info.max, 0]) if info else draw.choice(FLOATS)
        with np.errstate(all="ignore"):
            return np.asarray(number).astype(dtype)[()]
    with np.errstate(all="ignore"):
        return dtype.type(draw.choice(FLOATS))


def filled(dtype: Any, shape: tuple[int, ...], draw: random.Random) -> Array:
    """Return an array of small mixed values."""
    if np.dtype(dtype).kind == "O":
        words = [draw.choice(["a", "b c", "", "x1"]) for _ in range(int(np.prod(shape)))]
        return np.array(words, object).reshape(shape)
    numbers = np.random.default_rng(draw.randrange(1 << 32)).integers(-3, 9, shape)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(dtype)


def awkward(array: Array, draw: random.Random) -> Array:
    """Return the same elements elsewhere: strided, reversed, misaligned, read-only, big-endian."""
    way = draw.choice(["steps", "reversed", "fortran", "misaligned", "read-only", "swapped"])
    if way == "steps" and array.ndim:
        wide = np.repeat(array, 2, axis=array.ndim - 1)
        return wide[..., ::2]
    if way == "reversed" and array.ndim:
        return np.ascontiguousarray(array[::-1])[::-1]
    if way == "fortran":
        return np.asfortranarray(array)
    if way == "misaligned" and not array.dtype.hasobject:
        room = np.zeros(array.nbytes + 1, np.uint8)
        moved = room[1:].view(array.dtype) if array.dtype.kind != "V" else None
        if moved is not None and moved.size == array.size:
            moved = moved.reshape(array.shape)
            moved[...] = array
            return moved
    if way == "swapped" and array.dtype.kind in "fiu" and array.dtype.itemsize > 1:
        return array.astype(array.dtype.newbyteorder())
    if way == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array
