"""``python -m bench quantizing [ROW ...]`` times models that onnxruntime's tools quantized.

An encoder and MobileNetV2 in each form of 8 bits, with the tools' defaults but for types and form.
The protocol is that of ``python -m bench cpu``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.convnets import STAGES, mobilenet_v2
from bench.cpu.__main__ import main as measure
from bench.cpu.table import TINY, Row, Table
from bench.models import Built
from bench.smaller import dynamic, quantized
from bench.transformers import encoder

FORMS: dict[str, tuple[str, Callable[[Built], Built]]] = {
    "dynamic-int8": ("dynamic, int8 weights", lambda built: dynamic(built, "QInt8")),
    "dynamic-uint8": ("dynamic, uint8 weights", lambda built: dynamic(built, "QUInt8")),
    "qdq-uint8": (
        "QDQ, uint8 activations",
        lambda built: quantized(built, 1, reduced=False),
    ),
    "qdq-int8": (
        "QDQ, int8 activations",
        lambda built: quantized(built, 1, activations="QInt8", reduced=False),
    ),
    "integer-uint8": (
        "integer operators, uint8 activations",
        lambda built: quantized(built, 1, form="QOperator", reduced=False),
    ),
}


def _row(about: str, form: str, build: Callable[[], Built], small: Callable[[], Built]) -> Row:
    words, smaller = FORMS[form]
    return Row(
        f"{about}, {words}", lambda: smaller(build()), lambda: smaller(small()), tolerance=0.1
    )


ROWS = {
    **{
        f"encoder-{form}": _row("encoder, 4 layers of 512", form, encoder, lambda: encoder(**TINY))
        for form in FORMS
    },
    **{
        f"mobilenet-{form}": _row(
            "MobileNetV2", form, mobilenet_v2, lambda: mobilenet_v2(image=32, stages=STAGES[:2])
        )
        for form in FORMS
    },
}
TABLE = Table("quantizing", __doc__, ROWS)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if all outputs are right and all limits hold, else 1."""
    return measure(arguments, TABLE)


if __name__ == "__main__":
    sys.exit(main())
