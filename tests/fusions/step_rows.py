"""Rows for what the CPU provider fuses of float32 as it compiles nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
from drafts import Draft
from layer_rows import SHAPES, image
from onnx import TensorProto

ML = "ai.onnx.ml"


def rotary(d: Draft) -> None:
    """Halves exchanged, times sines, and what is turned times cosines."""
    shape = d.choose([(2, 2, 3, 8), (2, 3, 8), (2, 2, 3, 10), (2, 2, 1, 8), (1, 2, 3, 8)])
    x = d.input("x", *shape)
    waves = d.choose([(2, 1, 3, 8), (1, 1, 3, 8), (3, 8), (2, 2, 3, 8), (2, 1, 1, 8), (3, 1, 3, 8),
                      (2, 1, 3, 1), (1,)])  # fmt: skip
    cos, sin = d.input("cos", *waves), d.input("sin", *d.choose([waves, (8,), ()]))
    half, axis = d.choose([4, 5, 3]), d.choose([3, -1, 2])
    ends = [(0, half), (half, d.choose([2**63 - 1, 2 * half, 2 * half - 1]))]
    low, high = (
        d.add("Slice", x, *(d.weight(np.array([n])) for n in (start, end, axis)))
        for start, end in ends
    )
    joined = d.add("Concat", d.add("Neg", high), low, axis=d.choose([-1, 3, 2]))
    d.both("Add", d.both("Mul", x, cos), d.both("Mul", joined, sin))


def skip(d: Draft) -> None:
    """A sum and its norm."""
    shapes = [(2, 3, 8), (1, 3, 8), (2, 1, 8), (2, 3, 1), (3, 8), (8,), ()]
    x, z = d.input("x", *d.choose(shapes)), d.input("z", *d.choose(shapes))
    total = d.both("Add", x, z)
    scale = d.weight(d.floats(*d.choose([(8,), (1,), (3, 8)])))
    if d.choose([False, True]):
        scale = d.feed("scale", d.weights.pop(scale))
    given = [scale, d.weight(d.floats(8))] if d.choose([True, False]) else [scale]
    d.add("LayerNormalization", total, *given, axis=d.choose([-1, 2, 1, 0]))


def patches(d: Draft) -> None:
    """A convolution of windows side by side."""
    x = d.input("x", *d.choose([(2, 3), (1, 3), (0, 3)]), *d.choose([(16, 24), (17, 25), (7, 5)]))
    weights = d.weight(d.floats(6, 3, 8, d.choose([8, 4])))
    bias = [d.weight(d.floats(6))] if d.choose([True, False]) else []
    wide = d.weights[weights].shape[3]
    more = d.choose(
        [
            {},
            {"kernel_shape": [8, wide]},
            {"kernel_shape": [8, 2]},
            {"pads": [1, 1, 1, 1]},
            {"auto_pad": "VALID"},
        ]
    )
    y = d.add("Conv", x, weights, *bias, strides=d.choose([[8, wide], [8, 8], [1, 1]]), **more)
    d.add("Transpose", y, perm=[0, 2, 3, 1])


def expanded(d: Draft) -> None:
    """A convolution of single places, and the depthwise one that reads its result."""
    x = d.input(
        "x", *d.choose([(2, 3), (1, 3), (0, 3), (2, 4)]), *d.choose([(9, 7), (2, 1), (0, 7)])
    )
    w = d.weight(d.floats(6, 3, *d.choose([(1, 1), (3, 3)])))
    bias = [d.weight(d.floats(*d.choose([(6,), (5,)])))] if d.choose([True, False]) else []
    more = d.choose([{}, {"strides": [2, 2]}, {"pads": [1] * 4}, {"auto_pad": "SAME_UPPER"}])
    y = d.add("Conv", x, w, *bias, **more)
    if d.choose([False, True]):
        given = [d.weight(d.random.random(6).astype(np.float32) + 0.5) for _ in range(4)]
        y = d.add("BatchNormalization", y, *given)
    if d.choose([False, True]):
        y = d.both("Add", y, d.input("z", *d.choose([(2, 6, 9, 7), (6, 1, 1)])))
    y = d.add("Clip", y, d.number(0.0, 0), d.number(6.0, 0)) if d.choose([True, False]) else y
    group, kernel = d.choose([6, 3, 1]), d.choose([(3, 3), (5, 5), (3, 5), (4, 4)])
    v = d.weight(d.floats(d.choose([6, 12]), 6 // group, *kernel))
    sides = [d.weight(d.floats(6))] if d.choose([True, False]) else []
    more = d.choose(
        [{}, {"strides": [2, 2]}, {"strides": [2, 1]}, {"dilations": [2, 2]}, {"pads": [-1] * 4},
         {"pads": [9, 0, 9, 2]}, {"auto_pad": "SAME_LOWER"}]
    )  # fmt: skip
    y = d.add("Conv", y, v, *sides, group=group, **more)
    y = d.add(d.choose(["Relu", "HardSwish"]), y) if d.choose([True, False]) else y
    d.add("Conv", y, d.weight(d.floats(4, d.weights[v].shape[0], 1, 1)))


def conv(d: Draft) -> None:
    """A convolution, a norm, what is added and an activation."""
    y, rows = image(d, d.choose([(3, 3), (3,), (1, 1)]), d.choose([6, 2]))
    rank, n = d.feeds["x"].ndim, d.feeds["x"].shape[0]
    spatial, ones = d.feeds["x"].shape[2:], (1,) * (rank - 2)
    for _ in range(d.choose([1, 0])):
        count = d.choose([rows, 1])
        given = [d.weight(d.random.random(count).astype(np.float32) + 0.5) for _ in range(4)]
        y = d.add("BatchNormalization", y, *given)
    shapes: list[Any] = [
        (n, rows, *spatial), (1, rows, *spatial), (rows, *ones), (), (1,), (3, rows, *spatial),
        (n, 1, *spatial), (1, n, rows, *spatial), spatial, (n, rows, *ones), (1, rows, *ones),
    ]  # fmt: skip
    if d.choose([True, False]):
        y = d.both(d.choose(["Add", "Mul"]), y, d.input("z", *d.choose(shapes)))
    if d.choose([False, True]):
        column = d.weight(d.floats(*d.choose(shapes)))
        y = d.add(d.choose(["Add", "Mul", "Sub", "Div"]), *d.choose([(y, column), (column, y)]))
    activate(d, y)


def activate(d: Draft, y: str) -> None:
    kind = d.choose(["Relu", "Clip", "LeakyRelu", "HardSigmoid", "PRelu", "gate", "swish", ""])
    match kind:
        case "Clip":
            low, high = d.choose([(0.0, 1.0), (1.0, -1.0), (-np.inf, np.inf)])
            d.add("Clip", y, d.number(low, 0), d.number(high, 0))
        case "PRelu":
            d.add("PRelu", y, d.weight(d.floats(*d.choose([(), (1,), (1, 1, 1), (6, 1, 1), (7,)]))))
        case "gate":
            d.both("Mul", y, d.add("Sigmoid", y))
        case "swish":
            d.both("Mul", y, d.add("HardSigmoid", y, alpha=d.choose([1 / 6, 0.2]), beta=0.5))
        case "":
            pass
        case _:
            d.add(kind, y)


def transposed(d: Draft) -> None:
    """A transposed convolution and what follows it."""
    group = d.choose([1, 2])
    x, rows = d.input("x", *d.choose([(2, 4), (1, 4), (0, 4)]), 5, 5), 6
    weights = d.weight(d.floats(4, rows // group, 3, 3))
    bias = [d.weight(d.floats(rows))] if d.choose([True, False]) else []
    more = d.choose([{}, {"output_padding": [1, 1]}, {"pads": [1] * 4}, {"output_shape": [9, 9]}])
    y = d.add("ConvTranspose", x, weights, *bias, group=group, strides=[2, 2], **more)
    count = d.choose([rows, 1])
    given = [d.weight(d.random.random(count).astype(np.float32) + 0.5) for _ in range(4)]
    y = d.add("BatchNormalization", y, *given) if d.choose([True, False]) else y
    if d.choose([False, True]):
        shape = d.choose([(rows, 1, 1), (1, rows, 1, 1), (), (1,), (7,), (11,), (3, rows, 1, 1)])
        column = d.weight(d.floats(*shape))
        y = d.add(d.choose(["Add", "Mul", "Sub", "Div"]), *d.choose([(y, column), (column, y)]))
    activate(d, y)


def optimized(d: Draft) -> None:
    """A convolution as onnxruntime leaves it."""
    x = d.input("x", *d.choose([(2, 4), (1, 4), (0, 4)]), 7, 7)
    n, rows = d.feeds["x"].shape[0], 6
    weights = d.weight(d.floats(rows, 4, 3, 3))
    shapes = [(n, rows, 5, 5), (1, rows, 5, 5), (rows, 1, 1), (), (3, rows, 5, 5), (5,)]
    given = [d.weight(d.floats(d.choose([rows, 1])))]
    if d.choose([True, False]):
        given.append(d.input("z", *d.choose(shapes)))
    kind = d.choose(["Relu", "LeakyRelu", "Clip", "HardSigmoid", ""])
    numbers = {"LeakyRelu": [0.1], "Clip": [0.0, 1.0], "HardSigmoid": [0.2, 0.5]}.get(kind, [])
    more = {"activation_params": numbers} if numbers else {}
    d.add("FusedConv", x, weights, *given, activation=kind, domain="com.microsoft", **more)


def channels_last(d: Draft) -> None:
    """The same with channels last."""
    x = d.input("x", *d.choose([(2, 7, 7, 4), (1, 7, 7, 4), (0, 7, 7, 4)]))
    n, rows = d.feeds["x"].shape[0], 6
    given = [d.weight(d.floats(rows, 3, 3, 4)), d.weight(d.floats(d.choose([rows, 1])))]
    if d.choose([False, True]):
        shapes = [(n, 5, 5, rows), (1, 5, 5, rows), (rows,), (3, 5, 5, rows)]
        given.append(d.input("z", *d.choose(shapes)))
    d.add("NhwcFusedConv", x, *given, activation=d.choose(["Relu", ""]), domain="com.microsoft")


def split(d: Draft) -> None:
    """Pieces picked from a sequence."""
    x = d.input("x", *d.choose([(4, 6), (5, 6), (0, 6), (1, 6)]))
    sizes = d.choose([[d.weight(np.array(2))], [], [d.weight(np.array([1, 3]))]])
    (pieces,) = d.several("SplitToSequence", 1, x, *sizes, axis=d.choose([0, 1, -1]))
    parts = [d.add("SequenceAt", pieces, d.weight(np.array(d.choose([n, -1, 4])))) for n in (0, 1)]
    d.add("Concat", *parts, axis=0)


def experts(d: Draft) -> None:
    """A product with matrices that are chosen."""
    stack = d.weight(d.floats(4, 8, 5))
    places = np.array(d.choose([[1, 3, 1], [0, -1, 2], [0, 4, 1], [[1], [2], [0]], 2]))
    chosen = d.add("Gather", stack, d.feed("places", places), axis=d.choose([0, 1]))
    x = d.input("x", *d.choose([(3, 1, 8), (1, 1, 8), (3, 2, 8), (1, 8), (8,), (2, 3, 1, 8)]))
    d.add("MatMul", *d.choose([(x, chosen), (chosen, x)]))


def layers(d: Draft) -> None:
    """Dense layers in a row."""
    y = d.input("x", *d.choose([(3, 4), (1, 4), (0, 4), (4,), (3, 5)]))
    for width, columns in ((4, 6), (6, 2)):
        shape = d.choose([(columns,), (1,), (), (1, columns), (3, columns), (3, 1)])
        bias = d.weight(d.floats(*shape))
        y = d.add("Gemm", y, d.weight(d.floats(width, columns)), bias, beta=d.choose([1.0, 0.5]))
        y = d.add(d.choose(["Relu", "Tanh", "Gelu"]), y)


def affine(d: Draft) -> None:
    """A product, a bias and an activation."""
    x = d.input("x", *d.choose([(2, 3, 4), (3, 4), (4,), (2, 0, 4), (1, 4), (2, 3, 5)]),
                dtype=d.choose([np.float32, np.float64]))  # fmt: skip
    kind = d.feeds["x"].dtype
    matrix = d.choose([(4, 5), (4, 1), (4,), (2, 4, 5)])
    y = d.add("MatMul", x, d.weight(d.floats(*matrix, dtype=kind)))
    shape = d.choose([(5,), (1,), (), (1, 5), (3, 5), (2, 1, 5), (1, 1, 1, 5)])
    y = d.both("Add", y, d.weight(d.floats(*shape, dtype=kind)))
    d.add(d.choose(["Relu", "Sigmoid", "LeakyRelu", "Gelu", "Neg"]), y)


def widened(d: Draft) -> None:
    """A product with a narrow matrix that is widened before."""
    narrow = d.weight(d.floats(*d.choose([(4, 5), (4, 1), (4,), (2, 4, 5)]), dtype=np.float16))
    w = d.add("Cast", narrow, to=d.choose([1, 11]))
    kind = np.float32 if d.nodes[-1].attribute[0].i == 1 else np.float64
    x = d.input("x", *d.choose([(3, 4), (2, 3, 4), (4,), (0, 4)]), dtype=kind)
    if d.choose([False, True]):
        d.add("Gemm", x, w, d.weight(d.floats(*d.choose([(5,), (1,), (3, 1)]), dtype=kind)))
    else:
        d.add("MatMul", x, w)


def chain(d: Draft) -> None:
    """Elementwise nodes in one pass."""
    kind = d.choose([np.float32, np.float16, np.float64, np.int32])
    x, z = (d.input(name, *d.choose(SHAPES[:7]), dtype=kind) for name in "xz")
    y = d.both("Add", x, z)
    y = d.both("Mul", y, d.number(2, 0, 1, 4, dtype=kind))
    y = d.add("Clip", y, d.number(d.choose([-1, 2]), 0, dtype=kind), d.number(1, 0, dtype=kind))
    other = d.weight(d.floats(*d.choose(SHAPES), dtype=kind))
    y = d.both(d.choose(["Max", "Min", "Sub"]), y, other)
    if d.choose([True, False]):
        y = d.add("Pow", y, d.number(d.choose([2, 3]), 0, 1, dtype=kind))
    d.add(d.choose(["Abs", "Neg", "Relu"]), y)


def quantized_lstm(d: Draft) -> None:
    """An LSTM whose weights are bytes."""
    steps, batch, size, hidden = 3, d.choose([2, 1]), 4, 5
    x = d.input("x", steps, batch, size)
    shapes = [(1, rows, 4 * hidden) for rows in (size, hidden)]
    codes = (d.random.integers(0, 200, shape).astype(np.uint8) for shape in shapes)
    given = [x, *map(d.weight, codes)]
    given += [d.weight(d.floats(1, 8 * hidden)) if d.choose([True, False]) else "", "", "", "", ""]
    for _ in range(2):
        count = d.choose([(1,), (1, 4 * hidden)])
        given.append(d.weight(d.random.random(count).astype(np.float32) * np.float32(0.01)))
        given.append(d.weight(np.full(count, 100, np.uint8)))
    d.several("DynamicQuantizeLSTM", 1, *given, hidden_size=hidden, domain="com.microsoft")


def columns(d: Draft) -> None:
    """Columns of words, encoded one by one, and joined."""
    words = np.array([["a", "b"], ["c", "a"], ["b", "?"]], object)
    x = d.feed("x", d.choose([words, words[:0], words[:, :1], words[0], words[None], words.T]))
    is_hot, width = d.choose([(False, 1), (True, 2)])
    joined = []
    for first in (0, 1):
        place = d.choose([first, 0, -1, 2])
        index = d.weight(np.array(d.choose([[place], place, [place, place]])))
        if d.choose([True, False]):
            y = d.add("ArrayFeatureExtractor", x, index, domain=ML)
        else:
            y = d.add("Gather", x, index, axis=d.choose([1, -1, 0]))
        if is_hot:
            zeros = d.choose([1, 0])
            y = d.add("OneHotEncoder", y, domain=ML, cats_strings=["a", "b"], zeros=zeros)
        else:
            values: dict[str, Any] = d.choose(
                [{"values_int64s": [3, 5]}, {"values_floats": [0.5, 2.5]},
                 {"values_strings": ["x", "y"]}]
            )  # fmt: skip
            y = d.add("LabelEncoder", y, domain=ML, keys_strings=["a", "b"], **values)
        if d.choose([True, False]):
            y = d.add("Reshape", y, d.weight(np.array(d.choose([[-1, width], [1, -1], [-1]]))))
        joined.append(y)
    d.add("Concat", *joined, axis=d.choose([1, -1, 2, 0]))


def mask_lengths(d: Draft) -> None:
    """The tokens of a mask, by row and in all; attention reads both."""
    kind = d.choose([np.int64, np.int32])
    mask = np.ones(d.choose([(2, 5), (1, 1), (3, 0), (2, 4, 3), (1, 2, 2)]), kind)
    mask[..., 3:] = 0
    x = d.feed("mask", mask)
    axes = d.weight(np.array(d.choose([[1], [-1], [0]])))
    shapes = d.choose([False, True])
    seen = d.add("ReduceSum", x, axes, keepdims=d.choose([0, 1]))
    less = d.number(1, 0, 1, dtype=kind)
    short = d.choose([TensorProto.INT32, TensorProto.INT64])
    before = d.add("Cast", d.add("Sub", *d.choose([(seen, less), (less, seen)])), to=short)
    shape = d.add("Shape", x, **d.choose([{}, {"start": 1}]))
    place = d.weight(np.array(d.choose([1, 0, -1, [1]])))
    total = d.add("Cast", d.add("Gather", shape, place), to=TensorProto.INT32)
    d.outputs = [before, total]
    if shapes:
        d.outputs = [*d.outputs, d.add("Neg", x)]


def buckets(d: Draft) -> None:
    """Numbers that are scattered into rows of zeros, and summed, as FeatureHasher's are."""
    count, rows = d.choose([(4, 6), (1, 6), (4, 0), (4, 5)])
    random = np.random.default_rng(1)
    numbers = random.integers(-3, 4, (rows, 1)).astype(d.choose([np.int64, np.int32]))
    places = d.feed("places", random.integers(-count, count, (rows, 1)))
    zeros = np.zeros(d.choose([(count,), (1, count)]), np.int64)
    zeros[..., -1] = d.choose([0, 1])
    axis = d.choose([1, -1, 0])
    more = d.choose([{}, {"reduction": "add"}])
    scattered = d.add(
        "ScatterElements", d.both("Mul", places, d.weight(zeros)), places,
        d.feed("numbers", numbers), axis=axis, **more,
    )  # fmt: skip
    shape = d.choose([[3, -1, count], [-1, 2, count], [-1, count], [1, 3, -1, count]])
    single = d.add("Reshape", scattered, d.feed("shape", np.array(shape)))
    single = d.add("Cast", single, to=d.choose([1, 6]))
    axes = d.weight(np.array([d.choose([-2, -1])]))
    d.add("ReduceSum", single, axes, keepdims=d.choose([0, 1]))


