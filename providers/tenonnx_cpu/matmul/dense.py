"""Small dense layers in a row as one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx.planning.fusion import inputs_of
from tenonnx_cpu.activation import ACTIVATION_PART, NO_ACTIVATION, Activation
from tenonnx_cpu.buffers import F32, contiguous, empty, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, mark_addresses
from tenonnx_cpu.fuse import PATTERN, Fused, Scope, fusion
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.jit.scratch import share_of, worker_floats
from tenonnx_cpu.kernel_selection import Call, NDArray
from tenonnx_cpu.matmul.affine import gemm_of
from tenonnx_cpu.matmul.kernels import WORKSPACE
from tenonnx_cpu.matmul.product import SERIAL_PRODUCTS, fits

if TYPE_CHECKING:
    import onnx_ir as ir

RUN_LAYERS = JitKernel("matmul.dense", "run_layers")

# Weights of a layer at most that one thread reads from its own cache, and rows or columns.
SMALL, WIDE = 1 << 16, 1024

# Rows of a task at most.
MAX_TASK_ROWS = 56


@cacheable
@dataclass(frozen=True)
class DenseLayer:
    """A dense layer: ``finish(x @ weights + bias)``, weights of any strides with one of 4."""

    weights: NDArray
    bias: NDArray | None
    finish: Activation


@fusion("Gemm", priority=PATTERN, takes=(ACTIVATION_PART,))
def fuse_layers(node: ir.Node, scope: Scope) -> Fused | None:
    """Take two or more dense layers that lead to one another."""
    layers: list[DenseLayer] = []
    nodes: list[ir.Node] = []
    step: ir.Node | None = node
    while step is not None and (found := _layer(step, scope)) is not None:
        own, made = found
        if layers and layers[-1].weights.shape[1] != made.weights.shape[0]:
            break  # numpy says what is wrong with them
        layers.append(made)
        nodes += own
        step = scope.reader(own[-1].outputs[0])
        if step is not None and step.inputs[0] is not own[-1].outputs[0]:
            break
    if len(layers) < 2:
        return None
    inputs = dict.fromkeys((node.inputs[0], *inputs_of(nodes)))
    return scope.fused(
        nodes, inputs, lambda plain: Capturable(LayersCall(layers, plain, scope.threads))
    )


def _layer(node: ir.Node, scope: Scope) -> tuple[tuple[ir.Node, ...], DenseLayer] | None:
    """Return a Gemm with its activation, and the layer that they are, if it is a small one."""
    found = gemm_of(node, scope) if node.op_type == "Gemm" and not node.domain else None
    if found is None or found.cast is not None:
        return None
    weights, bias = found.weights, found.bias
    if weights.size > SMALL or max(weights.shape) > WIDE or 4 not in weights.strides:
        return None
    if not weights.flags.aligned or not (bias is None or fits(bias)):
        return None
    walk = scope.follow(node)
    return walk.nodes, DenseLayer(weights, bias, walk.found.get("activation", NO_ACTIVATION))


@cacheable
class LayersCall:
    """A chain of dense layers.

    Args:
        layers: What to run.
        plain: Computes the same from the same arguments, of any dtype.
        threads: How many threads to use at most.
    """

    def __init__(self, layers: list[DenseLayer], plain: Call, threads: int) -> None:
        self._made_of = layers, plain, threads
        self._plain = plain
        self._threads = threads
        self._table = mark_addresses(frozen(np.array([*map(_line, layers)], np.int64)))
        parameters = [(layer.finish.first, layer.finish.second) for layer in layers]
        self._numbers = frozen(np.array(parameters, np.float32))
        self._inner = layers[0].weights.shape[0]
        self._outer = layers[-1].weights.shape[1]
        self._widest = 2 * max(layer.weights.shape[1] for layer in layers)
        self._work = sum(layer.weights.size for layer in layers)
        RUN_LAYERS.request()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle its parts, because its table has addresses."""
        return LayersCall, self._made_of

    def __call__(self, x: Any, *constants: Any) -> Any:
        """Return a launch, or what numpy computes."""
        run = RUN_LAYERS.run
        if run is None or x.dtype != F32 or x.ndim != 2 or x.shape[1] != self._inner or not x.size:
            return self._plain(x, *constants)
        rows = x.shape[0]
        team = self._threads if rows * self._work > SERIAL_PRODUCTS else 1
        grain = -(-rows // (team * -(-rows // (team * MAX_TASK_ROWS))))
        share = share_of(WORKSPACE + grain * self._widest)
        y = empty((rows, self._outer))
        memory = worker_floats(share, team)
        arguments = contiguous(x), self._table, self._numbers, memory, share, y, grain, team
        return Launch(run, arguments, y)


def _line(layer: DenseLayer) -> tuple[int, ...]:
    weights, bias = layer.weights, layer.bias
    down, across = weights.strides
    start = 0 if bias is None else bias.ctypes.data
    return (weights.ctypes.data, down, across, weights.shape[1], start, layer.finish.code)
