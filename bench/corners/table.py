"""All rows: at most onnxruntime's time, and 1.1 of the best peer's."""

from __future__ import annotations

from bench.corners import convolutions, decoders, encoders, recurrent, strings, toys, trees, whole

ROWS = {
    **decoders.ROWS,
    **encoders.ROWS,
    **trees.ROWS,
    **recurrent.ROWS,
    **convolutions.ROWS,
    **toys.ROWS,
    **strings.ROWS,
    **whole.ROWS,
}
