"""Values and shapes that no operator takes: errors as onnxruntime has them, with kernels too."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import helper

import tenonnx

F32 = np.float32


class Refused(NamedTuple):
    """A node, its inputs, and what is said of it; ``None`` if it runs."""

    node: onnx.NodeProto
    inputs: list[np.ndarray[Any, Any] | None]
    message: str | None
    opset: int = 21


def reals(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(F32)


def refused(
    op: str,
    inputs: list[Any],
    message: str | None,
    outputs: str = "y",
    opset: int = 21,
    **attributes: Any,
) -> Refused:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    made = helper.make_node(op, names, outputs.split(), **attributes)
    return Refused(made, inputs, message, opset)


def recurrent(op: str, gates: int, lengths: list[int], message: str | None) -> Refused:
    weights = [reals(1, 5 * gates, 4), reals(1, 5 * gates, 5)]
    given = [reals(3, 2, 4), *weights, None, np.array(lengths, np.int32)]
    return refused(op, given, message, "y h", hidden_size=5)


def cached(
    message: str | None,
    lengths: tuple[int, ...] = (3,),
    total: int = 4,
    sizes: tuple[int, int] = (8, 8),
    slots: tuple[int, int] = (3, 3),
    new: int = 1,
) -> Refused:
    pasts = [reals(1, 2, held, size) for held, size in zip(slots, sizes, strict=True)]
    tokens = [reals(1, new, 4 * 8), *(reals(1, new, 2 * size) for size in sizes)]
    counts = [np.array(lengths, np.int32), np.array(total, np.int32)]
    heads = {"num_heads": 4, "kv_num_heads": 2}
    op = "GroupQueryAttention"
    return refused(op, [*tokens, *pasts, *counts], message, "y k v", domain=MICROSOFT, **heads)


def experts(message: str | None, rows: int) -> Refused:
    given = [reals(3, 4), reals(rows, 2), reals(2, 6, 4), None, reals(2, 4, 6)]
    return refused("MoE", given, message, domain=MICROSOFT, k=1)


def vectors(message: str | None, *counts: int) -> Refused:
    return refused(
        "SVMClassifier",
        [reals(3, 2)],
        message,
        "l y",
        domain="ai.onnx.ml",
        vectors_per_class=counts,
        kernel_type="LINEAR",
        kernel_params=[1.0, 0.0, 3.0],
        support_vectors=[1.0, 2.0, 3.0, 4.0],
        coefficients=[1.0, -1.0],
        rho=[0.5],
        classlabels_ints=[0, 1],
    )


def averaged(message: str | None, zero: type[np.integer[Any]]) -> Refused:
    image, scale = np.arange(16, dtype=np.uint8).reshape(1, 4, 2, 2), np.array(0.5, F32)
    given = [image, scale, np.array(3, np.uint8), scale, np.array(4, zero)]
    return refused("QLinearGlobalAveragePool", given, message, domain=MICROSOFT)


def region(message: str | None, image: int) -> Refused:
    given = [reals(2, 2, 4, 4), np.array([[0, 0, 2, 2]], F32), np.array([image])]
    return refused("RoiAlign", given, message)


def shaped(message: str | None, *shape: int) -> Refused:
    return refused("Reshape", [reals(2, 2), np.array(shape)], message)


def parts(message: str | None, size: int, count: int, **more: Any) -> Refused:
    outputs = " ".join(f"y{i}" for i in range(count))
    lengths = [np.array(more.pop("lengths"))] if "lengths" in more else []
    return refused("Split", [reals(size, 2), *lengths], message, outputs, **more)


MICROSOFT = "com.microsoft"
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = "sequence_lens"
CASES = {
    "mask wider than keys": refused(
        "Attention",
        [*(reals(1, 2, length, 8) for length in (3, 5, 5)), reals(3, 6)],
        "attn_mask has 6 columns, but there are 5 keys",
        opset=23,
    ),
    **{f"{op} {c}": recurrent(op, n, c, None) for op, n in GATES.items() for c in ([3, 0], [1, 2])},
    **{
        f"{op} {c}": recurrent(op, n, c, LENGTHS)
        for op, n in GATES.items()
        for c in ([4, 2], [-1, 2], [3], [3, 3, 3], [2**31 - 1, 0])
    },
    "an image": region(None, 1),
    "no image": region("expected batch_indices from 0 to 1, found", 2),
    "an image from the end": region("expected batch_indices from 0 to 1, found", -1),
    "a shape": shaped(None, -1, 2),
    "a shape of -2": shaped("expected a shape of -1, 0 and sizes", -2, 2),
    "a shape of two -1": shaped("a shape of the 4 elements of data", -1, -1),
    "parts with a rest": parts(None, 7, 3, num_outputs=3),
    "parts with an empty rest": parts(None, 4, 3, num_outputs=3),
    "parts beyond the end": parts("into 4 parts, of which all but", 5, 4, num_outputs=4),
    "more parts than outputs": parts("expected num_outputs to be 2, found 3", 3, 2, num_outputs=3),
    "more lengths than outputs": parts("have 2 lengths, found 3", 3, 2, lengths=[1, 1, 1]),
    "equal parts with a rest": parts("into 2 equal parts", 3, 2, opset=13),
    "a token": cached(None),
    "a prompt": cached(None, lengths=(2,), new=4, slots=(0, 0)),
    "tokens too many": cached("seqlens_k of 1 numbers from 0 to 3", lengths=(9,)),
    "tokens fewer than none": cached("seqlens_k of 1 numbers from 0 to 3", lengths=(-2,)),
    "tokens beyond the prompt": cached("from 0 to 3", lengths=(7,), new=4, slots=(0, 0)),
    "tokens of two": cached("seqlens_k of 1 numbers", lengths=(3, 3)),
    "a total that is small": cached("seqlens_k of 1 numbers from 0 to 1", total=2),
    "a total that is large": cached("total_sequence_length of at most 4", total=20),
    "keys unlike values": cached("key and value of one shape", sizes=(8, 4)),
    "caches that differ": cached("past_value 'x4' has the shape", slots=(3, 2)),
    "a row for each token": experts(None, 3),
    "a row too few": experts("scores of 3 tokens", 2),
    "a row too many": experts("scores of 3 tokens", 4),
    "zero points of one type": averaged(None, np.uint8),
    "zero points of two types": averaged("wants operands of one type", np.int8),
    "vectors": vectors(None, 1, 1),
    "vectors of one": vectors("two classes or more, each with its vectors", 2),
    "vectors of more": vectors("found 2 labels and 3 numbers in vectors_per_class", 1, 1, 0),
    "vectors less than none": vectors("vectors_per_class of at least 0", 3, -1),
}


def content(case: Refused) -> bytes:
    types = helper.np_dtype_to_tensor_dtype
    given = [
        helper.make_tensor_value_info(name, types(x.dtype), [None] * x.ndim)
        for name, x in zip(case.node.input, case.inputs, strict=True)
        if x is not None
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in case.node.output]
    imports = [("", case.opset), (MICROSOFT, 1), ("ai.onnx.ml", 3)]
    proto = helper.make_model(
        helper.make_graph([case.node], "test", given, made),
        opset_imports=[helper.make_opsetid(*each) for each in imports],
        ir_version=10,
    )
    return proto.SerializeToString()


def outcome(module: Any, case: Refused) -> str | None:
    """Return what goes wrong the first time, and again once kernels are recorded."""
    said = None
    feeds = {n: x for n, x in zip(case.node.input, case.inputs, strict=True) if x is not None}
    try:
        session = module.InferenceSession(content(case), providers=["CPUExecutionProvider"])
    except Exception as error:
        return str(error)
    for _ in range(4):
        try:
            session.run(None, feeds)
        except Exception as error:
            said = str(error)
        else:
            assert said is None
    return said


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_onnxruntime_refuses(case: Refused) -> None:
    said = outcome(tenonnx, case)
    if case.message is None:
        assert said is None
    else:
        assert said is not None
        assert case.message in said
    onnxruntime = pytest.importorskip("onnxruntime")
    onnxruntime.set_default_logger_severity(4)
    assert (outcome(onnxruntime, case) is None) == (case.message is None)
