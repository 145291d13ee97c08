from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from draw import angles, below, real
from rows import Row


def skip_rows() -> Iterator[Row]:
    for shape, dtype in itertools.product(((2, 3, 8), (3, 8)), (np.float32, np.float16)):
        half: dict[str, Any] = {"rtol": 1e-2, "atol": 1e-2} if dtype == np.float16 else {}
        for skip, bias, epsilon in (
            (shape, True, 1e-12),
            (shape, False, 1e-3),
            ((1, 3, 8), False, 1e-12),
            ((3, 8), True, 1e-12),
        ):
            if len(skip) > len(shape):
                continue
            given = {"epsilon": epsilon}
            added = real(8, dtype=dtype) if bias else None
            inputs = [real(*shape, dtype=dtype), real(*skip, dtype=dtype), real(8, dtype=dtype)]
            label = f"{np.dtype(dtype).name}-{shape}-{skip}-{bias}-{epsilon}"
            beta = real(8, dtype=dtype)
            norm = Row("SkipLayerNormalization", [*inputs, beta, added], given, (0, 3), name=label)
            rms = Row(
                "SkipSimplifiedLayerNormalization", [*inputs, added], given, (0, 3), name=label
            )
            for row in (norm, rms):
                yield Row(**(vars(row) | half))
        for axis in (-1, 1 - len(shape)):
            inputs = [real(*shape, dtype=dtype), real(*shape[axis:], dtype=dtype)]
            given = {"axis": axis, "epsilon": 1e-4}
            label = f"{np.dtype(dtype).name}-{shape}-{axis}"
            row = Row("SimplifiedLayerNormalization", inputs, given, name=label, domain="")
            yield Row(**(vars(row) | half))


def embedding_rows() -> Iterator[Row]:
    for mask, segments, places in itertools.product((False, True), (False, True), (0, 1, 2)):
        inputs = [
            below(20, 2, 5, dtype=np.int32),
            below(2, 2, 5, dtype=np.int32) if segments else None,
            real(20, 8), real(9, 8), real(2, 8) if segments else None, real(8), real(8),
            (np.arange(5) < [[5], [3]]).astype(np.int32) if mask else None,
            below(9, places, 5, dtype=np.int32) if places else None,
        ]  # fmt: skip
        label = f"{mask}-{segments}-{places}"
        yield Row("EmbedLayerNormalization", inputs, {}, (0, 1, 2), name=label)


def rotary_rows() -> Iterator[Row]:
    shapes = (
        ((2, 3, 32), 0, 0, 4),
        ((2, 3, 32), 4, 4, 2),
        ((2, 4, 3, 8), 0, 0, 4),
        ((2, 4, 3, 8), 4, 4, 2),
    )
    for interleaved, (shape, heads, width, pairs), single in itertools.product(
        (0, 1), shapes, (False, True)
    ):
        places = np.array([4], np.int64) if single else below(20, 2, 3)
        given = {
            "interleaved": interleaved, "num_heads": heads, "rotary_embedding_dim": width,
        }  # fmt: skip
        label = f"{interleaved}-{shape}-{pairs}-{single}"
        inputs = [real(*shape), places, *angles(20, pairs)]
        yield Row("RotaryEmbedding", inputs, given, name=label)
    for layout, (shape, heads) in itertools.product((0, 1), (((2, 3, 64), 4), ((2, 4, 3, 16), 0))):
        given = {"mrope_section": [4, 2, 2], "mrope_layout": layout, "num_heads": heads}
        inputs = [real(*shape), below(20, 3, 2, 3), *angles(20, 8)]
        yield Row("MRotaryEmbedding", inputs, given, name=f"{layout}-{shape}")


def branch_rows() -> Iterator[Row]:
    for activation in ("silu", "swish", "sigmoid"):
        inputs = [real(2, 3, 24), real(8), real(2, 3, 24)]
        yield Row("GatedRMSNorm", inputs, {"activation": activation}, name=activation)
    for scale in ((24,), (3, 8), (8,)):
        flat, apart = real(2, 5, 24), real(2, 5, 3, 8)
        given = {"num_branches": 3}
        yield Row("BranchwiseRMSNorm", [flat, real(*scale)], given, name=f"flat-{scale}")
        yield Row("BranchwiseRMSNorm", [apart, real(*scale)], name=f"apart-{scale}")
    inputs = [*(real(2, 3, 3, 8) for _ in range(2)), real(2, 3, 8), *(real(3, 8) for _ in range(3))]
    yield Row("EngramGate", inputs, {}, (0, 1))
    for mix in ((2, 5, 3), (2, 5, 3, 1), (2, 5, 3, 8)):
        inputs = [real(2, 5, 3, 8), real(*mix)]
        yield Row("HyperConnectionPreMix", inputs, {"reduction_scale": 0.5}, name=f"{mix}")
        inputs = [real(2, 5, 24), real(2, 5, 8), real(*mix), real(2, 5, 3, 3)]
        given = {"num_branches": 3}
        yield Row("HyperConnectionPostMix", inputs, given, name=f"{mix}")


ROWS = [*skip_rows(), *embedding_rows(), *rotary_rows(), *branch_rows()]
