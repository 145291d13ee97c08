"""``python -m bench corners [ROW ...]`` times what few models have, beside onnxruntime and others.

The protocol is that of ``python -m bench cpu``. OpenVINO, asked for float32 and short latencies,
and torch.compile take turns, too, where they are installed and take the model.
"""

from __future__ import annotations

import sys

from bench.corners.table import ROWS
from bench.cpu.__main__ import main as measure
from bench.cpu.table import Table

PEERS = {"OpenVINO": "openvino", "torch.compile": "torch"}
TABLE = Table("corners", __doc__, ROWS, PEERS)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all outputs are right and all limits hold, else 1."""
    return measure(arguments, TABLE)


if __name__ == "__main__":
    sys.exit(main())
