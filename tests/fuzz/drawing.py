"""From a number to a case: a seed, mutations, and the form in which a session gets it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import numpy_helper

from fuzz import VERSION, flat
from fuzz.corpus import Corpus, Feeds, Seed, frozen
from fuzz.hostile import INTEGERS, WORDS
from fuzz.messages import flipped, messages
from fuzz.structure import MUTATIONS

DATA = "w.bin"
MAX_BYTES = 4 << 20
COUNTS = [0, 1, 1, 1, 1, 1, 2, 2, 4]
"""Of mutations: many at once are refused by the first that is looked at."""


@dataclass(frozen=True)
class Drawn:
    """A case.

    Attributes:
        form: ``bytes``, ``path`` or ``proto``; external data needs a path.
        files: What lies beside the model.
        feeds: What the seed was run with; hostile ones are drawn when its signature is known.
        rounds: The feeds of each run, if they are not to be drawn.
        level: Of optimization.
        threads: Of kernels.
    """

    number: int
    seed: str
    form: str
    data: bytes
    feeds: Feeds
    notes: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)
    rounds: tuple[Feeds, ...] | None = None
    level: int = 99
    threads: int = 1
    suffix: str = ".onnx"


def draw_case(number: int, corpus: Corpus) -> Drawn:
    """Return the case of a number."""
    draw = random.Random(f"{VERSION}:{number}")
    groups = list(corpus.groups.values())
    seed = draw.choice(draw.choices(groups, corpus.weights)[0])
    level, threads = draw.choice([99, 99, 99, 0]), draw.choice([1, 1, 2])
    if seed.format == "ort":
        return _ort(number, seed, draw, level, threads)
    model, feeds = seed.proto(), dict(seed.feeds())
    _freeze(model, feeds, draw)
    notes = [mutated(model, draw, corpus) for _ in range(draw.choice(COUNTS))]
    form, files = draw.choice(["bytes", "bytes", "path", "proto"]), {}
    if draw.random() < 0.06:
        form, files = "path", _externalised(model, draw)
        notes.append(f"external data {sorted(files)}")
    data = model.SerializeToString()
    if draw.random() < 0.08:
        form, data = "bytes", _damaged(data, draw)
        notes.append("damaged")
    if len(data) > MAX_BYTES:
        data = data[:MAX_BYTES]
    return Drawn(
        number, seed.name, form, data, feeds, tuple(notes), files, level=level, threads=threads
    )


def mutated(model: onnx.ModelProto, draw: random.Random, corpus: Corpus) -> str:
    """Change a model in one way; return which."""
    (mutation,) = draw.choices(list(MUTATIONS), list(MUTATIONS.values()))
    try:
        return f"{mutation.__name__}: {mutation(model, draw, corpus)}"
    except (DecodeError, EncodeError):
        return f"{mutation.__name__}: nests too deeply to be copied"


def _ort(number: int, seed: Seed, draw: random.Random, level: int, threads: int) -> Drawn:
    data, notes = seed.data(), []
    for _ in range(draw.choice([1, 1, 2, 4])):
        if draw.random() < 0.8:
            data, note = flat.mutate(data, draw)
        else:
            data, note = _damaged(data, draw), "damaged"
        notes.append(note)
    form = draw.choice(["bytes", "path"])
    feeds = dict(seed.feeds())
    return Drawn(
        number, seed.name, form, data, feeds, tuple(notes), {}, None, level, threads, ".ort"
    )


def _freeze(model: onnx.ModelProto, feeds: Feeds, draw: random.Random) -> None:
    """Make constants of some inputs: kernels want weights, and checks differ."""
    names = [value.name for value in model.graph.input if value.name in feeds]
    way = draw.choice(["none", "rest", "some", "all"])
    chosen = {"none": [], "rest": names[1:], "all": names}.get(way)
    frozen(model, feeds, [n for n in names if draw.random() < 0.5] if chosen is None else chosen)


def _damaged(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes truncated, flipped, or with a piece in another place."""
    if not data:
        return b"\0"
    way = draw.choice(["cut", "flip", "flip", "splice", "repeat", "remove"])
    if way == "flip":
        return flipped(data, draw)
    first, second = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    if way == "cut":
        return data[:second]
    if way == "remove":
        return data[:first] + data[second:]
    if way == "repeat":
        return data[:second] + data[first:]
    at = draw.randrange(len(data))
    return data[:at] + data[first:second] + data[at + second - first :]


def _externalised(model: onnx.ModelProto, draw: random.Random) -> dict[str, bytes]:
    """Move tensors to a file; says hostile things of where they lie."""
    content = b""
    tensors = [each for each in messages(model) if isinstance(each, onnx.TensorProto)]
    for tensor in tensors[:20]:
        try:
            array = numpy_helper.to_array(tensor)
        except Exception:
            continue
        if array.dtype.hasobject or not tensor.HasField("raw_data"):
            continue
        raw = tensor.raw_data
        entries = {"location": DATA, "offset": str(len(content)), "length": str(len(raw))}
        content += raw
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        if draw.random() < 0.5:
            _misplace(entries, draw)
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
    if draw.random() < 0.3:
        content = content[: draw.randrange(len(content) + 1)]
    return {DATA: content} if draw.random() < 0.95 else {}


def _misplace(entries: dict[str, str], draw: random.Random) -> None:
    key = draw.choice(["offset", "offset", "length", "length", "location", "checksum", ""])
    numbers = [str(draw.choice(INTEGERS)), "", " 1", "1e3", "0x10", "-0", "1_0", "٣", "9" * 5000]
    locations = ["", ".", "..", "/dev/zero", "model.onnx", "x/../w.bin", "./w.bin", *WORDS]
    if draw.random() < 0.15:
        entries.pop(key, None)
    else:
        entries[key] = draw.choice(locations if key == "location" else numbers)
