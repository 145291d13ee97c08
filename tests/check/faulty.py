"""A plug-in whose provider and transform have one fault, named by the variable FAULT."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import tenonnx
from tenonnx_array.provider import ArrayProvider

FAULT = os.environ.get("FAULT", "")


class Faulty(ArrayProvider):
    """numpy, with a Softplus of its own."""

    name = "FaultyExecutionProvider"
    aliases = ("faulty",)
    namespace = "numpy"
    overrides = tenonnx.OperatorTable()

    def compile(self, segment: Any) -> Any:
        """Raise for Softplus, or do Tanh and Sub as one wrong step, if that is the fault."""
        if FAULT == "fused":
            return _fused(super().compile(segment))
        if FAULT == "compile" and any(node.op_type == "Softplus" for node in segment.nodes):
            raise KeyError("Softplus")
        return super().compile(segment)


def _fused(steps: Any) -> Any:
    """Return steps in which Tanh and the Sub that reads it are one, which subtracts twice."""
    last = {output: step for step in steps for output in step.outputs}
    fused = []
    for step in steps:
        tanh = last.get(step.inputs[0])
        if step.nodes[0].op_type == "Sub" and tanh and tanh.nodes[0].op_type == "Tanh":
            inputs = (*tanh.inputs, step.inputs[1])
            nodes = (*tanh.nodes, *step.nodes)
            fused.remove(tanh)
            step = tenonnx.Step(_twice, inputs, step.outputs, nodes)
        fused.append(step)
    return fused


def _twice(x: Any, y: Any) -> Any:
    return np.tanh(x) - 2 * y


@Faulty.overrides.op("Softplus", since=1)
def softplus(_: Any, x: Any) -> Any:
    """Compute log(1 + exp(x)), but for the fault."""
    right = np.logaddexp(x, np.float32(0))
    match FAULT:
        case "value":
            return np.where(x > 0.1, right + np.float32(0.01), right)
        case "nan":
            return np.where(x > 0.1, np.float32(np.nan), right)
        case "raise":
            raise ZeroDivisionError("by the fault")
        case "crash":
            signal.raise_signal(signal.SIGSEGV)
        case "exit":
            os._exit(3)
        case "hang":
            time.sleep(600)
        case "dtype":
            return right.astype(np.float64)
        case "shape":
            return right.reshape(-1)
    return right


def swap(model: Any, _: Any) -> bool:
    """Take Sub(Tanh(a), Sin(b)) for Sub(Sin(b), Tanh(a))."""
    for node in model.graph:
        made_by = [value.producer() and value.producer().op_type for value in node.inputs]
        if node.op_type == "Sub" and made_by == ["Tanh", "Sin"]:
            first, second = node.inputs
            node.replace_input_with(0, second)
            node.replace_input_with(1, first)
            return True
    return False


@tenonnx.hookimpl
def register_providers(register: Any) -> None:
    """Add the provider."""
    register(Faulty)


@tenonnx.hookimpl
def register_transforms(register: Any) -> None:
    """Add the transform if it is the fault."""
    if FAULT == "transform":
        register(tenonnx.Transform("swap", swap, level="basic"))
