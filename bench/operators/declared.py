"""The operators that both engines have, and the element types that onnxruntime's kernels take."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as engine

from tenonnx.operators import Kernel, OperatorTable
from tenonnx_array import TABLE
from tenonnx_contrib.listing import LISTING

DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
CPU = "CPUExecutionProvider"

# ONNX's element types by the names that kernels are declared with.
ELEMENTS = {
    "float": TensorProto.FLOAT,
    **{name.lower(): value for name, value in TensorProto.DataType.items()},
}

# The types of operands other than the first, the best first.
PREFERRED = ("float", "int64", "bool", "uint8", "int8", "int32", "string")


@dataclass(frozen=True)
class Operand:
    """A declared input.

    Attributes:
        name: The parameter's.
        kind: The name of its type constraint, or its type.
        is_needed: Whether a node must have it.
    """

    name: str
    kind: str
    is_needed: bool


@dataclass(frozen=True)
class Operator:
    """An operator of the newest version that onnxruntime has a kernel for.

    Attributes:
        domain: Its domain.
        name: Its name.
        version: The opset's.
        operands: What it takes; a variadic one stands once.
        kernels: The allowed types of each constraint, for each of onnxruntime's kernels.
        kernel: Ours.
    """

    domain: str
    name: str
    version: int
    operands: tuple[Operand, ...]
    kernels: tuple[dict[str, list[str]], ...]
    kernel: Kernel

    @cached_property
    def title(self) -> str:
        """The name, with the domain of others than ONNX's."""
        return f"{self.domain}.{self.name}" if self.domain else self.name

    def types(self) -> Iterator[dict[str, str]]:
        """Yield the element types by constraint: one entry for each type of the first operand."""
        first = self.operands[0].kind if self.operands else ""
        found: dict[str, dict[str, str]] = {}
        for kernel in self.kernels:
            names = [element for each in kernel.get(first, [first]) if (element := _element(each))]
            others = {
                kind: name
                for kind, allowed in kernel.items()
                if (name := _preferred(allowed)) is not None
            }
            for name in names or [""]:
                same = {kind: name for kind in others if _takes(kernel[kind], name)}
                found.setdefault(name, {**others, **same, first: name})
        yield from found.values()


def _takes(allowed: list[str], name: str) -> bool:
    return f"tensor({name})" in allowed


def _preferred(allowed: list[str]) -> str | None:
    names = [name for name in map(_element, allowed) if name]
    return min(names, key=lambda n: PREFERRED.index(n) if n in PREFERRED else 99, default=None)


def _element(kind: str) -> str | None:
    """Return the element type of a tensor's type; ``None`` for sequences, maps and the like."""
    match = re.fullmatch(r"tensor\((\w+)\)", kind)
    return match[1] if match and match[1] in ELEMENTS else None


def dtype_of(name: str) -> np.dtype[Any]:
    """Return numpy's dtype of an element type by its declared name."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(ELEMENTS[name]))


def known() -> Iterator[Operator]:
    """Yield the operators that are measured: ours of all three domains that onnxruntime has."""
    contrib = OperatorTable.listed("tenonnx_contrib", LISTING, "com.microsoft")
    return operators(TABLE.copy().update(contrib))


def operators(table: OperatorTable) -> Iterator[Operator]:
    """Yield the operators of a table that onnxruntime has CPU kernels for, by domain and name."""
    kernels: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for each in engine.get_all_opkernel_def():
        if each.provider == CPU and each.domain in DOMAINS:
            kernels[each.domain, each.op_name].append(each)
    schemas = {
        (each.domain, each.name): each
        for each in sorted(engine.get_all_operator_schema(), key=lambda each: each.since_version)
        if each.since_version <= onnx.defs.onnx_opset_version() or each.domain
    }
    for (domain, name), declared in sorted(kernels.items()):
        schema = schemas.get((domain, name))
        own = [each.type_constraints for each in declared if _serves(each, schema)]
        ours = schema and table.find(domain, name, schema.since_version)
        if schema is None or ours is None or not own:
            continue
        operands = tuple(
            Operand(each.name, each.typeStr, "Optional" not in str(each.option))
            for each in schema.inputs
        )
        yield Operator(domain, name, schema.since_version, operands, tuple(own), ours)


def _serves(kernel: Any, schema: Any) -> bool:
    first, last = kernel.version_range
    return schema is not None and first <= schema.since_version <= last
