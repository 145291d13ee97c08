"""The rows of the table: models, and how long they may take in units of onnxruntime's time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal

from bench.convnets import STAGES, mobilenet_v2, resnet50
from bench.llm import Form, phi3
from bench.models import Built, forest, lstm_layers, mlp, mlp_stack
from bench.smaller import half, quantized
from bench.transformers import decoder, encoder

BERT = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 30522}
GPT2 = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257}
TINY = {"layers": 1, "width": 64, "heads": 2, "vocabulary": 256}


@dataclass(frozen=True)
class Row:
    """A model in the table.

    Attributes:
        about: What it is, in words.
        build: Makes it.
        small: Makes a small one of its kind.
        limit: What the ratio to onnxruntime's time must not exceed.
        tolerance: How far outputs may be apart, in units of the largest value: rounding differs,
            and where activations are rounded to bytes a tie may go either way.
        loading: Whether it is the making of a session that is timed, not a run: a ``first`` one,
            which finds nothing of an earlier one, or one that finds what was ``kept``.
        at_once: Who runs the model at once, each on one thread, so that what is timed is how often
            it is run: threads on one session, or processes with a session each. As many as
            the number of threads says.
        needs: Packages that building it needs.
    """

    about: str
    build: Callable[[], Built]
    small: Callable[[], Built] = field(repr=False)
    limit: float = 1.0
    tolerance: float = 1e-4
    loading: Literal["first", "kept"] | None = None
    at_once: Literal["threads", "processes"] | None = None
    needs: tuple[str, ...] = ()

    def threads_in_words(self, threads: int) -> str:
        """Return what a number of threads stands for."""
        if self.at_once:
            return f"{threads} at once"
        return "1 thread" if threads == 1 else f"{threads or 'all'} threads"

    @property
    def missing(self) -> str:
        """Return which packages keep it from being built."""
        absent = [name for name in self.needs if not find_spec(name)]
        return f"making it needs {', '.join(absent)}" if absent else ""

    @property
    def measured(self) -> str:
        """The measurement, in words."""
        if self.at_once:
            return "runs a second of all together"
        words = {None: "a run", "first": "a first session", "kept": "a session, the plan kept"}
        return words[self.loading]


@dataclass(frozen=True)
class Table:
    """Rows that are measured and shown together.

    Attributes:
        name: The benchmark's; files of results have it, too.
        about: What ``--help`` tells.
        rows: The rows by name.
        peers: Engines besides onnxruntime, and their packages; those installed take turns, too.
        threads: Numbers of threads, by default; 0 is all.
        seconds: How long a turn is, by default.
        roofline: Whether the machine's peaks are measured as well.
    """

    name: str
    about: str | None
    rows: Mapping[str, Row]
    peers: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[int, ...] = (1, 0)
    seconds: float = 0.3
    roofline: bool = False


def _phi3(about: str, form: Form, tokens: int, past: int) -> Row:
    def build() -> Built:
        return phi3(form=form, tokens=tokens, past=past)

    def small() -> Built:
        return phi3(form=form, tokens=tokens, past=past, width=128, inner=256, heads=2)

    return Row(about, build, small, tolerance=0.05)


def _small_resnet() -> Built:
    return resnet50(image=32, blocks=(1, 1, 1, 1), width=8)


ROWS: dict[str, Row] = {
    "int4-decode-qdq": _phi3("int4 QDQ, Phi-3-mini layers, 1 token", "qdq", 1, 128),
    "int4-decode-nbits": _phi3("int4 MatMulNBits, Phi-3-mini layers, 1 token", "nbits", 1, 128),
    "int4-prefill-qdq": _phi3("int4 QDQ, Phi-3-mini layers, 128 tokens", "qdq", 128, 0),
    "int4-prefill-nbits": _phi3("int4 MatMulNBits, Phi-3-mini layers, 128 tokens", "nbits", 128, 0),
    "bert-1x128": Row("BERT-base, 1 x 128", lambda: encoder(**BERT), lambda: encoder(**TINY)),
    "bert-8x128": Row(
        "BERT-base, 8 x 128",
        lambda: encoder(**BERT, batch=8),
        lambda: encoder(**TINY, batch=8),
    ),
    "mlp-1": Row("MLP 1024-4096-1024 twice, 1 row", mlp_stack, lambda: mlp_stack(1, 64, 128)),
    "mlp-128": Row(
        "MLP 1024-4096-1024 twice, 128 rows",
        lambda: mlp_stack(128),
        lambda: mlp_stack(128, 64, 128),
    ),
    "gpt2-step": Row(
        "decoder like GPT-2, 1 token after 512",
        lambda: decoder(**GPT2, tokens=512),
        lambda: decoder(**TINY, tokens=512),
    ),
    "resnet50": Row("ResNet-50", resnet50, _small_resnet, limit=1.2),
    "mobilenet-v2": Row(
        "MobileNetV2", mobilenet_v2, lambda: mobilenet_v2(image=32, stages=STAGES[:2]), limit=1.2
    ),
    "resnet50-int8": Row(
        "ResNet-50, int8 QDQ",
        lambda: quantized(resnet50()),
        lambda: quantized(_small_resnet()),
        limit=1.2,
        tolerance=0.1,
    ),
    "bert-fp16": Row(
        "BERT-base of float16, 1 x 128",
        lambda: half(encoder(**BERT)),
        lambda: half(encoder(**TINY)),
        limit=0.8,
        tolerance=0.02,
    ),
    "lstm": Row("LSTM 2 x 256, 100 steps", lstm_layers, lambda: lstm_layers(5, 1, 16)),
    "forest-1000": Row(
        "forest of 100 trees, 1000 rows", forest, lambda: forest(trees=5, depth=3, rows=50)
    ),
    "forest-1": Row(
        "forest of 100 trees, 1 row", lambda: forest(rows=1), lambda: forest(5, 3, rows=1)
    ),
    "mlp-five-nodes": Row("MLP of 5 nodes, 1 row", mlp, mlp),
}
