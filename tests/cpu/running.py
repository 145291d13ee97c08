from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import tenonnx
from models import FLOAT, model, value
from tenonnx_cpu.capture import capturable
from tenonnx_cpu.jit import library
from tenonnx_cpu.jit.runtime import JitKernel

Arrays = dict[str, np.ndarray[Any, Any]]


def require_kernels() -> None:
    """Skip a module of tests where there is no library of kernels."""
    if library.find() is None:
        pytest.skip("there are no kernels here", allow_module_level=True)


BF16 = ("cpu", {"precision": "bf16"})
"""A provider that may round the factors of products to bfloat16."""


def narrow(x: Any) -> Any:
    """Return numbers rounded to bfloat16, as float64."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float64)


class Watch:
    """Counts the calls of a compiled kernel."""

    def __init__(self, kernel: JitKernel, monkeypatch: pytest.MonkeyPatch) -> None:
        kernel.request()
        compiled = kernel.run
        assert compiled is not None, f"{kernel} does not compile"
        self.calls = 0

        def run(*arguments: Any) -> None:
            self.calls += 1
            compiled(*arguments)

        monkeypatch.setattr(kernel, "run", run)


def session(
    nodes: Sequence[Any],
    feeds: Arrays,
    outputs: str,
    weights: Arrays | None = None,
    *,
    threads: int = 1,
    opset: int = 21,
    domains: dict[str, int] | None = None,
    kinds: dict[str, int] | None = None,
    shapes: dict[str, list[int | None]] | None = None,
    level: tenonnx.GraphOptimizationLevel | None = None,
    provider: Any = "cpu",
) -> tenonnx.InferenceSession:
    inputs = [
        value(
            name,
            (kinds or {}).get(name, FLOAT),
            (shapes or {}).get(name, [None] * array.ndim),
        )
        for name, array in feeds.items()
    ]
    results = [value(name, (kinds or {}).get(name, FLOAT), None) for name in outputs.split()]
    proto = model(nodes, inputs, results, weights, opset=opset, domains=domains)
    options = tenonnx.SessionOptions()
    options.intra_op_num_threads = threads
    if level is not None:
        options.graph_optimization_level = level
    return tenonnx.InferenceSession(proto.SerializeToString(), options, [provider])


def run(nodes: Sequence[Any], feeds: Arrays, outputs: str, *given: Any, **options: Any) -> Any:
    results = session(nodes, feeds, outputs, *given, **options).run(None, feeds)
    return results[0] if len(results) == 1 else results


def floats(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape, np.float32) * np.float32(scale)


def wide(function: Callable[..., Any], *arrays: Any) -> Any:
    with np.errstate(all="ignore"):
        return function(*(np.asarray(array, np.float64) for array in arrays))


def softmax(x: Any) -> Any:
    with np.errstate(all="ignore"):
        return special.softmax(np.asarray(x, np.float64), axis=-1)


def cells(one: tenonnx.InferenceSession) -> list[Any]:
    """Return the captures of each step of a plan; a step may compute several nodes."""
    found = [getattr(step.call, "__self__", None) for step in one._plan.program.block.items]
    return [cell for cell in found if isinstance(cell, capturable.Cell)]


def captures(one: tenonnx.InferenceSession) -> list[int]:
    """The number of captures of each step that could have some."""
    return [len(cell) // 2 - 1 for cell in cells(one)]
