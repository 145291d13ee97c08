"""Writing a model down as a sequence of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Feeds = dict[str, NDArray[Any]]
Shape = Sequence[int | str]
MICROSOFT = "com.microsoft"
Specs = dict[str, tuple[int, Shape]]


class Builder:
    """Collects nodes and weights: ``y = b("MatMul", x, b.normal(64, 64))``.

    Values are their names. Random weights follow the seed, so that two builds are equal.
    Names begin with the prefix: a subgraph's are others than its graph's.
    """

    def __init__(self, seed: int = 0, prefix: str = "") -> None:
        self.prefix = prefix
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._constants: dict[tuple[str, bytes], str] = {}

    def __call__(self, op: str, *inputs: str, out: str = "", domain: str = "", **given: Any) -> str:
        """Add a node of one output and return that output's name."""
        return self.many(
            op, *inputs, outputs=[out or f"{self.prefix}v{len(self.nodes)}"], domain=domain, **given
        )

    def many(
        self, op: str, *inputs: str, outputs: Sequence[str], domain: str = "", **given: Any
    ) -> str:
        """Add a node with the outputs named and return the first name."""
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **given))
        return outputs[0]

    def weight(self, array: NDArray[Any], name: str = "") -> str:
        """Add a weight."""
        name = name or f"{self.prefix}w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, scale: float = 1.0) -> str:
        """Add a random weight that keeps the variance of what it multiplies, times a scale."""
        fan_in = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
        array = self.random.standard_normal(shape, dtype=np.float32)
        return self.weight(array * np.float32(scale / fan_in**0.5))

    def int4(self, inner: int, outer: int, block: int = 32) -> tuple[str, str]:
        """Add a random matrix ``[inner, outer]`` of INT4, and the scales of blocks of its rows."""
        codes = self.random.integers(0, 256, inner * outer // 2, np.uint8)
        tensor = TensorProto(
            name=f"{self.prefix}w{len(self.weights)}",
            dims=(inner, outer),
            data_type=TensorProto.INT4,
            raw_data=codes.tobytes(),
        )
        self.weights.append(tensor)
        return tensor.name, self.weight(self._scales(inner, (inner // block, outer)))

    def nbits(self, inner: int, outer: int, block: int = 32) -> tuple[str, str]:
        """Add a random matrix as com.microsoft's MatMulNBits takes it, and its scales."""
        shape = (outer, inner // block, block // 2)
        codes = self.weight(self.random.integers(0, 256, shape, np.uint8))
        return codes, self.weight(self._scales(inner, shape[:2]))

    def _scales(self, inner: int, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return scales of 4-bit codes that keep the variance of what is multiplied."""
        spread = 4.6 * inner**0.5
        return self.random.uniform(0.8, 1.2, shape).astype(np.float32) / np.float32(spread)

    def small(self, *shape: int, around: float = 0.0) -> str:
        """Add a random weight close to a number, for biases and gains."""
        array = self.random.standard_normal(shape, dtype=np.float32)
        return self.weight(array * np.float32(0.02) + np.float32(around))

    def ints(self, *values: int) -> str:
        """Add a vector of int64; equal ones are one weight."""
        return self._constant(np.array(values, np.int64))

    def scalar(self, value: int) -> str:
        """Add an int64 scalar; equal ones are one weight."""
        return self._constant(np.array(value, np.int64))

    def number(self, value: float) -> str:
        """Add a float32 scalar; equal ones are one weight."""
        return self._constant(np.array(value, np.float32))

    def _constant(self, array: NDArray[Any]) -> str:
        key = (f"{array.dtype}{array.shape}", array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(array)
        return self._constants[key]

    def model(
        self,
        inputs: Mapping[str, tuple[int, Shape]],
        outputs: Mapping[str, tuple[int, Shape]],
        *,
        opset: int = 17,
        ml: int | None = None,
    ) -> onnx.ModelProto:
        """Return the model; inputs and outputs are element types and shapes by name."""
        graph = helper.make_graph(
            self.nodes,
            "bench",
            [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()],
            [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()],
            self.weights,
        )
        imports = [helper.make_opsetid("", opset)]
        if ml is not None:
            imports.append(helper.make_opsetid("ai.onnx.ml", ml))
        if any(node.domain == MICROSOFT for node in self.nodes):
            imports.append(helper.make_opsetid(MICROSOFT, 1))
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


FLOAT = TensorProto.FLOAT
DOUBLE = TensorProto.DOUBLE
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL
