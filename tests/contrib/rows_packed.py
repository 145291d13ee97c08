"""Packed batches, routers, gates and padded chunks, as onnxruntime has them since 1.32."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from draw import positive, real
from rows import Row

HEADS = {"num_heads": 4, "kv_num_heads": 2}


def rows() -> Iterator[Row]:
    for activation, dilation, bias, capacity in itertools.product(
        ("none", "silu"), (1, 2), (False, True), (0, 3)
    ):
        inputs = [
            real(9, 6), real(6, 1, 4), np.array([0, 2, 9], np.int32), real(6) if bias else None,
            real(2, 6, 3 * dilation), np.array([1, 5], np.int32) if capacity else None,
        ]  # fmt: skip
        given = {"activation": activation, "dilation": dilation, "state_update_capacity": capacity}
        outputs = (0, 1, 2) if capacity else (0, 1)
        label = f"{activation}-{dilation}-{bias}-{capacity}"
        yield Row("VarlenCausalConvWithState", inputs, given, outputs, name=label)
    for groups, kept, best, k in ((1, 1, 2, 3), (4, 2, 2, 3), (4, 1, 1, 2), (2, 2, 8, 12)):
        given = {"n_group": groups, "topk_group": kept, "group_topk": best, "top_k": k}
        inputs = [real(5, 12), positive(12, low=-0.5, high=0.5)]
        yield Row("MoEGroupRouter", inputs, given, name=f"{groups}-{kept}-{best}-{k}")
    inputs = [real(2, 5, 12), positive(12, low=-0.5, high=0.5)]
    yield Row("MoEGroupRouter", inputs, {"top_k": 3}, (1, 2), name="scores")
    for gate in ("softplus", "sigmoid", "kda"):
        inputs = [
            real(6, 2, 8), real(6, 2, 8), real(6, 4, 5), np.array([0, 2, 6], np.int32),
            real(6, 4), real(6, 4), real(2, 4, 5, 8), real(4), real(4),
        ]  # fmt: skip
        given = {"gate_activation": gate, "gate_lower_bound": -3.0, "qk_l2_norm": 1}
        yield Row("GatedDeltaNet", inputs, given, (0, 1), name=gate)
    for counts, rotary in itertools.product(([3, 1], [0, 3]), (0, 1)):
        yield group_query(counts, rotary)


def group_query(counts: list[int], rotary: int) -> Row:
    """Return chunks of 3 tokens, of which so many are none that fill up."""
    total = np.array([5, 4], np.int32)
    inputs = [
        real(2, 3, 64), real(2, 3, 32), real(2, 3, 32), real(2, 2, 8, 16), real(2, 2, 8, 16),
        total - 1, np.array([5], np.int32), *((real(8, 8), real(8, 8)) if rotary else (None, None)),
        *[None] * 7, np.array(counts, np.int32),
    ]  # fmt: skip
    given = {**HEADS, "do_rotary": rotary}

    def known(output: int, array: np.ndarray) -> np.ndarray:
        rows = np.arange(array.shape[1 if output == 0 else 2])
        ends = np.array(counts) if output == 0 else total
        seen = rows < ends[:, None]
        return seen[:, :, None] if output == 0 else seen[:, None, :, None]

    return Row(
        "GroupQueryAttention", inputs, given, (0, 1, 2), name=f"padded-{counts}-{rotary}",
        shared={3: 1, 4: 2}, known=known,
    )  # fmt: skip


ROWS = list(rows())