def categories(d: Draft) -> None:
    """Columns of categories that choose rows of tables, and the rows' sum, as CategoricalNB's."""
    given = np.array([[0, 2, 1], [1, 0, 2.5], [2, -3, 0]], np.float32)
    given[1, 1] = d.choose([0, np.nan, 3, -3.5, -4, 1e9])
    x = d.feed("x", d.choose([given, given[:0], given[0], given.astype(np.float64), given.T]))
    rows = []
    for first in (0, 1):
        place = d.choose([first, 1 - first, -1, 3])
        column = d.add("Gather", x, d.weight(np.array([place])), axis=d.choose([-1, 1, 0]))
        places = d.add("Cast", column, to=d.choose([7, 6]))
        places = d.add("Reshape", places, d.weight(np.array(d.choose([[-1], [-1, 1]]))))
        table = d.weight(d.floats(*d.choose([(2, 3), (7, 3), (2, 4), (3, 3)])))
        chosen = d.add("Gather", table, places, axis=d.choose([-1, 1, 0]))
        rows.append(d.add("Transpose", chosen, perm=d.choose([[1, 0], [0, 1]])))
    d.add("Sum", *rows, *d.choose([[], rows[:1]]))


def tokens(d: Draft) -> None:
    """Texts cut into tokens, and their n-grams, as TfidfVectorizer's."""
    odd = d.choose(["", "-- a", "É a", "A" * 300, "a#b a.", "aa\0a"])
    texts = np.array(["Aa b, aa_1 b a", odd, " b a ", "aa b aa", ""], object)
    x = d.feed("x", d.choose([texts[:, None], texts, texts[None], texts[:0], texts[4:]]))
    if d.choose([True, False]):
        x = d.add("Reshape", x, d.weight(np.array(d.choose([[-1], [1, -1]]))))
    change = {"case_change_action": d.choose(["LOWER", "UPPER", "NONE"])}
    if d.choose([True, False]):
        more = d.choose([{}, {"stopwords": ["aa"]}])
        x = d.add("StringNormalizer", x, locale=d.choose(["C", "tr_TR"]), **change, **more)
    cut = d.choose(
        [{"tokenexp": tokenexp} for tokenexp in ("[a-zA-Z0-9_]+", "[^ ]+", r"\w+", "[a-z]", "a.")]
        + [{"separators": [" "]}]
    )
    x = d.add(
        "Tokenizer", x, domain="com.microsoft", mark=d.choose([0, 1]), mincharnum=d.choose([1, 2]),
        pad_value=d.choose(["#", "a"]), **cut,
    )  # fmt: skip
    if d.choose([True, False]):
        x = d.add("Flatten", x, axis=d.choose([1, 0]))
    d.add(
        "TfIdfVectorizer", x, mode=d.choose(["TF", "IDF"]), min_gram_length=1, max_gram_length=2,
        max_skip_count=d.choose([0, 1]), ngram_counts=[0, 4], ngram_indexes=[4, 1, 2, 3, 0, 5],
        pool_strings=["a", "b", "aa", "AA", "aa", "b", "b", "a"],
    )  # fmt: skip


ROWS = {
    "ml.tokens:fuse_tokens": tokens,
    "ml.categories:fuse_categories": categories,
    "ml.feature_hashing:fuse_buckets": buckets,
    "attention.mask_lengths:fuse_mask_lengths": mask_lengths,
    "ml.columns:fuse_columns": columns,
    "attention.rotary:fuse_rotary": rotary,
    "norm.norms:fuse_skip": skip,
    "conv.patch_embedding:fuse_patches": patches,
    "conv.conv:fuse_conv": conv,
    "conv.inverted_residual:fuse_expanded": expanded,
    "conv.transposed:fuse_conv_transpose": transposed,
    "conv.optimized:fuse_fused_conv": optimized,
    "conv.optimized:fuse_channels_last": channels_last,
    "data_movement.views:fuse_split": split,
    "matmul.experts:fuse_choice": experts,
    "matmul.dense:fuse_layers": layers,
    "matmul.affine:fuse_affine": affine,
    "matmul.matmul:fuse_widened": widened,
    "elementwise.elementwise:fuse_chain": chain,
    "recurrent.quantized:fuse_quantized": quantized_lstm,
}
