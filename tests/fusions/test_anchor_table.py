"""docs/transforms.md lists what the anchors of each provider take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from tenonnx.planning.fusion import Fusions
from tenonnx_cpu import fuse as cpu
from tenonnx_cpu.lazy_import import import_all
from tenonnx_cuda import fuse as cuda
from tenonnx_cuda.kernel_selection import choices

DOCUMENT = Path(__file__).parents[2] / "docs" / "transforms.md"


def rows(provider: str, fusions: Fusions[Any]) -> Iterator[str]:
    found: dict[tuple[str, ...], list[str]] = {}
    for entry in fusions:
        parts = (
            f"{part.name}{', ...' if part.many else ''}{'' if part.needed else '?'}"
            for part in entry.takes
        )
        if entry.takes:
            found.setdefault(tuple(parts), []).append(f"`{'::'.join(filter(None, entry.place))}`")
    for parts_of, operators in found.items():
        taken = " + ".join(parts_of)
        yield f"| {provider} | {', '.join(sorted(set(operators)))} | {taken} |"


def test_the_table_is_what_is_declared() -> None:
    import_all()
    choices()
    expected = {*rows("CPU", cpu.FUSIONS), *rows("CUDA", cuda.FUSIONS)}
    lines = set(DOCUMENT.read_text().splitlines())
    written = {line for line in lines if line.startswith(("| CPU |", "| CUDA |"))}
    assert written == expected
