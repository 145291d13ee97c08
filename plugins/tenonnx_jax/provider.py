"""The provider: a segment becomes one function of its inputs and weights, which XLA compiles."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Sequence
from importlib import metadata
from typing import Any, ClassVar

import numpy as np

from tenonnx import OperatorTable
from tenonnx_array.provider import ArrayDevice
from tenonnx_array.tracing import ArrayType, Function, TracingProvider
from tenonnx_jax.declined import DECLINED

# The operators of each module of kernels; a module is imported when a model needs it.
KERNEL_OPERATORS = {
    "windows": (
        "Conv-1 MaxPool-1 MaxPool-8 MaxPool-10 "
        "AveragePool-1 AveragePool-7 AveragePool-10 AveragePool-19"
    )
}

JAX_DTYPES = "BOOL INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FLOAT16 BFLOAT16 FLOAT DOUBLE"


# The numbers of inputs and outputs, before a compiled function.
COUNTS = "<II"


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
    serializes = True
    without: ClassVar[dict[str, str]] = DECLINED

    @classmethod
    def depends_on(cls) -> tuple[Any, ...]:
        """Return the versions of the compiler."""
        return tuple((name, metadata.version(name)) for name in ("jax", "jaxlib"))

    def machine(self) -> str:
        """Return jax's default device, and for code of a CPU its features."""
        device = importlib.import_module("jax").devices()[0]
        features = np.show_config(mode="dicts") or {}
        found = features.get("SIMD Extensions", {}).get("found")
        return repr((device.platform, device.device_kind, device.client.platform_version, found))

    def serialized(self, function: Function, types: Sequence[ArrayType]) -> bytes:
        """Return what XLA compiles a function to, with the numbers of its inputs and outputs."""
        jax = importlib.import_module("jax")
        serializing = importlib.import_module("jax.experimental.serialize_executable")
        given = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in types]
        with jax.enable_x64(True):
            compiled = jax.jit(function).lower(*given).compile()
        content, _, outputs = serializing.serialize(compiled)
        made: bytes = content
        return struct.pack(COUNTS, len(given), outputs.num_leaves) + made

    def deserialized(self, binary: memoryview) -> Function:
        """Return the function of these bytes."""
        jax = importlib.import_module("jax")
        serializing = importlib.import_module("jax.experimental.serialize_executable")
        inputs, outputs = struct.unpack_from(COUNTS, binary)
        structure = jax.tree_util.tree_structure
        given, made = structure(((0,) * inputs, {})), structure((0,) * outputs)
        content = bytes(binary[struct.calcsize(COUNTS) :])
        call: Function = serializing.deserialize_and_load(content, given, made)
        return call

    def jit(self, function: Function) -> Function:
        """Return XLA's function with 64-bit types enabled."""
        jax = importlib.import_module("jax")
        compiled = jax.jit(function)

        def call(*arrays: Any) -> tuple[Any, ...]:
            with jax.enable_x64(True):
                return tuple(compiled(*arrays))

        return call
