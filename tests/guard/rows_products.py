"""Products of real numbers, dense layers, attention and recurrences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from arrays import MS, f32, i64, ids
from trial import Trial, chain, narrow, one, unpacked

from models import FLOAT, model, node, value

WIDE = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def _rotary() -> Trial:
    """Return the nodes that exporters write for rotary embeddings."""
    x, angles = f32(2, 3, 5, 16), f32(1, 1, 5, 16)
    numbers = {"zero": 0, "half": 8, "end": 16, "axis": 3}
    nodes = [
        node("Slice", "x zero half axis", "low"),
        node("Slice", "x half end axis", "high"),
        node("Neg", "high", "minus"),
        node("Concat", "minus low", "turned", axis=-1),
        node("Mul", "x cos", "p"),
        node("Mul", "turned sin", "q"),
        node("Add", "p q", "y"),
    ]
    inputs = [value(name, FLOAT, [None] * 4) for name in ("x", "cos", "sin")]
    proto = model(nodes, inputs, [value("y", FLOAT, None)])
    feeds = {"x": x, "cos": angles, "sin": angles}
    return Trial("rotary", proto, feeds, {name: i64(n) for name, n in numbers.items()})


ROWS = [
    _rotary(),
    *(one(f"MatMul {m}", "MatMul", [f32(m, 64), f32(64, 96)], constants=(1,)) for m in (1, 3, 70)),
    one("MatMul deep", "MatMul", [f32(8, 300), f32(300, 70)], constants=(1,)),
    one("MatMul panels", "MatMul", [f32(13, 600), f32(600, 50)], constants=(1,)),
    one("MatMul bands of panels", "MatMul", [f32(250, 256), f32(256, 70)], constants=(1,)),
    one("MatMul sets", "MatMul", [f32(20, 1024), f32(1024, 48)], constants=(1,)),
    one("MatMul fed", "MatMul", [f32(70, 64), f32(64, 96)]),
    one("MatMul stacks", "MatMul", [f32(3, 2, 17, 9), f32(2, 9, 33)]),
    *(
        one(
            f"MatMul {dtype}",
            "MatMul",
            [ids(-9, 9, 2, 5, 7, dtype=dtype), ids(0, 9, 7, 3, dtype=dtype)],
        )
        for dtype in ("float64", "int32", "uint64")
    ),
    one("Einsum", "Einsum", [f32(2, 5, 7, 3), f32(7, 2, 9)], equation="bijk,jbl->bkli"),
    one("Einsum whole", "Einsum", [ids(-9, 9, 7, 5), ids(-9, 9, 7, 3)], equation="ki,kj->ij"),
    one("Gemm", "Gemm", [f32(40, 33), f32(65, 33), f32(65)], constants=(1, 2), transB=1),
    chain(
        "MatMul Add Relu",
        [
            ("MatMul", [f32(9, 33), f32(33, 65)], {}),
            ("Add", [..., f32(65)], {}),
            ("Relu", [...], {}),
        ],
    ),
    *(
        one(
            f"MatMul {kind} {rows}",
            "MatMul",
            [f32(rows, 64).astype(WIDE[kind]), f32(64, 96).astype(WIDE[kind])],
            constants=(1,),
        )
        for kind in WIDE
        for rows in (1, 70)
    ),
    # Without packed weights no processor multiplies bfloat16: kernels widen the weights.
    *(
        unpacked(
            one(
                f"MatMul of weights as they are {rows}",
                "MatMul",
                [f32(rows, 64).astype(WIDE["bfloat16"]), f32(64, 96).astype(WIDE["bfloat16"])],
                constants=(1,),
            )
        )
        for rows in (1, 70)
    ),
    *(
        narrow(one(f"{rows} narrow rows", "MatMul", [f32(rows, 70), f32(70, 45)], constants=(1,)))
        for rows in (1, 21, 70)
    ),
    chain(
        "Gemm Relu Gemm",
        [
            ("Gemm", [f32(300, 17), f32(17, 33), f32(33)], {}),
            ("Relu", [...], {}),
            ("Gemm", [..., f32(33, 19), f32(19)], {}),
        ],
    ),
    narrow(
        one(
            "Attention in bfloat16",
            "Attention",
            [f32(2, 3, 40, 18), f32(2, 3, 300, 18), f32(2, 3, 300, 37), f32(40, 300)],
            opset=23,
            is_causal=1,
        )
    ),
    one(
        "Attention",
        "Attention",
        [f32(2, 3, 40, 16), f32(2, 3, 50, 16), f32(2, 3, 50, 16)],
        opset=23,
    ),
    one(
        "Attention past",
        "Attention",
        [
            f32(2, 4, 1, 16),
            f32(2, 2, 1, 16),
            f32(2, 2, 1, 24),
            f32(2, 1, 1, 12) > -1,
            f32(2, 2, 11, 16),
            f32(2, 2, 11, 24),
        ],
        outputs=3,
        opset=23,
    ),
    one(
        "GroupQueryAttention",
        "GroupQueryAttention",
        [
            f32(2, 1, 64),
            f32(2, 1, 32),
            f32(2, 1, 32),
            f32(2, 2, 12, 16),
            f32(2, 2, 12, 16),
            np.array([8, 5], np.int32),
            np.array(9, np.int32),
            f32(20, 8),
            f32(20, 8),
        ],
        outputs=3,
        domain=MS,
        constants=(7, 8),
        num_heads=4,
        kv_num_heads=2,
        do_rotary=1,
    ),
    one(
        "LinearAttention",
        "LinearAttention",
        [f32(1, 5, 32), f32(1, 5, 32), f32(1, 5, 32), f32(1, 2, 16, 16)],
        outputs=2,
        domain=MS,
        q_num_heads=2,
        kv_num_heads=2,
        update_rule="linear",
    ),
    *(
        one(
            f"RotaryEmbedding {name}",
            "RotaryEmbedding",
            [f32(2, 3, 5, 16), places, f32(40, 8), f32(40, 8)],
            domain=MS,
            constants=(2, 3),
        )
        for name, places in (("each", ids(0, 40, 2, 5)), ("start", i64(35)))
    ),
    *(
        one(
            op,
            op,
            [
                f32(7, 3, 9),
                f32(1, gates * 8, 9),
                f32(1, gates * 8, 8),
                f32(1, 2 * gates * 8),
                np.array([7, 3, 1], np.int32),
            ],
            outputs=2,
            constants=(1, 2, 3),
            hidden_size=8,
        )
        for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1))
    ),
]
