"""Runs of operators that onnxruntime keeps for models of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from draw import below, int32, positive, real, whole
from rows import Row

STEPS, BATCH, INPUTS, HIDDEN, DEPTH, KEYS, PLACES, LAYER = 4, 3, 4, 5, 3, 6, 7, 2


def attention_lstm_rows() -> Iterator[Row]:
    for direction, layer, full in itertools.product(
        ("forward", "reverse", "bidirectional"), (False, True), (False, True)
    ):
        n = 2 if direction == "bidirectional" else 1
        width = LAYER if layer else DEPTH
        inputs = [
            real(STEPS, BATCH, INPUTS, scale=0.5),
            real(n, 4 * HIDDEN, INPUTS + width, scale=0.5),
            real(n, 4 * HIDDEN, HIDDEN, scale=0.5),
            real(n, 8 * HIDDEN) if full else None,
            int32(4, 1, 3) if full else None,
            real(n, BATCH, HIDDEN) if full else None,
            real(n, BATCH, HIDDEN) if full else None,
            real(n, 3 * HIDDEN) if full else None,
            real(n, HIDDEN, KEYS),
            real(n, DEPTH, KEYS),
            real(n, KEYS),
            real(BATCH, PLACES, DEPTH),
            int32(7, 1, 4) if full else None,
            real(n, HIDDEN + DEPTH, LAYER) if layer else None,
        ]
        given = {"direction": direction, "hidden_size": HIDDEN}
        name = "-".join((direction, *("layer",) * layer, *("full",) * full))
        yield Row("AttnLSTM", inputs, given, outputs=(0, 1, 2), name=name)


def masked_pool_rows() -> Iterator[Row]:
    attributes: list[dict[str, Any]] = [
        {},
        {"strides": 2},
        {"pads": 1},
        {"auto_pad": "SAME_UPPER", "strides": 2},
    ]
    for kernel in ((3,), (3, 2), (2, 3, 3)):
        for i, given in enumerate(attributes):
            size, rank = (6, 5, 4)[: len(kernel)], len(kernel)
            spread = {
                name: [value] * rank * (2 if name == "pads" else 1)
                for name, value in given.items()
                if name != "auto_pad"
            }
            inputs = [real(2, 3, *size), below(3, 1, 1, *size, dtype=np.int32)]
            given = given | spread | {"kernel_shape": kernel}
            yield Row("MaxpoolWithMask", inputs, given, name=f"{rank}-{i}")


def packed_product_rows() -> Iterator[Row]:
    for kind, rows in itertools.product((0, 1), (32, 70)):
        columns, blocks = 5, -(-rows // 32)
        scales = positive(columns, blocks, 1).view(np.uint8)
        zeros = below(16, columns, blocks, kind, dtype=np.uint8)
        packed = np.concatenate((scales, zeros, whole(np.uint8, columns, blocks, 16)), axis=-1)
        inputs = [real(2, 3, rows), packed.ravel(), np.array([rows, columns])]
        given = {"blk_quant_type": kind}
        yield Row("MatMulFpQ4", inputs, given, name=f"{kind}-{rows}", constants=(1, 2))


def packed_hash_rows() -> Iterator[Row]:
    ends = int32(0, 3, 4, 9, 11)
    for i in range(32):
        dtype, longest, segments = (np.int64, np.int32)[i % 2], 2 + i % 3, bool(i & 8)
        heads = 2 * (longest - 1)
        captures = not i & 4
        inputs = [
            below(6, 11, dtype=dtype),
            below(1 << (30 if i & 16 else 6), longest, dtype=dtype) * 2 + 1,
            below(50, heads, dtype=dtype) + dtype(3),
            ends,
            below(6, 4, longest - 1, dtype=dtype) if i & 1 else None,
            below(9, heads, dtype=dtype) if i & 2 else None,
            np.array(3, dtype) if i & 4 else None,
            below(2, 11, dtype=np.int32) if segments else None,
            below(2, 4, longest - 1, dtype=np.int32) if segments and i & 1 else None,
            int32(0, 3, 2, 9) if captures else None,
        ]
        given = {"max_ngram_size": longest, "n_head_per_ngram": 2, "pad_id": 2}
        given |= {"reset_on_eos": i >> 1 & 1, "state_update_capacity": 4 * captures}
        outputs = [0, 1, *(2,) * segments, *(3,) * captures]
        yield Row("VarlenNGramHashMapping", inputs, given, outputs=outputs, name=str(i))


ROWS = [
    *attention_lstm_rows(),
    *masked_pool_rows(),
    *packed_product_rows(),
    *packed_hash_rows(),
    Row("SampleOp", [real(3, 4)]),
]
