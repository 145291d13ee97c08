"""The rows: models of many kinds, in sizes that a first run takes no more than a moment of."""

from __future__ import annotations

from bench.cpu.table import ROWS as CPU
from bench.cpu.table import TINY, Row
from bench.models import digits, gru_layers
from bench.transformers import encoder

MINILM = {"layers": 6, "width": 384, "heads": 12, "vocabulary": 30522}

ROWS: dict[str, Row] = {
    "bert": CPU["bert-1x128"],
    "minilm": Row("MiniLM, 1 x 128", lambda: encoder(**MINILM), lambda: encoder(**TINY)),
    "resnet50": CPU["resnet50"],
    "resnet50-int8": CPU["resnet50-int8"],
    "mobilenet-v2": CPU["mobilenet-v2"],
    "int4-decode": CPU["int4-decode-nbits"],
    "lstm": CPU["lstm"],
    "gru": Row("GRU 2 x 256, 100 steps", gru_layers, lambda: gru_layers(5, 1, 16)),
    "forest": CPU["forest-1000"],
    "digits": Row("digits of `examples`, 1 image", digits, digits),
}
