"""The rows: models of many kinds, so small that a first run is short.

Those of ``SCALE`` are the exception: graphs of many nodes, and of many weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.cpu import table as cpu
from bench.cpu.table import TINY
from bench.first.states import STATES
from bench.models import digits, gru_layers, sums, wide
from bench.transformers import encoder

MINILM = {"layers": 6, "width": 384, "heads": 12, "vocabulary": 30522}


@dataclass(frozen=True)
class Row(cpu.Row):
    """A model, and how it is opened.

    Attributes:
        first_answer: Seconds that a first process may take from ``import tenonnx`` to its first
            answer, numpy being imported.
        is_large: Whether the model has more than 50 MB.
        ort: Whether it is a file of onnxruntime's own format.
    """

    first_answer: float | None = None
    is_large: bool = False
    ort: bool = False


def _known(name: str, **more: object) -> Row:
    row = cpu.ROWS[name]
    given = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return Row(**{**given, **more})


def _graph(nodes: int) -> Row:
    return Row(f"graph of {nodes:,} nodes", lambda: wide(nodes), lambda: wide(nodes // 10))


@dataclass(frozen=True)
class Table:
    """Rows that are measured and shown together.

    Attributes:
        name: The benchmark's; files of results have it, too.
        about: What ``--help`` tells.
        rows: The rows by name.
        states: What they are measured in, by default.
        measures: What of it is on the page of all results, by column, in words.
    """

    name: str
    about: str | None
    rows: Mapping[str, Row]
    states: tuple[str, ...] = tuple(STATES)
    measures: Mapping[str, str] = field(
        default_factory=lambda: {"opened_s": "import, session and first run"}
    )


ROWS: dict[str, Row] = {
    "bert": _known("bert-1x128", is_large=True),
    "minilm": Row(
        "MiniLM, 1 x 128", lambda: encoder(**MINILM), lambda: encoder(**TINY), is_large=True
    ),
    "resnet50": _known("resnet50", is_large=True),
    "resnet50-int8": _known("resnet50-int8"),
    "mobilenet-v2": _known("mobilenet-v2"),
    "int4-decode": _known("int4-decode-nbits", is_large=True),
    "lstm": _known("lstm"),
    "gru": Row("GRU 2 x 256, 100 steps", gru_layers, lambda: gru_layers(5, 1, 16)),
    "forest": _known("forest-1000"),
    "digits": Row("digits of `examples`, 1 image", digits, digits, first_answer=0.35),
    "graph-100": _graph(100),
    "graph-1k": _graph(1_000),
    "graph-10k": _graph(10_000),
    "resnet50-ort": _known("resnet50", about="ResNet-50, an .ort file", ort=True, is_large=True),
    "mobilenet-v2-ort": _known("mobilenet-v2", about="MobileNetV2, an .ort file", ort=True),
}

NODES = (100, 1_000, 10_000, 100_000)
WEIGHTS = (10, 1_000, 10_000, 100_000)


def _weights(count: int) -> Row:
    """Few nodes, many weights."""
    about = f"sums of {count:,} weights"
    return Row(about, lambda: sums(count), lambda: sums(max(count // 100, 10)))


SCALE: dict[str, Row] = {
    **{f"nodes-{count}": _graph(count) for count in NODES},
    **{f"weights-{count}": _weights(count) for count in WEIGHTS},
}
