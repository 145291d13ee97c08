"""Calls of operators that need more than arrays of one shape: axes, indices, attributes.

An operator without forms here has those of ``draw.declared_form``, and with two operands of its
first one's type also those that broadcast.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from bench.operators.declared import Operator
from bench.operators.draw import Constant, Form, Given, Places, Size, declared_form

Forms = Callable[[Size], Iterator[Form]]


def ints(*values: int) -> Constant:
    """Return whole numbers that a model has as a constant, such as axes."""
    return Constant(np.array(values, np.int64))


def number(value: float) -> Constant:
    """Return a constant of one element, of its operand's type."""
    return Constant(np.array(value))


def broadcast(s: Size) -> Iterator[Form]:
    """Two operands."""
    matrix = (s.rows, s.columns)
    yield Form("", [matrix, matrix])
    yield Form("by row", [matrix, (s.columns,)])
    yield Form("by column", [matrix, (s.rows, 1)])
    yield Form("by number", [matrix, Constant(())])


def reductions(s: Size) -> Iterator[Form]:
    """A matrix, and three axes: each kind of axes."""
    cube = (s.cube,) * 3
    for shape, axes in (
        ((s.rows, s.columns), (0,)),
        ((s.rows, s.columns), (1,)),
        (cube, (1,)),
        (cube, (0, 2)),
        (cube, (0, 1, 2)),
    ):
        yield Form(f"axes {list(axes)} of {len(shape)}", [shape, ints(*axes)])


def by_axis(attributes: Mapping[str, Any] = {}) -> Forms:
    """Axes as an attribute."""

    def forms(s: Size) -> Iterator[Form]:
        for axis in range(3):
            yield Form(f"axis {axis} of 3", [(s.cube,) * 3], {"axis": axis, **attributes})

    return forms


def transposes(s: Size) -> Iterator[Form]:
    yield Form("[1, 0]", [(s.rows, s.columns)], {"perm": [1, 0]})
    for order in ("021", "102", "120", "201", "210"):
        perm = list(map(int, order))
        yield Form(str(perm), [(s.cube,) * 3], {"perm": perm})
    for order in ("0231", "0312", "0213"):
        perm = list(map(int, order))
        yield Form(str(perm), [(1, *s.image)], {"perm": perm})


TYPES = {
    "float": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "string": 8, "bool": 9,
    "float16": 10, "double": 11, "bfloat16": 16,
}  # fmt: skip


