"""Quantizing model files: static and dynamic int8, and weights alone in 4 or 8 bits."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx_ir as ir
from onnx_ir.passes.common import (
    LiftConstantsToInitializersPass,
    RemoveInitializersFromInputsPass,
)

from tenonnx import WeightRegistry, default_registry
from tenonnx.formats.convert import Layout, Progress, write
from tenonnx.formats.load import load
from tenonnx.graph.functions import inline_functions
from tenonnx_quant.accuracy import Accuracy, compare
from tenonnx_quant.dynamic import DynamicScheme
from tenonnx_quant.dynamic import quantize_dynamic as rewrite_dynamic
from tenonnx_quant.feeds import open_feeds
from tenonnx_quant.static import StaticScheme
from tenonnx_quant.static import quantize_static as rewrite_static
from tenonnx_quant.weight_only import WeightScheme
from tenonnx_quant.weight_only import quantize_weights as rewrite_weights

# Weights in a file of their own.
SEPARATE: Final = Layout()


@dataclass(frozen=True)
class Report:
    """The report of quantizing.

    Attributes:
        written: The files, the model itself last.
        quantized: The number of weights, or of nodes (``counted``), that were quantized.
        bytes_before: The bytes of the original model's tensors.
        bytes_after: The bytes of the quantized model's tensors.
        accuracy: The error of every output on the calibration data; empty without data.
        counted: ``weight``; ``node`` if activations are quantized as well.
    """

    written: Sequence[Path]
    quantized: int
    bytes_before: int
    bytes_after: int
    accuracy: Sequence[Accuracy] = ()
    counted: str = "weight"

    def __str__(self) -> str:
        mib = [size / 2**20 for size in (self.bytes_before, self.bytes_after)]
        number = f"{self.quantized} {self.counted}{'s' * (self.quantized != 1)}"
        first = f"{number} quantized: tensors take {mib[1]:.2f} MiB instead of {mib[0]:.2f} MiB"
        return "\n".join([first, *map(str, self.accuracy)])


@dataclass(frozen=True)
class Job:
    """The common part of all ways to quantize.

    Attributes:
        data: Calibration data, as ``open_feeds`` takes it; ``None`` for none.
        batch: Cut feeds into this many rows; 0 leaves them as they are.
        samples: Feeds to use; 0 for all.
        layout: How tensors are written.
        allowed_roots: Folders outside the model's own that external data may come from.
        registry: Where weights are mapped; the process's if ``None``.
        progress: Hears what is being done, and the share that is done.
    """

    data: Any = None
    batch: int = 0
    samples: int = 0
    layout: Layout = SEPARATE
    allowed_roots: tuple[str, ...] = ()
    registry: WeightRegistry | None = None
    progress: Progress = lambda *_: None

    def load(self, source: Any) -> ir.Model:
        """Return a model whose weights are mapped."""
        registry = self.registry or default_registry()
        return load(source, registry, allowed_roots=self.allowed_roots)


Rewrite = Callable[[ir.Model, Any], tuple[ir.Model, int]]


def quantize_weights(
    source: Any, target: str | os.PathLike[str], scheme: WeightScheme | None = None, **job: Any
) -> Report:
    """Quantize the constant matrices of products to 4 or 8 bits; activations stay floats.

    Weights are read from the mapped file, and written, one after the other.

    Args:
        source: ONNX in any form that ``tenonnx.formats.load.load`` takes.
        target: The ``.onnx`` file to write; it may be the source.
        scheme: How; blocks of 32 numbers in 4 bits if ``None``.
        **job: Fields of ``Job``.

    Raises:
        InvalidArgument: Nothing can be quantized, or the scheme or the data contradict the model.
        NotSupported: The model cannot be brought to the opset that is needed.
        Fail: The files cannot be written; whatever was there before is still there.
    """
    chosen = scheme or WeightScheme()
    return _quantize(
        source, target, lambda model, _: rewrite_weights(model, chosen), Job(**job), "weight"
    )


def quantize_dynamic(
    source: Any, target: str | os.PathLike[str], scheme: DynamicScheme | None = None, **job: Any
) -> Report:
    """Quantize products to int8, their activations by ranges found in every run.

    Arguments and errors are those of ``quantize_weights``.
    """
    chosen = scheme or DynamicScheme()
    return _quantize(
        source, target, lambda model, _: rewrite_dynamic(model, chosen), Job(**job), "node"
    )


def quantize_static(
    source: Any, target: str | os.PathLike[str], scheme: StaticScheme | None = None, **job: Any
) -> Report:
    """Quantize weights and activations to 8 bits, by ranges that calibration data has.

    Arguments and errors are those of ``quantize_weights``; ``data`` is needed.
    """
    chosen, task = scheme or StaticScheme(), Job(**job)
    return _quantize(
        source,
        target,
        lambda model, feeds: rewrite_static(model, feeds, chosen, task.progress),
        task,
        "node",
    )


def _quantize(
    source: Any, target: str | os.PathLike[str], rewrite: Rewrite, job: Job, counted: str
) -> Report:
    original = job.load(source)
    inputs = [v.name or "" for v in original.graph.inputs if not v.is_initializer()]
    feeds = None if job.data is None else open_feeds(job.data, inputs, job.batch, job.samples)
    before = tensor_bytes(original)
    model = original.clone()
    _prepare(model)
    model, count = rewrite(model, feeds)
    model.producer_name = model.producer_name or "tenonnx"
    after = tensor_bytes(model)
    written = write(model, target, layout=job.layout, progress=job.progress)
    accuracy: Sequence[Accuracy] = ()
    if feeds is not None:
        job.progress("comparing with the original", 1.0)
        accuracy = compare(original, written[-1], feeds())
    return Report(written, count, before, after, accuracy, counted)


def _prepare(model: ir.Model) -> None:
    """Make every constant an initializer, and every product a node of a graph.

    Models of old IR versions list their weights among the inputs; quantized, they cannot be
    given by a caller any more.
    """
    inline_functions(model)
    RemoveInitializersFromInputsPass()(model)
    LiftConstantsToInitializersPass(lift_all_constants=False, size_limit=64)(model)


def tensor_bytes(model: ir.Model) -> int:
    """Return the bytes of all initializers."""
    return sum(
        value.const_value.nbytes
        for graph in model.graphs()
        for value in graph.initializers.values()
        if value.const_value is not None
    )
