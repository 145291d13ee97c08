"""com.microsoft's attention as ONNX's: projections, masks of integers, caches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from tenonnx.graph.dtypes import dtype_of
from tenonnx.graph.sizes import operand, rank_of
from tenonnx_fuse.known import attribute, weight_of
from tenonnx_fuse.writing import NUMPY_FLOATS, Made, Refusal, Writer, is_read

# The summand of a hidden key's score, unless an operator sets another.
HIDDEN = -10000.0


class _Heads(Writer):
    """The writer of what operators of attention have in common.

    Args:
        node: The one in whose place it is.
        x: What says its type.
    """

    def __init__(self, node: ir.Node, x: ir.Value) -> None:
        super().__init__()
        self._node = node
        self._heads = attribute(node, "num_heads", 0)
        dtype = NUMPY_FLOATS.get(dtype_of(x))
        if dtype is None:
            raise Refusal("its numbers are not known to be float32 or float16")
        self._dtype = dtype

    def lengths(self, mask: ir.Value | None, x: ir.Value) -> ir.Value | None:
        """Add how many keys of each entry count, if the mask says that of the batch of ``x``."""
        if rank_of(mask) != 1 or mask is None:
            return None
        made = mask.producer()
        batches = [None if value.shape is None else value.shape[0] for value in (mask, x)]
        is_end = made is not None and made.op_type == "EmbedLayerNormalization"
        if not is_end and (batches[0] is None or batches[0] != batches[1]):
            raise Refusal("what its mask of one axis says is not known")
        return self.add("Cast", mask, to=int(ir.DataType.INT64))

    def bias(self, mask: ir.Value | None, added: ir.Value | None) -> ir.Value | None:
        """Add what scores are added to: of integers that are above 0 for keys that are seen."""
        if mask is None or (rank := rank_of(mask)) == 1:
            return added
        if rank not in (2, 3):
            raise Refusal(f"its mask has {rank or 'unknown'} axes")
        least = float(np.finfo(self._dtype).min)
        # Finite in float16 too: a query whose keys are all minus infinity would become NaN.
        value = max(least, attribute(self._node, "mask_filter_value", HIDDEN))
        seen = self.add("Greater", mask, np.array(0, np.int32))
        numbers = (np.full((), number, self._dtype) for number in (0.0, value))
        hidden = self.add("Where", seen, *numbers, version=16)
        hidden = self.add("Unsqueeze", hidden, np.array([1, 2] if rank == 2 else [1]))
        return hidden if added is None else self.add("Add", hidden, added)

    def attend(
        self,
        operands: Sequence[ir.Value],
        mask: ir.Value | None,
        added: ir.Value | None,
        pasts: Sequence[ir.Value | None],
    ) -> list[ir.Value]:
        """Add attention; return its result, and keys and values."""
        lengths = self.lengths(mask, operands[0])
        attributes: dict[str, Any] = {"is_causal": attribute(self._node, "unidirectional", 0)}
        if scale := attribute(self._node, "scale", 0.0):
            attributes["scale"] = scale
        if lengths is not None and (pasts[0] is not None or attributes["is_causal"]):
            raise Refusal("its mask of one axis goes with a past, or hides what comes later")
        if rank_of(operands[1]) == 3:
            attributes |= {"q_num_heads": self._heads, "kv_num_heads": self._heads}
        inputs = [*operands, self.bias(mask, added), *pasts, lengths]
        while inputs[-1] is None:
            inputs.pop()
        version = 23 if lengths is None else 24
        kept = any(is_read(self._node, output) for output in (1, 2))
        return list(
            self.several(3 if kept else 1, "Attention", *inputs, version=version, **attributes)
        )

    def in_heads(self, x: ir.Value) -> ir.Value:
        """Add what makes (batch, length, heads * size) (batch, heads, length, size)."""
        apart = self.add("Reshape", x, np.array([0, 0, self._heads, -1]))
        return self.add("Transpose", apart, perm=[0, 2, 1, 3])

    def joined(self, x: ir.Value) -> ir.Value:
        """Add what makes (batch, heads, length, size) (batch, length, heads * size)."""
        return self.add(
            "Reshape", self.add("Transpose", x, perm=[0, 2, 1, 3]), np.array([0, 0, -1])
        )

    def parts(self, x: ir.Value, widths: Sequence[int], axis: int) -> list[ir.Value]:
        """Add what cuts a value along an axis."""
        ends = itertools.accumulate(widths)
        return [
            self.add("Slice", x, *(np.array([n]) for n in (end - width, end, axis)))
            for width, end in zip(widths, ends, strict=True)
        ]


def multi_head_attention(node: ir.Node) -> Made:
    """Attention with a bias for queries, keys and values, or with keys and values of a cache."""
    q, k, v, bias, mask, added, past_k, past_v = (operand(node, place) for place in range(8))
    if any(value is not None for value in node.inputs[8:]):
        raise Refusal("its cache is shared by beams, or has room for more")
    if q is None or k is None or v is None or rank_of(q) != 3 or rank_of(k) != rank_of(v):
        raise Refusal("queries, keys and values are not known to lie apart")
    is_cache = rank_of(k) == 4
    if rank_of(k) not in (3, 4) or (is_cache and bias is not None):
        raise Refusal("keys are of another rank, or a cache that a bias is added to")
    if is_read(node, 3):
        raise Refusal("its weights are read, too")
    if attribute(node, "unidirectional", 0) and not _are_as_long(q, k):
        raise Refusal("there are not known to be as many keys as queries")
    writer = _Heads(node, q)
    if bias is not None:
        shares = writer.parts(bias, _widths(q, v, bias), 0)
        q, k, v = (writer.add("Add", x, share) for x, share in zip((q, k, v), shares, strict=True))
    if is_cache:
        operands = writer.in_heads(q), k, v
        y, *present = writer.attend(operands, mask, added, (past_k, past_v))
        return Made(writer.nodes, [writer.joined(y), *present])
    return Made(writer.nodes, writer.attend((q, k, v), mask, added, (past_k, past_v)))


def attention(node: ir.Node) -> Made:
    """A product that makes queries, keys and values of one input, and attention."""
    x, weights, bias, mask, past, added = (operand(node, place) for place in range(6))
    if x is None or weights is None or operand(node, 6) is not None:
        raise Refusal("its cache has room for more")
    writer = _Heads(node, weights)
    projected = writer.add("MatMul", x, weights)
    if bias is not None:
        projected = writer.add("Add", projected, bias)
    return _self_attention(writer, node, (x, weights, projected), mask, past, added)


def q_attention(node: ir.Node) -> Made:
    """The same of a quantized input and quantized weights."""
    x, weights, bias, x_scale, scale, mask, x_zero, zero, past = (
        operand(node, place) for place in range(9)
    )
    if x is None or bias is None or weights is None:
        raise Refusal("an input is missing")
    writer = _Heads(node, bias)
    projected = writer.add(
        "MatMulIntegerToFloat", x, weights, x_scale, scale, x_zero, zero, bias,
        domain="com.microsoft", version=1,
    )  # fmt: skip
    return _self_attention(writer, node, (x, weights, projected), mask, past, None)


def _self_attention(
    writer: _Heads,
    node: ir.Node,
    product: tuple[ir.Value, ir.Value, ir.Value],
    mask: ir.Value | None,
    past: ir.Value | None,
    added: ir.Value | None,
) -> Made:
    x, weights, projected = product
    if attribute(node, "do_rotary", 0) or attribute(node, "past_present_share_buffer", 0):
        raise Refusal("it turns heads, or its cache has room for more")
    width = _last(weights)
    if width is None:
        raise Refusal("the width of its weights is not known")
    widths = list(attribute(node, "qkv_hidden_sizes", ()) or [width // 3] * 3)
    pasts: list[ir.Value | None] = [None, None]
    if past is not None:
        pasts = [writer.add("Gather", past, np.array(place), axis=0) for place in range(2)]
    parts = writer.parts(projected, widths, 2)
    for part in parts:
        part.shape = ir.Shape([*(x.shape[:2] if x.shape is not None else (None, None)), None])
    y, *present = writer.attend(parts, mask, added, pasts)
    if not is_read(node, 1):
        return Made(writer.nodes, [y])
    if widths[1] != widths[2]:
        raise Refusal("keys and values are of different widths")
    present = [writer.add("Unsqueeze", each, np.array([0])) for each in present]
    return Made(writer.nodes, [y, writer.add("Concat", *present, axis=0)])


def _last(value: ir.Value | None) -> int | None:
    """Return the length of a value's last axis, if it is known."""
    weight = weight_of(value)
    shape = weight.shape if weight is not None else None if value is None else value.shape
    last = shape[-1] if shape else None
    if isinstance(last, int):
        return last
    made = None if value is None else value.producer()
    return _last(operand(made, 1)) if made is not None and made.op_type == "MatMul" else None


def _widths(q: ir.Value, v: ir.Value, bias: ir.Value) -> list[int]:
    """Return how many elements of a bias are the queries', the keys' and the values'."""
    total, own, last = _last(bias), _last(q), _last(v)
    if total is None or (own is None and last is None):
        raise Refusal("the widths of queries and values are not known")
    own = (total - (last or 0)) // 2 if own is None else own
    return [own, own, total - 2 * own]


def _are_as_long(q: ir.Value, k: ir.Value) -> bool:
    """Return whether there are as many keys as queries: by shape, or as products of one value."""
    if q.shape is not None and k.shape is not None and len(q.shape) == len(k.shape) == 3:
        known = isinstance(q.shape[1], int) or q.shape[1].value is not None
        return bool(known and q.shape[1] == k.shape[1])
    return _multiplied(q) is _multiplied(k)


def _multiplied(x: ir.Value) -> ir.Value:
    """Return the input of a product by a matrix, perhaps with a bias."""
    for kinds in (("Add",), ("MatMul", "MatMulNBits")):
        made = x.producer()
        if made is not None and made.op_type in kinds and made.inputs[0] is not None:
            x = made.inputs[0]
    return x
