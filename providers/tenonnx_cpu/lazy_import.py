"""Modules with specializations and fusions, imported when a graph has an operator of theirs.

They are this package's, and those of plug-ins that have kernels.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Final

from tenonnx_cpu.jit.packages import import_callers
from tenonnx_cpu.listing import LISTING

QUANTIZED: Final = ("Quantize", "Dequantize", "QLinear")
# Modules about nodes beside operators whose names begin so; nothing for other graphs.
BESIDE: Final = {
    **dict.fromkeys(["int8.dense", "int8.pooling", "int8.qlinear_binary", "int8.conv"], QUANTIZED),
    "matmul.experts": ("Gather",),
    "ml.feature_hashing": ("ScatterElements",),
    "ml.categories": ("Gather",),
    "ml.columns": ("LabelEncoder", "OneHotEncoder"),
}


def _by_operator() -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for module, names in LISTING.items():
        for name in names.split():
            *domain, op_type = name.split("::")
            found.setdefault((domain[0] if domain else "", op_type), []).append(module)
    return found


# By domain and operator.
MODULES_OF_OPERATOR = _by_operator()

OWN_DOMAINS = {domain for domain, _ in MODULES_OF_OPERATOR}


def import_for(operators: Iterable[tuple[str, str]]) -> None:
    """Import the modules that do something about some operators."""
    found = set(operators)
    names = {module for operator in found for module in MODULES_OF_OPERATOR.get(operator, ())}
    for name in names:
        beside = BESIDE.get(name)
        if beside and not any(op_type.startswith(beside) for _, op_type in found):
            continue
        importlib.import_module(f"tenonnx_cpu.{name}")
    if foreign := {domain for domain, _ in found} - OWN_DOMAINS:
        import_callers(foreign)


def import_all() -> None:
    """Import all of them."""
    for name in LISTING:
        importlib.import_module(f"tenonnx_cpu.{name}")
    import_callers()
