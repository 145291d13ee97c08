"""The provider: a segment becomes one function of its inputs and weights, which XLA compiles."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import numpy as np

from tenonnx import OperatorTable
from tenonnx_array.provider import ArrayDevice
from tenonnx_array.tracing import Function, TracingProvider
from tenonnx_jax.declined import DECLINED

# The operators of each module of kernels; a module is imported when a model needs it.
KERNEL_OPERATORS = {
    "windows": (
        "Conv-1 MaxPool-1 MaxPool-8 MaxPool-10 "
        "AveragePool-1 AveragePool-7 AveragePool-10 AveragePool-19"
    )
}

JAX_DTYPES = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT16 BFLOAT16 FLOAT DOUBLE"


class JaxDevice(ArrayDevice):
    """jax's default device. On the CPU, aligned arrays and weights are used in place."""

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Return a jax array; on the CPU of the same memory, if that is aligned to 64 bytes."""
        jax = importlib.import_module("jax")
        with jax.enable_x64(True):
            return jax.device_put(array)


class JaxExecutionProvider(TracingProvider):
    """A provider that compiles segments with XLA for jax's default device."""

    name: ClassVar[str] = "JaxExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("jax",)
    unasked: ClassVar[bool] = False
    domains: ClassVar[frozenset[str] | None] = frozenset(("", "ai.onnx.preview.training"))
    namespace = "jax.numpy"
    install = "'tenonnx[jax]'"
    device = JaxDevice("jax.numpy", "jax")
    overrides = OperatorTable.listed("tenonnx_jax", KERNEL_OPERATORS)
    elements = frozenset(JAX_DTYPES.split())
    without: ClassVar[dict[str, str]] = DECLINED

    def jit(self, function: Function) -> Function:
        """Return XLA's function with 64-bit types enabled."""
        jax = importlib.import_module("jax")
        compiled = jax.jit(function)

        def call(*arrays: Any) -> tuple[Any, ...]:
            with jax.enable_x64(True):
                return tuple(compiled(*arrays))

        return call
