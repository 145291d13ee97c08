"""Classical models in ONNX's plain operators: scores of classes, and what is done to features.

ai.onnx.ml has an operator for all of a classifier. Written out it is a product or a walk down
trees, an ArgMax and a Softmax, which providers have kernels for and join with what is around them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import integers_of, last_of, operand, rank_of
from tenonnx_fuse.constants import Array
from tenonnx_fuse.known import array_of, attribute, number_of
from tenonnx_fuse.writing import Made, Writer, Writers, writing_out

ML = "ai.onnx.ml"

TRANSFORMS = {"SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}

TREES = ("treeids", "nodeids", "ids", "weights", "weights_as_tensor")


class _Writer(Writer):
    """The writer of what classifiers have in common."""

    def transform(self, scores: ir.Value, name: str) -> ir.Value:
        """Add a post transform of ``TRANSFORMS``."""
        axis: dict[str, Any] = {"axis": 1} if name == "SOFTMAX" else {}
        return self.add(TRANSFORMS[name], scores, **axis) if name in TRANSFORMS else scores

    def classify(self, scores: ir.Value, labels: Array, transform: str) -> Made:
        """Add the choice of the greatest score; return what makes labels and scores."""
        winner = self.add("ArgMax", scores, axis=1, keepdims=0)
        if not _are_places(labels):
            winner = self.add("Gather", labels, winner)
        return Made(self.nodes, [winner, self.transform(scores, transform)])


def _labels(node: ir.Node, ints: str, strings: str) -> Array | None:
    numbers, words = attribute(node, ints, ()), attribute(node, strings, ())
    if bool(numbers) == bool(words):
        return None
    return np.array(words, object) if words else np.array(numbers, np.int64)


def _are_places(labels: Array) -> bool:
    return labels.dtype != object and np.array_equal(labels, np.arange(len(labels)))


def _is_float_matrix(x: ir.Value | None) -> bool:
    return dtype_of(x) == ir.DataType.FLOAT and rank_of(x) == 2


def _weights(node: ir.Node, rows: int) -> tuple[Array, Array] | str:
    """Return the coefficients [rows, F] and intercepts [rows] of a linear model."""
    if not _is_float_matrix(operand(node, 0)):
        return "its input is not known to be a matrix of float32"
    coefficients = np.array(attribute(node, "coefficients", ()), np.float32)
    intercepts = np.array(attribute(node, "intercepts", ()), np.float32)
    if not rows or not coefficients.size or coefficients.size % rows:
        return f"{coefficients.size} coefficients are not of {rows} rows"
    features = last_of(operand(node, 0))
    if features is None:
        return "it reads as many coefficients as there are features, and these are not known"
    if features * rows > coefficients.size:
        return f"{coefficients.size} coefficients are too few for {features} features"
    coefficients = coefficients[: rows * features]  # what is left over is not read
    if intercepts.size not in (0, rows):
        return f"there are {intercepts.size} intercepts and {rows} rows"
    return coefficients.reshape(rows, -1), intercepts if intercepts.size else np.zeros(rows, "f")


def _product(writer: _Writer, x: ir.Value, weights: Array, bias: Array) -> ir.Value:
    return writer.add("Gemm", x, np.ascontiguousarray(weights.T), bias)


def linear_regressor(node: ir.Node) -> Made | str:
    """A product, and a transform."""
    transform = attribute(node, "post_transform", "NONE")
    if transform not in ("NONE", *TRANSFORMS):
        return f"its transform is {transform}"
    found = _weights(node, attribute(node, "targets", 1))
    if isinstance(found, str):
        return found
    writer, x = _Writer(), node.inputs[0]
    assert x is not None
    scores = writer.transform(_product(writer, x, *found), transform)
    return Made(writer.nodes, [scores])


def linear_classifier(node: ir.Node) -> Made | str:
    """A product, a choice and a transform; of two classes with one score, both get theirs."""
    labels = _labels(node, "classlabels_ints", "classlabels_strings")
    transform = attribute(node, "post_transform", "NONE")
    if labels is None or transform not in ("NONE", *TRANSFORMS):
        return f"its transform is {transform}, or its labels are unclear"
    rows = len(attribute(node, "intercepts", ()))
    if not rows and len(labels) == 2:
        return "without intercepts its coefficients may be of one score or of two"
    rows = rows or len(labels)
    pair = rows == 1 and len(labels) == 2
    if rows != len(labels) and not (pair and transform == "LOGISTIC"):
        return f"{rows} scores are chosen from {len(labels)} classes in another way"
    found = _weights(node, rows)
    if isinstance(found, str):
        return found
    writer, x = _Writer(), node.inputs[0]
    assert x is not None
    weights, bias = (np.concatenate([-each, each]) for each in found) if pair else found
    return writer.classify(_product(writer, x, weights, bias), labels, transform)


def trees_classifier(node: ir.Node) -> Made | str:
    """A regressor of as many targets as there are classes, a choice and a transform."""
    labels = _labels(node, "classlabels_int64s", "classlabels_strings")
    transform = attribute(node, "post_transform", "NONE")
    if labels is None or transform not in ("NONE", *TRANSFORMS):
        return f"its transform is {transform}, or its labels are unclear"
    base = node.attributes.get("base_values") or node.attributes.get("base_values_as_tensor")
    voted = {int(each) for each in attribute(node, "class_ids", ())}
    writer = _Writer()
    if len(labels) != 2 or len(voted) != 1:
        if voted and base is None and len(voted) < len(labels):
            return "there are classes that no leaf votes for"
        if base is not None and _numbers(base).size != len(labels):
            return "there is not one base value for each class"
        scores = _trees(writer, node, len(labels), base)
        return writer.classify(scores, labels, transform)
    weights = node.attributes.get("class_weights") or node.attributes["class_weights_as_tensor"]
    signed = bool((_numbers(weights) < 0).any())
    several = base is not None and _numbers(base).size != 1
    if voted != {0} or several or (transform == "LOGISTIC" and not signed):
        return "one score is made two in another way"
    # The second class scores s, the first one -s or 1 - s.
    score = _trees(writer, node, 1, None)
    shift = 0.0 if base is None else _numbers(base)[0]
    ends = np.array([(0.0 if signed else 1.0) - shift, shift], np.float32)
    both = writer.add("Gemm", score, np.array([[-1.0, 1.0]], np.float32), ends)
    # As in onnxruntime, SOFTMAX leaves two scores alone that are made of one.
    return writer.classify(both, labels, "NONE" if transform == "SOFTMAX" else transform)


def _numbers(attribute: ir.Attr) -> Array:
    """Return what an attribute of numbers has, or one that is a tensor."""
    value = attribute.value
    return np.array(value) if isinstance(value, Sequence) else value.numpy().reshape(-1)


def _trees(writer: _Writer, node: ir.Node, targets: int, base: ir.Attr | None) -> ir.Value:
    """Add the trees of a classifier as a regressor."""
    kept = [each for name, each in node.attributes.items() if name.startswith("nodes_")]
    for name in TREES:
        if (voting := node.attributes.get(f"class_{name}")) is not None:
            renamed = copy.copy(voting)
            renamed.name = f"target_{name}"
            kept.append(renamed)
    kept += [] if base is None else [base]
    kept.append(ir.AttrInt64("n_targets", targets))
    made = ir.Node(
        ML, "TreeEnsembleRegressor", node.inputs, kept, num_outputs=1, version=node.version
    )
    writer.nodes.append(made)
    return made.outputs[0]


def scaler(node: ir.Node) -> Made | str:
    """A difference and a product."""
    x = node.inputs[0]
    if x is None or dtype_of(x) != ir.DataType.FLOAT:
        return "its input is not known to be of float32"
    writer = _Writer()
    offset = np.array(attribute(node, "offset", ()) or (0.0,), np.float32)
    scale = np.array(attribute(node, "scale", ()) or (1.0,), np.float32)
    if {offset.size, scale.size} - {1, last_of(x)}:
        return "it has not as many offsets and scales as its input is known to have features"
    return Made(writer.nodes, [writer.add("Mul", writer.add("Sub", x, offset), scale)])


def lp_normalization(node: ir.Node) -> Made | str:
    """A quotient; rows of zeros stay as they are."""
    x, axis, p = node.inputs[0], attribute(node, "axis", -1), attribute(node, "p", 2)
    if x is None or p not in (1, 2) or dtype_of(x) != ir.DataType.FLOAT:
        return "its norm is neither L1 nor L2, or its input is not known to be of float32"
    writer = _Writer()
    if p == 1:
        length = writer.add("ReduceSum", writer.add("Abs", x), np.array([axis]), keepdims=1)
        length = writer.add("Max", length, np.array(np.finfo(np.float32).smallest_subnormal))
    else:
        length = writer.add("ReduceL2", x, axes=[axis], keepdims=1)
        # Squares may vanish where numbers do not, if they are summed in float32: these stay as
        # they are, over 1.
        one, zero = np.array(1, np.float32), np.array(0, np.float32)
        length = writer.add("Where", writer.add("Equal", length, zero), one, length)
    return Made(writer.nodes, [writer.add("Div", x, length)])


def feature_extractor(node: ir.Node) -> Made | str:
    """A Gather of columns, or of labels; labels that are their own places need none."""
    x, places = operand(node, 0), operand(node, 1)
    if x is None or places is None:
        return "an input is missing"
    writer, rank = _Writer(), rank_of(x)
    if not rank:
        return "the rank of its data is not known"
    if rank > 1:
        columns = array_of(places)
        flat: Any = np.array([-1])
        flat = writer.add("Reshape", places, flat) if columns is None else columns.reshape(-1)
        return Made(writer.nodes, [writer.add("Gather", x, flat, axis=-1)])
    row = writer.add("Reshape", places, np.array([1, -1]))
    chosen, labels = places.producer(), array_of(x)
    is_place = chosen is not None and chosen.op_type == "ArgMax"
    if is_place and labels is not None and _are_places(labels):
        kind = int(ir.DataType.from_numpy(labels.dtype))
        return Made(writer.nodes, [writer.add("Cast", row, to=kind)])
    return Made(writer.nodes, [writer.add("Gather", x, row)])


def log_sum_exp(node: ir.Node) -> Made | str:
    """Write the nodes that it stands for in a form that infinite inputs do not disturb."""
    x = operand(node, 0)
    if x is None or dtype_of(x) != ir.DataType.FLOAT:
        return "its input is not known to be of float32"
    axes = attribute(node, "axes", None)
    if len(node.inputs) > 1:
        axes = integers_of(node.inputs[1])
    if not axes:
        return "its axes are not known"
    writer, places = _Writer(), np.array(axes)
    top = writer.add("ReduceMax", x, axes=list(axes), keepdims=1)
    limits = np.finfo(np.float32)
    top = writer.add("Clip", top, np.array(limits.min), np.array(limits.max))
    powers = writer.add("Exp", writer.add("Sub", x, top))
    total = writer.add("Log", writer.add("ReduceSum", powers, places, keepdims=1))
    result = writer.add("Add", total, top)
    if not attribute(node, "keepdims", 1):  # a scalar has no axes to squeeze
        result = writer.add("ReduceMax", result, axes=list(axes), keepdims=0)
    return Made(writer.nodes, [result])


def product_and_column(node: ir.Node) -> Made | str:
    """A product, and a sum that joins those behind it: KMeans adds what each row has of its own."""
    a, b, c = (operand(node, place) for place in range(3))
    if c is None or not _is_column(c) or attribute(node, "beta", 1.0) != 1:
        return "what it adds is not known to be a column"
    writer, kept = _Writer(), ("alpha", "transA", "transB")
    given = {name: each.value for name, each in node.attributes.items() if name in kept}
    return Made(writer.nodes, [writer.add("Add", writer.add("Gemm", a, b, **given), c)])


def _is_column(value: ir.Value) -> bool:
    """Return whether a value is the sums of squares of a matrix' rows, or a multiple of them."""
    node = value.producer()
    if node is None or node.domain:
        return False
    if node.op_type == "Mul":
        numbers = [number_of(each) for each in node.inputs]
        rest = [each for each, n in zip(node.inputs, numbers, strict=True) if n is None]
        return len(rest) == 1 and rest[0] is not None and _is_column(rest[0])
    axes = attribute(node, "axes", None)
    if len(node.inputs) > 1:
        axes = integers_of(node.inputs[1])
    is_kept = node.op_type == "ReduceSumSquare" and attribute(node, "keepdims", 1) == 1
    return is_kept and rank_of(operand(node, 0)) == 2 and tuple(axes or ()) in ((1,), (-1,))


def of_one(write: Callable[[ir.Node], Made | str]) -> Callable[[ir.Node], Made | str]:
    """Return what writes a node of one input; a model with another one is to be refused."""

    def checked(node: ir.Node) -> Made | str:
        return write(node) if len(node.inputs) == 1 else "it has not one input"

    return checked


WRITERS: Writers = {
    ("", "Gemm"): product_and_column,
    ("", "LpNormalization"): of_one(lp_normalization),
    ("", "ReduceLogSumExp"): log_sum_exp,
    (ML, "ArrayFeatureExtractor"): feature_extractor,
    (ML, "LinearClassifier"): of_one(linear_classifier),
    (ML, "LinearRegressor"): of_one(linear_regressor),
    (ML, "Scaler"): of_one(scaler),
    (ML, "TreeEnsembleClassifier"): of_one(trees_classifier),
}

write_out = writing_out(WRITERS)
