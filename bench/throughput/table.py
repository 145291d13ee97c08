"""The rows: some models of the CPU's table, each run by threads and by processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from bench.corners.decoders import ROWS as DECODERS
from bench.cpu.table import ROWS as CPU
from bench.cpu.table import Row

MODELS = {
    "bert": CPU["bert-1x128"],
    "mobilenet-v2": CPU["mobilenet-v2"],
    "llama": DECODERS["llama-nodes"],
    "forest": CPU["forest-1000"],
}


def _rows() -> Iterator[tuple[str, Row]]:
    for name, row in MODELS.items():
        for kind, words in (("threads", "threads on one session"), ("processes", "processes")):
            about = f"{row.about}, {words}"
            yield (
                f"{name}-{kind}",
                dataclasses.replace(row, about=about, limit=1.0, at_once=kind),  # type: ignore[arg-type] # one of the two
            )


ROWS = dict(_rows())