def casts(s: Size) -> Iterator[Form]:
    for name, code in TYPES.items():
        count = 1000 if name == "string" else s.columns
        yield Form(f"to {name}", [(s.rows * s.columns // count, count)], {"to": code})


def scans(s: Size) -> Iterator[Form]:
    for axis in range(3):
        yield Form(f"axis {axis} of 3", [(s.cube,) * 3, ints(axis)])
    yield Form("last axis, others", [(s.cube,) * 3, ints(2)], {"exclusive": 1, "reverse": 1})


def gathers(s: Size) -> Iterator[Form]:
    yield Form("rows", [(s.rows, s.columns), Places((s.rows,), s.rows)])
    yield Form("columns", [(s.rows, s.columns), Places((s.columns,), s.columns)], {"axis": 1})
    yield Form("middle", [(s.cube,) * 3, Places((s.cube,), s.cube)], {"axis": 1})
    yield Form("numbers", [(s.elements,), Places((s.elements,), s.elements)])


def elements(s: Size) -> Iterator[Form]:
    shape = (s.rows, s.columns)
    for axis in (0, 1):
        yield Form(f"axis {axis}", [shape, Places(shape, shape[axis])], {"axis": axis})


def scattered(*reductions: str) -> Forms:
    def forms(s: Size) -> Iterator[Form]:
        shape = (s.rows, s.columns)
        for axis, reduction in itertools.product((0, 1), reductions):
            given: list[Given] = [shape, Places(shape, shape[axis]), shape]
            yield Form(f"{reduction}, axis {axis}", given, {"axis": axis, "reduction": reduction})

    return forms


def scattered_rows(s: Size) -> Iterator[Form]:
    for reduction in ("none", "add", "mul", "max"):
        given: list[Given]
        given = [(s.rows, s.columns), Places((s.rows, 1), s.rows), (s.rows, s.columns)]
        yield Form(f"{reduction}, rows", given, {"reduction": reduction})
        given = [(s.rows, s.columns), Places((s.elements // 2, 2), s.rows), (s.elements // 2,)]
        yield Form(f"{reduction}, numbers", given, {"reduction": reduction})


def slices(s: Size) -> Iterator[Form]:
    cube = (s.cube,) * 3
    half, most = s.cube // 2, s.cube
    yield Form("first half", [cube, ints(0), ints(half), ints(0)])
    yield Form("last axis", [cube, ints(1), ints(most), ints(2)])
    yield Form("steps", [cube, ints(0, 0), ints(most, most), ints(1, 2), ints(2, 2)])
    yield Form("backward", [cube, ints(-1), ints(-most - 1), ints(2), ints(-1)])


def joined(s: Size) -> Iterator[Form]:
    for axis in range(3):
        yield Form(f"axis {axis} of 3", [(s.cube,) * 3] * 2, {"axis": axis})


def parts(s: Size) -> Iterator[Form]:
    for axis in range(3):
        yield Form(f"axis {axis} of 3", [(s.cube,) * 3], {"axis": axis, "num_outputs": 2}, 2)


def expanded(s: Size) -> Iterator[Form]:
    cube = ints(s.cube, s.cube, s.cube)
    yield Form("rows", [(1, s.columns), ints(s.rows, s.columns)])
    yield Form("columns", [(s.rows, 1), ints(s.rows, s.columns)])
    yield Form("middle", [(s.cube, 1, s.cube), cube])
    yield Form("a number", [(), ints(s.rows, s.columns)])


def tiles(s: Size) -> Iterator[Form]:
    yield Form("rows", [(s.rows // 5, s.columns), ints(5, 1)])
    yield Form("columns", [(s.rows, s.columns // 5), ints(1, 5)])
    yield Form("both", [(s.rows // 5, s.columns // 2), ints(5, 2)])


def pads(*modes: str) -> Forms:
    def forms(s: Size) -> Iterator[Form]:
        for mode in modes:
            yield Form(mode, [(1, *s.image), ints(0, 0, 1, 1, 0, 0, 1, 1)], {"mode": mode})
        yield Form("first axis", [(s.rows, s.columns), ints(1, 0, 1, 0)])

    return forms


def resizes(s: Size) -> Iterator[Form]:
    _, height, width = s.image
    image = (1, 3, height, width)
    for mode, factor in itertools.product(("nearest", "linear", "cubic"), (2.0, 0.5)):
        scales = Constant(np.array([1, 1, factor, factor], np.float32))
        yield Form(f"{mode} {factor}", [image, None, scales], {"mode": mode})
    scales = Constant(np.array([1, 1, 0.5, 0.5], np.float32))
    for mode in ("linear", "cubic"):
        yield Form(f"{mode} antialias", [image, None, scales], {"mode": mode, "antialias": 1})


def sampled(s: Size) -> Iterator[Form]:
    _, height, width = s.image
    for mode in ("linear", "nearest", "cubic"):
        yield Form(mode, [(1, 3, height, width), (1, height, width, 2)], {"mode": mode})
    cube = (s.cube // 2,) * 3
    yield Form("linear, 3 axes", [(1, 1, *cube), (1, *cube, 3)], {"mode": "linear"})


def grids(s: Size) -> Iterator[Form]:
    _, height, width = s.image
    yield Form("2 axes", [(4, 2, 3), ints(4, 1, height, width)])
    yield Form("3 axes", [(1, 3, 4), ints(1, 1, *(s.cube // 2,) * 3)])


def windows(s: Size) -> Iterator[Form]:
    yield Form("3x3", [(1, *s.image)], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})
    yield Form("2x2, strides", [(1, *s.image)], {"kernel_shape": [2, 2], "strides": [2, 2]})


def convolutions(s: Size) -> Iterator[Form]:
    channels, height, width = s.image
    image = (1, channels, height // 2, width // 2)
    weights = Constant((channels, channels, 3, 3))
    yield Form("3x3", [image, weights], {"pads": [1, 1, 1, 1]})
    yield Form("1x1", [image, Constant((channels, channels, 1, 1))])
    yield Form("one axis", [(1, channels, s.elements // 64), Constant((channels, channels, 3))])
    depthwise = Constant((channels, 1, 3, 3))
    yield Form("depthwise", [image, depthwise], {"group": channels})


def deformed(s: Size) -> Iterator[Form]:
    channels, height, width = s.image
    height, width = min(height, 60), min(width, 60)
    image = (1, channels, height, width)
    yield Form("3x3", [image, Constant((channels, channels, 3, 3)), (1, 18, height - 2, width - 2)])


def products(s: Size) -> Iterator[Form]:
    p = s.product
    yield Form("", [(p, p), (p, p)])
    yield Form("weights", [(p, p), Constant((p, p))])
    yield Form("a row", [(1, p), Constant((p, p))])
    yield Form("batch", [(4, p // 2, p // 2), (4, p // 2, p // 2)])


def einsums(s: Size) -> Iterator[Form]:
    p = s.product // 2
    yield Form("ij,jk->ik", [(p, p), (p, p)], {"equation": "ij,jk->ik"})
    yield Form("bij,bkj->bik", [(2, p, p), (2, p, p)], {"equation": "bij,bkj->bik"})
    yield Form("ij->ji", [(s.rows, s.columns)], {"equation": "ij->ji"})


def recurrent(gates: int) -> Forms:
    def forms(s: Size) -> Iterator[Form]:
        f = min(s.few, 64)
        given: list[Given] = [(f, 1, f), Constant((1, gates * f, f)), Constant((1, gates * f, f))]
        yield Form("", given, {"hidden_size": f})

    return forms


def quantized(s: Size) -> Iterator[Form]:
    shape = (s.rows, s.columns)
    yield Form("one scale", [shape, Constant((), "scale"), Constant((), "zero")])
    yield Form(
        "a scale per row", [shape, Constant((s.rows,), "scale"), Constant((s.rows,), "zero")],
        {"axis": 0},
    )  # fmt: skip


def best(s: Size) -> Iterator[Form]:
    for count in (1, 10):
        yield Form(f"{count} of rows", [(s.rows, s.columns), ints(count)], {}, 2)
    yield Form("5 of columns", [(s.rows, s.columns), ints(5)], {"axis": 0}, 2)
    yield Form("all, sorted", [(s.few, s.few), ints(s.few)], {}, 2)


def uniques(s: Size) -> Iterator[Form]:
    yield Form("numbers", [(s.rows * 10,)], {}, 1)
    yield Form("numbers, all outputs", [(s.rows * 10,)], {}, 4)
    yield Form("rows", [(s.rows, 4)], {"axis": 0}, 1)


def rois(s: Size) -> Iterator[Form]:
    channels, height, width = s.image
    boxes = np.tile(np.array([[0, 0, 0.8 * width, 0.8 * height]]), (s.few, 1))
    sizes = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    indices = Constant(np.zeros(s.few, np.int64))
    for mode in ("avg", "max"):
        given: list[Given] = [(1, channels, height, width), Constant(boxes, "typed"), indices]
        yield Form(mode, given, {"mode": mode, **sizes})


def columns(s: Size) -> Iterator[Form]:
    _, height, width = s.image
    blocks = (height - 2) * (width - 2)
    yield Form("3x3", [(1, 4 * 9, blocks), ints(height, width), ints(3, 3)])


def transforms(s: Size) -> Iterator[Form]:
    yield Form("real", [(s.few, s.few, 1), None, number(1)], {})
    yield Form("complex", [(s.few, s.few, 2), None, number(1)], {})


def words(s: Size) -> Iterator[Form]:
    grams = {
        "max_gram_length": 2, "max_skip_count": 0, "min_gram_length": 1, "mode": "TF",
        "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8],
    }  # fmt: skip
    yield Form("2 grams", [(s.rows, s.columns)], grams, only=("int32", "int64"))


def lookups(s: Size) -> Iterator[Form]:
    shape = (s.rows, s.columns)
    keys: dict[str, Any] = {"keys_int64s": list(range(50)), "values_int64s": list(range(50))}
    yield Form("int64 to int64", [shape], keys, only=("int64",))
    keys = {"keys_floats": [0.5 * n for n in range(50)], "values_floats": [1.0] * 50}
    yield Form("float to float", [shape], keys, only=("float",))
    keys = {"keys_strings": ["a", "ONNX", "-3"], "values_int64s": [1, 2, 3]}
    yield Form("string to int64", [shape], keys, only=("string",))


def images(name: str, **attributes: Any) -> Forms:
    def forms(s: Size) -> Iterator[Form]:
        yield Form(name, [(1, *s.image)], attributes)

    return forms


def matrices(**attributes: Any) -> Forms:
    def forms(s: Size) -> Iterator[Form]:
        yield Form("", [(s.rows, s.columns)], attributes)

    return forms


def per_channel(count: int) -> Forms:
    """An image and some parameters of each channel."""

    def forms(s: Size) -> Iterator[Form]:
        yield Form("", [(1, *s.image), *[Constant(s.image[:1], "scale")] * count])

    return forms


def per_column(*inputs: str) -> Forms:
    """A matrix, others like it, and constants of each column."""

    def forms(s: Size) -> Iterator[Form]:
        matrix = (s.rows, s.columns)
        yield Form("", [matrix if each == "x" else Constant((s.columns,)) for each in inputs])

    return forms


def quantized_pairs(s: Size) -> Iterator[Form]:
    """Two operands and the result, each with a scale and a zero point."""
    parameters: list[Given] = [Constant((), "scale"), Constant((), "zero")]
    operand: list[Given] = [(s.rows, s.columns), *parameters]
    yield Form("", [*operand, *operand, *parameters])


# By operator, with the domain of others than ONNX's.
FORMS: Mapping[str, Forms] = {
    **dict.fromkeys(
        (
            *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
            *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        ),
        reductions,
    ),
    **dict.fromkeys(["ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "Softmax"], by_axis()),
    **dict.fromkeys(["LpNormalization"], by_axis()),
    **dict.fromkeys(["CumProd", "CumSum"], scans),
    **dict.fromkeys(["AveragePool", "LpPool", "MaxPool"], windows),
    **dict.fromkeys(["Conv", "ConvInteger", "com.microsoft.FusedConv"], convolutions),
    **dict.fromkeys(["MatMul", "MatMulInteger", "com.microsoft.FusedMatMul"], products),
    "com.microsoft.FusedGemm": lambda s: FORMS["Gemm"](s),
    **dict.fromkeys(["DequantizeLinear", "QuantizeLinear"], quantized),
    "AffineGrid": grids,
    "BatchNormalization": per_channel(4),
    "BitCast": lambda s: iter([Form("to int32", [(s.rows, s.columns)], {"to": 6}, 1, ("float",))]),
    "BitShift": lambda s: (
        Form(side, [(s.rows, s.columns)] * 2, {"direction": side}) for side in ("LEFT", "RIGHT")
    ),
    "Cast": casts,
    "Clip": lambda s: iter([Form("", [(s.rows, s.columns), number(1), number(2)])]),
    "Col2Im": columns,
    "Compress": lambda s: iter([Form("rows", [(s.rows, s.columns), (s.rows,)], {"axis": 0})]),
    "Concat": joined,
    "ConstantOfShape": lambda s: iter([Form("", [ints(s.rows, s.columns)])]),
    "ConvTranspose": lambda s: iter(
        [Form("2x2", [(1, *s.image), Constant((s.image[0], 4, 2, 2))], {"strides": [2, 2]})]
    ),
    "DFT": transforms,
    "DeformConv": deformed,
    "DepthToSpace": lambda s: iter(
        [Form("", [(1, s.image[0] // 4 * 4, 100, 10)], {"blocksize": 2})]
    ),
    "Det": lambda s: iter([Form("", [(s.few, 8, 8)])]),
    "Einsum": einsums,
    "Expand": expanded,
    "Gather": gathers,
    "GatherElements": elements,
    "GatherND": lambda s: iter([Form("rows", [(s.rows, s.columns), Places((s.rows, 1), s.rows)])]),
    "Gemm": lambda s: iter(
        [Form("", [(s.product,) * 2, Constant((s.product,) * 2), (s.product,)])]
    ),
    "GRU": recurrent(3),
    "GridSample": sampled,
    "InstanceNormalization": per_channel(2),
    "LRN": images("", size=5),
    "LSTM": recurrent(4),
    "LayerNormalization": per_column("x", "1", "1"),
    "MaxRoiPool": images("", pooled_shape=[2, 2]),
    "Mod": lambda s: (
        Form(f"fmod={fmod}", [(s.rows, s.columns)] * 2, {"fmod": fmod}) for fmod in (0, 1)
    ),
    "OneHot": lambda s: iter([Form("", [Places((s.rows,), s.few), number(s.few), (2,)])]),
    "Pad": pads("constant", "reflect", "edge"),
    "PRelu": lambda s: iter([Form("by column", [(s.rows, s.columns), Constant((s.columns,))])]),
    "Pow": lambda s: (Form(f"{power}", [(s.rows, s.columns), number(power)]) for power in (2, 3)),
    "QuantizeLinear": quantized,
    "RMSNormalization": per_column("x", "1"),
    "RNN": recurrent(1),
    "Range": lambda s: iter([Form("", [number(0), number(min(s.elements, 30000)), number(1)])]),
    "Resize": resizes,
    "Reshape": lambda s: iter([Form("", [(s.rows, s.columns), ints(-1)])]),
    "ReverseSequence": lambda s: iter(
        [Form("", [(s.rows, s.columns), Constant(np.full(s.columns, s.rows // 2))])]
    ),
    "RoiAlign": rois,
    "ScatterElements": scattered("none", "add", "mul", "max"),
    "ScatterND": scattered_rows,
    "Slice": slices,
    "SpaceToDepth": lambda s: iter([Form("", [(1, s.image[0], s.few, s.few)], {"blocksize": 2})]),
    "Split": parts,
    "Squeeze": lambda s: iter([Form("", [(s.rows, 1, s.columns), ints(1)])]),
    "StringSplit": matrices(delimiter=" "),
    "TfIdfVectorizer": words,
    "Tile": tiles,
    "TopK": best,
    "Transpose": transposes,
    "Unique": uniques,
    "Unsqueeze": lambda s: iter([Form("", [(s.rows, s.columns), ints(1)])]),
    "Where": lambda s: iter(
        [
            Form("", [(s.rows, s.columns)] * 3),
            Form("by row", [(s.rows, s.columns), (s.columns,), Constant(())]),
            Form("by column", [(s.rows, 1), (s.rows, s.columns), (s.rows, s.columns)]),
        ]
    ),
    "ai.onnx.ml.ArrayFeatureExtractor": lambda s: iter(
        [Form("", [(s.rows, s.columns), Constant(np.arange(0, s.columns, 2))])]
    ),
    "ai.onnx.ml.Binarizer": matrices(threshold=0.5),
    "ai.onnx.ml.LabelEncoder": lookups,
    "ai.onnx.ml.Normalizer": lambda s: (
        Form(norm, [(s.rows, s.columns)], {"norm": norm}) for norm in ("L1", "L2", "MAX")
    ),
    "ai.onnx.ml.OneHotEncoder": matrices(cats_int64s=list(range(5))),
    "ai.onnx.ml.Scaler": matrices(offset=[0.5], scale=[2.0]),
    "com.microsoft.SkipLayerNormalization": per_column("x", "x", "1", "1", "1"),
    "com.microsoft.SkipSimplifiedLayerNormalization": per_column("x", "x", "1"),
    "com.microsoft.BiasGelu": per_column("x", "1"),
    "com.microsoft.FastGelu": per_column("x", "1"),
    **dict.fromkeys(["com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"], quantized_pairs),
}


def forms_of(operator: Operator, size: Size) -> list[Form]:
    """Return the ways to call an operator."""
    known = FORMS.get(operator.title) or FORMS.get(operator.name)  # contrib's share ONNX's names
    if known is not None:
        return list(known(size))
    kinds = [operand.kind for operand in operator.operands if operand.is_needed]
    if len(kinds) == 2 and kinds[0] == kinds[1] and not operator.kernel.shapes:
        return list(broadcast(size))
    return [declared_form(operator, size)]
