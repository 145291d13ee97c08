"""``python -m bench throughput [ROW ...]`` tells how many runs a second there are, all together.

1, 2, 4 and 8 threads run a model on one session, or as many processes on a session each, whose
operators use one thread (``intra_op_num_threads=1``). Engines take turns, as in
``python -m bench cpu``; the ratio is that of the seconds per run.
"""

from __future__ import annotations

import sys

from bench.cpu.__main__ import main as measure
from bench.cpu.table import Table
from bench.throughput.table import ROWS

TABLE = Table("throughput", __doc__, ROWS, threads=(1, 2, 4, 8), seconds=1.0)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all outputs are right and all limits hold, else 1."""
    return measure(arguments, TABLE)


if __name__ == "__main__":
    sys.exit(main())
