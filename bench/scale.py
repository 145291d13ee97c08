"""``python -m bench scale [ROW ...]`` tells what graphs of many nodes and of many weights take.

Every measurement is a fresh process, as in ``python -m bench first``: the first one that opens a
model, and one that finds what an earlier one has kept.
"""

from __future__ import annotations

import sys

from bench.first.__main__ import main as measure
from bench.first.states import AGAIN, INSTALLED, PEER
from bench.first.table import SCALE, Table

MEASURES = {"load_s": "a session", "ran_mib": "private MiB of the process"}
TABLE = Table("scale", __doc__, SCALE, (PEER, INSTALLED, AGAIN), MEASURES)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all outputs are right and all bounds hold, else 1."""
    return measure(arguments, TABLE)


if __name__ == "__main__":
    sys.exit(main())
