"""The report on weights agrees with the kernel's own books."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from places import (
    run,
)

from tenonnx.weights.registry import WeightRegistry


def rss_of(path: Path) -> int:
    total, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            here = line.endswith(str(path))
        elif here and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


@pytest.mark.parametrize("pages", [0, 1, 100, 1024])
def test_the_report_agrees_with_the_kernel(
    registry: WeightRegistry, tmp_path: Path, pages: int
) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(4096 * 1024))
    mapping = registry.map(path)
    weight = registry.view(mapping, 0, 4096 * 1024, ir.DataType.FLOAT, (1024, 1024))
    derived = registry.derive("half", lambda: np.ones(1 << 18, np.float32))
    weight.array[:pages].sum()
    report = registry.report()
    rows = {row.label: row for row in report.storages}
    assert rows[str(path)].resident == rss_of(path)
    assert rss_of(path) >= pages * 4096
    assert rows[derived.storage.label].resident == rss_of(Path(derived.storage.label))
    assert report.mapped == 4096 * 1024
    assert report.derived == 1 << 20
    assert report.private == report.borrowed == report.device == 0
    assert report.resident == sum(row.resident for row in report.storages)
    mapping.forget(0, mapping.size)
    assert registry.report().storages[0].resident == rss_of(path) == 0


def test_private_bytes_are_what_the_process_grew_by() -> None:
    script = """
import numpy as np, os
os.environ["TENONNX_CACHE"] = "0"
from tenonnx.weights.registry import WeightRegistry
def anonymous():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Anonymous"))
registry = WeightRegistry()
registry.derive("first", lambda: np.zeros(1, np.float32))  # imports
before = anonymous()
weights = [registry.derive(str(i), lambda: np.full(1 << 22, i, np.float32)) for i in range(8)]
print(anonymous() - before, registry.report().private, registry.report().derived)
"""
    grown, private, derived = map(int, run(script).split())
    assert private == 8 << 24
    assert derived == 0
    assert abs(grown - private) < 1 << 20


def test_the_report_says_who_holds_what_and_holds_neither(
    registry: WeightRegistry, path: Path
) -> None:
    class Session:
        pass

    first, second = Session(), Session()
    mapping = registry.map(path)
    weights = [registry.view(mapping, 64 * n, 64, ir.DataType.FLOAT, (16,)) for n in range(3)]
    registry.attach(first, "first", weights)
    registry.attach(second, "second", weights[:1])
    report = registry.report()
    assert [(h.name, h.weights, h.nbytes) for h in report.holders] == [
        ("first", 3, 192),
        ("second", 1, 64),
    ]
    assert report.storages[0].holders == ("first", "second")
    assert report.storages[0].weights == 3
    lines = str(report).splitlines()
    assert lines[0].startswith("mapped 32.0 KiB · derived 0 B · resident ")
    assert lines[2].split() == ["kind", "size", "resident", "weights", "held", "by", "storage"]
    assert lines[3].endswith(f"first, second  {path}")
    assert lines[-1].split() == ["second", "1", "64", "B"]
    constants = [registry.constant(bytes([n] * 4), ir.DataType.FLOAT, ()) for n in range(3)]
    registry.attach(first, "constants", constants)
    private = " ".join(str(registry.report()).splitlines()[4].split())
    assert private == "private 12 B 12 B 3 constants 3 pieces of memory"
    del constants

    del second
    assert [h.name for h in registry.report().holders] == ["first", "constants"]
    del weights, mapping
    assert registry.report().storages == ()
    assert [h.weights for h in registry.report().holders] == [0, 0]


def test_an_empty_report_is_one_line(registry: WeightRegistry) -> None:
    assert str(registry.report()) == (
        "mapped 0 B · derived 0 B · resident 0 B · private 0 B · borrowed 0 B · device 0 B"
    )
