"""The memory of a registry's weights, its places and its users."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.lib.array_utils import byte_bounds

from tenonnx.weights.mapping import Mapping

if TYPE_CHECKING:
    from tenonnx.weights.storage import Kind, Storage
    from tenonnx.weights.weight import Weight

SMAPS = Path("/proc/self/smaps")

# The names of side files; a table shows their beginning.
DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


@dataclass(frozen=True)
class StorageRow:
    """One storage: a file, a side file, a piece of memory.

    Attributes:
        kind: Whose memory it is.
        label: Its path or address.
        size: Its bytes.
        resident: Those of a mapped file that are in this process's resident set; all of the
            others'.
        weights: How many weights look into it.
        holders: Names of who holds any of them.
    """

    kind: Kind
    label: str
    size: int
    resident: int
    weights: int
    holders: tuple[str, ...]


@dataclass(frozen=True)
class HolderRow:
    """One holder: how many weights it uses, and their bytes."""

    name: str
    weights: int
    nbytes: int


@dataclass(frozen=True)
class DeviceRow:
    """The memory of a device that weights were uploaded to.

    Attributes:
        id: The device's.
        size: Its bytes.
        used: Those that are allocated, for weights and all else.
    """

    id: str
    size: int
    used: int


@dataclass(frozen=True)
class MemoryReport:
    """The memory of the weights.

    Attributes:
        mapped: Bytes of models' files that are mapped.
        resident: Bytes of all mapped files that are in this process's resident set.
        private: Bytes in memory of this process alone that the registry made.
        borrowed: Bytes in memory that belongs to callers.
        derived: Bytes of side files that are mapped, and of small weights in plans that are.
        device: Bytes uploaded to devices.
        storages: One row for each storage.
        holders: One row for each holder.
        devices: One row for each device that has weights and says how large it is.
    """

    mapped: int
    resident: int
    private: int
    borrowed: int
    derived: int
    device: int
    storages: tuple[StorageRow, ...]
    holders: tuple[HolderRow, ...]
    devices: tuple[DeviceRow, ...] = ()

    def __str__(self) -> str:
        totals = (
            f"mapped {_size(self.mapped)} · derived {_size(self.derived)} · "
            f"resident {_size(self.resident)} · private {_size(self.private)} · "
            f"borrowed {_size(self.borrowed)} · device {_size(self.device)}"
        )
        storages = [
            (
                row.kind,
                _size(row.size),
                _size(row.resident),
                str(row.weights),
                ", ".join(row.holders),
                DIGEST.sub(r"\1…", row.label),
            )
            for row in _with_pieces_merged(self.storages)
        ]
        holders = [(row.name, str(row.weights), _size(row.nbytes)) for row in self.holders]
        devices = [(row.id, _size(row.size), _size(row.used)) for row in self.devices]
        return "\n".join(
            [
                totals,
                *_table(("kind", "size", "resident", "weights", "held by", "storage"), storages),
                *_table(("holder", "weights", "size"), holders),
                *_table(("device", "size", "used"), devices),
            ]
        )


def take_report(
    storages: Sequence[Storage],
    weights: Sequence[Weight],
    holdings: Sequence[tuple[str, Sequence[Weight]]],
    devices: Sequence[Any] = (),
) -> MemoryReport:
    """Return the report on some storages, the weights in them, and those that each holder has.

    Args:
        storages: They.
        weights: They.
        holdings: The name of each holder, and its weights.
        devices: Those that weights were uploaded to, and that have ``memory``.
    """
    counts: dict[str, int] = defaultdict(int)
    holders: dict[str, set[str]] = defaultdict(set)
    for weight in weights:
        counts[weight.storage.key] += 1
    people = []
    for name, held in holdings:
        people.append(HolderRow(name, len(held), sum(w.nbytes for w in held)))
        for weight in held:
            holders[weight.storage.key].add(name)
    resident = _resident([s for s in storages if isinstance(s, Mapping)])
    rows = [
        StorageRow(
            storage.kind,
            storage.label,
            storage.size,
            resident.get(storage.address, storage.size),
            counts[storage.key],
            tuple(sorted(holders[storage.key])),
        )
        for storage in storages
    ]
    rows.sort(key=lambda row: (-row.size, row.label))

    def total(*kinds: str) -> int:
        return sum(row.size for row in rows if row.kind in kinds)

    return MemoryReport(
        mapped=total("mapped"),
        resident=sum(row.resident for row in rows if row.kind in ("mapped", "derived")),
        private=total("private"),
        borrowed=total("borrowed"),
        derived=total("derived"),
        device=_device_bytes(weights),
        storages=tuple(rows),
        holders=tuple(people),
        devices=tuple(_device_rows(devices)),
    )


def _device_rows(devices: Sequence[Any]) -> Iterator[DeviceRow]:
    """Yield the memory of devices that know it, by id."""
    for device in sorted(devices, key=lambda each: each.id):
        if (found := device.memory()) is not None:
            yield DeviceRow(device.id, *found)


def _with_pieces_merged(rows: Sequence[StorageRow]) -> list[StorageRow]:
    """Return the rows of files, then one for all pieces of private and of borrowed memory."""
    merged = [row for row in rows if row.kind in ("mapped", "derived")]
    for kind in ("private", "borrowed"):
        pieces = [row for row in rows if row.kind == kind]
        if pieces:
            size = sum(row.size for row in pieces)
            label = f"{len(pieces)} piece{'s' if len(pieces) > 1 else ''} of memory"
            holders = {name for row in pieces for name in row.holders}
            weights = sum(row.weights for row in pieces)
            merged.append(StorageRow(kind, label, size, size, weights, tuple(sorted(holders))))
    return merged


def _device_bytes(weights: Sequence[Weight]) -> int:
    """Return what uploads take; bytes that several weights share on a device count once."""
    total = 0
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for weight in weights:
        for device, array in list(weight.uploads.items()):
            if device in weight.placed:
                spans[device].append(byte_bounds(weight.array))
            else:
                total += int(getattr(array, "nbytes", weight.nbytes))
    for span in spans.values():
        end = 0
        for start, stop in sorted(span):
            total += max(0, stop - max(start, end))
            end = max(end, stop)
    return total


_AREA = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ")


def _resident(storages: Sequence[Storage]) -> dict[int, int]:
    """Return resident bytes by storage address, as the kernel counts them; none elsewhere."""
    resident: dict[int, int] = {}
    if not storages or not SMAPS.exists():
        return resident
    places = sorted((storage.address, storage.size) for storage in storages)
    starts = [address for address, _ in places]
    here = None
    for line in SMAPS.read_bytes().splitlines():
        if area := _AREA.match(line):
            start, stop = int(area[1], 16), int(area[2], 16)
            address, size = places[bisect.bisect_left(starts, stop) - 1]
            here = address if address < stop and address + size > start else None
        elif here is not None and line.startswith(b"Rss:"):
            resident[here] = resident.get(here, 0) + int(line.split()[1]) * 1024
    return resident


def _size(nbytes: int) -> str:
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows))]
