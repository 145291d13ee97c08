"""Boosted trees and forests: many small trees, a few rows, and how long they take to load."""

from __future__ import annotations

from bench.cpu.table import Row
from bench.models import Built, forest


def _small() -> Built:
    return forest(5, 3, rows=1)


ROWS = {
    "boosting-1": Row("300 trees of depth 3, 1 row", lambda: forest(300, 3, rows=1), _small),
    "boosting-10": Row("300 trees of depth 3, 10 rows", lambda: forest(300, 3, rows=10), _small),
    "boosting-100": Row("300 trees of depth 3, 100 rows", lambda: forest(300, 3, rows=100), _small),
    "forest-load": Row("forest of 100 trees, loaded first", forest, _small, loading="first"),
    "forest-load-kept": Row("forest of 100 trees, its plan kept", forest, _small, loading="kept"),
}
