from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
from draw import apart, below, positive, real, whole
from rows import Row

BYTES = (np.uint8, np.int8)


def nbits_rows() -> Iterator[Row]:
    for bits, block, (k, n), zeros, dtype in itertools.product(
        (2, 4, 8), (16, 32), ((64, 6), (40, 5)), ("", "packed", "real"), (np.float32, np.float16)
    ):
        if (dtype == np.float16 and block == 16) or (bits != 4 and zeros == "real"):
            continue
        blocks = -(-k // block)
        points: Any = None
        if zeros == "packed":
            points = whole(np.uint8, n, -(-blocks * bits // 8))
        elif zeros == "real":
            points = real(n, blocks, dtype=dtype) + dtype(1 << (bits - 1))
        inputs = [
            real(2, 3, k, dtype=dtype), whole(np.uint8, n, blocks, block * bits // 8),
            positive(n, blocks, dtype=dtype), points, None, real(n, dtype=dtype),
        ]  # fmt: skip
        half = dtype == np.float16
        yield Row(
            "MatMulNBits", inputs, {"K": k, "N": n, "bits": bits, "block_size": block},
            name=f"{bits}-{block}-{k}-{zeros}-{np.dtype(dtype).name}", constants=(1, 2, 3, 5),
            rtol=1e-2 if half else 1e-4, atol=2e-2 if half else 1e-4,
        )  # fmt: skip
    groups = np.random.default_rng(1).permutation(np.arange(64) // 16).astype(np.int32)
    for points in (None, real(12, 4) + np.float32(8)):
        inputs = [real(2, 64), whole(np.uint8, 12, 4, 8), positive(12, 4), points, groups]
        yield Row(
            "MatMulNBits", inputs, {"K": 64, "N": 12, "bits": 4, "block_size": 16},
            name=f"groups-{points is not None}", constants=(1, 2, 3, 4), atol=1e-4,
        )  # fmt: skip


def gather_rows() -> Iterator[Row]:
    block = 16
    layouts = (
        ((6, 32), 0, 1),
        ((4, 3, 32), 0, -1),
        ((20, 6), 1, 0),
        ((20, 6), 0, 0),
        ((4, 40), 0, 1),
    )
    for kind, (shape, axis, along), zeros in itertools.product(
        ((4, np.uint8), (8, np.uint8), (2, np.uint8), (4, ml_dtypes.int4), (4, ml_dtypes.uint4)),
        layouts,
        (False, True),
    ):
        bits, dtype = kind
        if dtype is np.uint8 and (axis or along % len(shape) == axis):
            continue
        blocks = tuple(
            -(-n // block) if i == along % len(shape) else n for i, n in enumerate(shape)
        )
        if dtype is np.uint8:
            data = whole(np.uint8, *shape[:-1], shape[-1] * bits // 8)
            points = whole(np.uint8, *blocks[:-1], -(-blocks[-1] * bits // 8))
        else:
            low = -8 if dtype is ml_dtypes.int4 else 0
            data = (below(16, *shape) + low).astype(dtype)
            points = (below(16, *blocks) + low).astype(dtype)
        indices = below(2 * shape[axis], 2, 3) - shape[axis]
        inputs = [data, indices, positive(*blocks), points if zeros else None]
        given = {
            "bits": bits, "block_size": block, "gather_axis": axis, "quantize_axis": along,
        }  # fmt: skip
        label = f"{np.dtype(dtype).name}-{bits}-{shape}-{axis}-{zeros}"
        yield Row("GatherBlockQuantized", inputs, given, name=label, constants=(0, 2, 3))


def integer_rows() -> Iterator[Row]:
    for a, b, count, bias in itertools.product(BYTES, BYTES, ((), (12,)), (False, True)):
        label = f"{np.dtype(a).name}-{np.dtype(b).name}-{len(count)}-{bias}"
        added = real(12) if bias else None
        inputs = [
            whole(a, 2, 3, 16), whole(b, 16, 12), positive(), positive(*count),
            whole(a) if bias else None, whole(b, *count) if bias else None, added,
        ]  # fmt: skip
        if a is np.uint8 or b is np.int8:
            yield Row("MatMulIntegerToFloat", inputs, name=label)
        if a is np.uint8:
            inputs = [real(3, 16), whole(b, 16, 12), positive(*count), whole(b, *count), added]
            yield Row("DynamicQuantizeMatMul", inputs, name=label)
    pairs = ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8))
    for (a, b), count, quantized, turned in itertools.product(
        pairs, ((), (12,)), (False, True), (0, 1)
    ):
        inputs = [
            whole(a, *((16, 3) if turned else (3, 16))), positive(), whole(a),
            whole(b, *((12, 16) if turned else (16, 12))), positive(*count), whole(b, *count),
            below(9999, 12, dtype=np.int32) if turned else None,
            positive(low=0.5, high=0.6) if quantized else None, whole(a) if quantized else None,
        ]  # fmt: skip
        given = {"transA": turned, "transB": turned, "alpha": 0.75 if quantized else 1.0}
        label = f"{np.dtype(a).name}-{np.dtype(b).name}-{len(count)}-{quantized}-{turned}"
        yield Row("QGemm", inputs, given, name=label)
    sixteen = [(below(600, *shape) - 300).astype(np.int16) for shape in ((2, 3, 4), (4, 5))]
    yield Row("MatMulInteger16", sixteen)


def bnb4_rows() -> Iterator[Row]:
    for kind, (k, n, block) in itertools.product((0, 1), ((64, 12, 16), (33, 7, 32))):
        inputs = [real(3, k), whole(np.uint8, -(-n * k // 2)), positive(-(-n * k // block))]
        given = {"K": k, "N": n, "block_size": block, "quant_type": kind}
        yield Row("MatMulBnb4", inputs, given, name=f"{kind}-{k}", constants=(1, 2))


def expert_rows() -> Iterator[Row]:
    experts, width, inner, tokens = 4, 8, 12, 6
    kinds = ("relu", "gelu", "silu", "identity", "swiglu")
    for kind, k, normalize in itertools.product(kinds, (1, 2), (0, 1)):
        double = 2 if kind == "swiglu" else 1
        inputs = [
            real(*((tokens, width) if normalize else (2, 3, width))), apart(tokens, experts),
            real(experts, double * inner, width, scale=0.25), real(experts, double * inner),
            real(experts, width, inner, scale=0.25), real(experts, width) if normalize else None,
        ]  # fmt: skip
        given = {"k": k, "normalize_routing_weights": normalize, "activation_type": kind}
        if double == 2:
            given |= {"swiglu_fusion": 1, "activation_alpha": 1.5, "activation_beta": 1.0}
            given |= {"swiglu_limit": 2.0}
        label = f"{kind}-{k}-{normalize}"
        yield Row("MoE", inputs, given, name=label, constants=(2, 3, 4, 5), atol=1e-4)
    width, inner, experts = 32, 16, 3
    for bits, block, zeros, routed in itertools.product((2, 4, 8), (0, 16), (False, True), (0, 1)):
        if (bits == 8 and block) or (routed and not zeros):
            continue  # With blocks of 8 bits onnxruntime rounds the activations to bytes.

        def layer(rows: int, columns: int, bits=bits, block=block, zeros=zeros) -> list[Any]:
            blocks = (columns // block,) if block else ()
            points = (
                whole(np.uint8, experts, rows, -(-blocks[0] * bits // 8))
                if block
                else whole(np.uint8, experts, rows * bits // 8)
            )
            packed = whole(np.uint8, experts, rows, columns * bits // 8)
            scales = positive(experts, rows, *blocks, high=0.1 if bits < 8 else 0.012)
            return [packed, scales, points if zeros else None]

        first, second = layer(2 * inner, width), layer(width, inner)
        inputs = [
            real(tokens, width), apart(tokens, experts), *first[:2], real(experts, 2 * inner),
            *second[:2], real(experts, width), None, None, None, first[2], second[2], None,
            positive(tokens, experts) if routed else None,
        ]  # fmt: skip
        given = {
            "k": 2, "normalize_routing_weights": 1, "activation_type": "swiglu",
            "swiglu_fusion": 1, "expert_weight_bits": bits,
        } | ({"block_size": block} if block else {})  # fmt: skip
        label = f"{bits}-{block}-{zeros}-{routed}"
        constants = (2, 3, 5, 6, 11, 12)
        yield Row("QMoE", inputs, given, name=label, constants=constants, rtol=2e-3, atol=2e-3)


ROWS = [
    *nbits_rows(),
    *gather_rows(),
    *integer_rows(),
    *bnb4_rows(),
    *expert_rows(),
]
