"""The steps that a graph of the device can capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tenonnx.graph.traits import RANDOM
from tenonnx.provider import Step
from tenonnx_cuda.capture.replay import dynamic_of

# Operators whose work cannot be repeated as it was: random ones would draw the same numbers.
NEVER_CAPTURED: Final = RANDOM | frozenset(
    {
        *("NonZero", "Unique", "Compress"),  # the host has to know how much there is
        # cupy leaves them to libraries that wait for the device, or that refuse to be captured.
        *("DFT", "Det", "Einsum", "Inverse", "Rfft", "Irfft", "STFT", "TopK"),
        *("SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement"),
        # They bring arrays from the host, which a replay would not read anew.
        *("AffineGrid", "Constant", "DeformConv", "Imputer"),
        *("MatMulBnb4", "QLinearAveragePool", "RoiAlign", "SparseAttention", "Upsample"),
    }
)

# Those that are told lengths by the host, unless a kernel reads them on the device.
TAKES_HOST_LENGTHS: Final = frozenset({"GroupQueryAttention"})


def lengths_first(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Return the steps that make what changes in every run of a decoder; and the others.

    Such as how many tokens there are by now, of a mask that gets longer.
    """
    wanted = {
        step.inputs[position]
        for step in steps
        if (dynamic := dynamic_of(step)) is not None
        for position in dynamic.changing
    }
    first: list[Step] = []
    for step in reversed(steps):
        if not wanted.isdisjoint(step.outputs):
            first.insert(0, step)
            wanted.update(step.inputs)
    makers = {id(step) for step in first}
    return first, [step for step in steps if id(step) not in makers]


def is_capturable(step: Step) -> bool:
    """Return whether a step does the same whenever its inputs have the same shapes."""
    if step.parts:
        return all(map(is_capturable, step.parts))
    if (dynamic := dynamic_of(step)) is not None and dynamic.limits:
        return True
    return not any(
        node.op_type in NEVER_CAPTURED | TAKES_HOST_LENGTHS or node.op_type.startswith("Sequence")
        for node in step.nodes
    )
