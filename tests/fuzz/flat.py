"""Mutations of flatbuffers that know where their offsets, lengths and numbers lie."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from fuzz.hostile import INTEGERS
from fuzz.messages import flipped
from tenonnx_ort_format.flat import SCALARS, STRUCTS, VECTOR_DTYPES
from tenonnx_ort_format.schema import SCHEMA, TYPE_KINDS

WIDTHS = {"bool": 1, "int8": 1, "int32": 4, "uint32": 4, "int64": 8, "float32": 4, "uint8": 1}
MAX_PLACES = 50_000


@dataclass(frozen=True)
class Place:
    """A place: an offset to a table or vector of a kind, a length, a number."""

    at: int
    width: int
    kind: str


def places(data: bytes) -> list[Place]:
    """Return all places of a whole ``.ort`` file."""
    found: list[Place] = []
    pending = [(0, "InferenceSession")]
    seen = set()

    def number(at: int, code: str = "<I") -> int:
        return int(struct.unpack_from(code, data, at)[0])

    def vector(at: int, kind: str) -> None:
        start = at + number(at)
        length = number(start)
        found.append(Place(at, 4, f"[{kind}]"))
        found.append(Place(start, 4, "length"))
        if kind in VECTOR_DTYPES or kind in STRUCTS:
            width = WIDTHS.get(kind, 12)
            if length:
                found.append(Place(start + 4, min(width, 8), "element"))
            return
        for i in range(min(length, len(data) // 4)):
            entry(start + 4 + 4 * i, kind)

    def entry(at: int, kind: str) -> None:
        found.append(Place(at, 4, kind))
        if kind == "string":
            found.append(Place(at + number(at), 4, "length"))
        else:
            pending.append((at, kind))

    while pending and len(found) < MAX_PLACES:
        at, kind = pending.pop()
        table = at + number(at)
        if table in seen:
            continue
        seen.add(table)
        entries = table - number(table, "<i")
        found += [
            Place(table, 4, "vtable"),
            Place(entries, 2, "size"),
            Place(entries + 2, 2, "size"),
        ]
        slots = (number(entries, "<H") - 4) // 2
        tag = 0
        for slot, (_, field) in enumerate(SCHEMA[kind][:slots]):
            place = entries + 4 + 2 * slot
            offset = number(place, "<H")
            found.append(Place(place, 2, "slot"))
            if not offset:
                continue
            where = table + offset
            if isinstance(field, tuple):
                vector(where, field[0])
            elif field in SCALARS:
                found.append(Place(where, WIDTHS[field], "number"))
                tag = data[where]
            elif field == "Table" and kind == "TypeInfo" and 1 <= tag <= len(TYPE_KINDS):
                entry(where, TYPE_KINDS[tag - 1])
            elif field != "Table":
                entry(where, field)
    return found


def mutate(data: bytes, draw: random.Random) -> tuple[bytes, str]:
    """Return a changed file, and what was changed."""
    try:
        found = places(data)
    except (struct.error, IndexError, RecursionError, KeyError):
        return flipped(data, draw), "flipped"
    place = draw.choice(found)
    kind = draw.choice(sorted({each.kind for each in found}))
    if draw.random() < 0.7:  # else large vectors of one kind take all
        place = draw.choice([each for each in found if each.kind == kind])
    made = bytearray(data)
    alike = [each for each in found if each.kind == place.kind and each.at <= place.at]
    if place.kind in SCHEMA or place.kind.startswith("[") or place.kind == "string":
        alike = [each for each in found if each.kind == place.kind]
        if draw.random() < 0.7:
            other = draw.choice(alike)
            target = other.at + struct.unpack_from("<I", data, other.at)[0]
            struct.pack_into("<I", made, place.at, (target - place.at) % (1 << 32))
            return bytes(made), f"{place.kind} at {place.at} is the one at {other.at}"
    old = int.from_bytes(data[place.at : place.at + place.width], "little")
    new = draw.choice(
        [old + 1, old - 1, old * 2, 0, draw.choice(INTEGERS), draw.randrange(1 << 16)]
    )
    made[place.at : place.at + place.width] = (new % (1 << 8 * place.width)).to_bytes(
        place.width, "little"
    )
    return bytes(made), f"{place.kind} at {place.at} is {new}"
