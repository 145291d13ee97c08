from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from draw import real, whole
from rows import Row

FORMATS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 6: (32, 22), 8: (32, 34), 13: (256, 176), 14: (256, 210),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 20: (32, 18), 22: (256, 82), 23: (256, 136),
    30: (1, 2), 42: (64, 18),
}  # fmt: skip
"""By number of ggml's types: elements and bytes of a block."""

PLAIN = {0: np.float32, 1: np.float16, 30: ml_dtypes.bfloat16}
"""Those whose blocks are numbers."""


def packed_rows() -> Iterator[Row]:
    for number, (elements, size) in FORMATS.items():
        data = (
            real(3, 512, dtype=PLAIN[number]).view(np.uint8)
            if number in PLAIN
            else whole(np.uint8, 3, 512 // elements * size)
        )
        for indices, kind in (
            (np.array([[2, -1], [1, 1 << 40]]), 1),
            (np.array([0, 3], np.int32), 1),
            (np.array(1), 10),
        ):
            given = {"packed_type": number, "K": 512, "output_dtype": kind}
            label = f"{number}-{kind}-{indices.ndim}"
            yield Row(
                "GatherPacked", [data, indices], given, name=label, constants=(0,), rtol=0, atol=0
            )


ROWS = [*packed_rows()]
