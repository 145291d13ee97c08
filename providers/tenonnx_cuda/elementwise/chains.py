"""Chains of elementwise operators as one kernel, whose source is written for the chain."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx.planning.anchors import Part, Walk
from tenonnx.planning.fusion import inputs_of
from tenonnx_cuda.conv import layouts
from tenonnx_cuda.elementwise.expressions import MICROSOFT_DOMAIN, expression, pays_alone
from tenonnx_cuda.elementwise.formulas import COMPOUND, MICROSOFTS, SIMPLE
from tenonnx_cuda.fuse import ELEMENTWISE_CHAINS, Fused, Scope, fusion
from tenonnx_cuda.kernel_selection import same_element
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import THREADS_PER_BLOCK, Kernel, blocks, header, is_aligned

if TYPE_CHECKING:
    import onnx_ir as ir

MOST_INPUTS: Final = 8
MAX_CHAIN_ELEMENTS: Final = 2**32 - 8 * THREADS_PER_BLOCK

# Elements from which on threads are busy with several.
MIN_WIDE_ELEMENTS: Final = 1 << 17


@dataclass(frozen=True)
class Chain:
    """Nodes of which each reads the one before, and nobody else reads that.

    Attributes:
        nodes: In order.
        inputs: Values from outside, each once.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]

    @property
    def source(self) -> str:
        """The kernel. Input i has ``ni`` elements, and is read as HOWi says.

        Every result is rounded to the element type, as it would be on its way through memory.
        """
        names = {value: f"x{i}" for i, value in enumerate(self.inputs)}
        count = range(len(self.inputs))
        parameters = "".join(f"const T* p{i}, unsigned n{i}, " for i in count)
        reads = [f"    const pack v{i} = read<HOW{i}>(p{i}, first, n{i});" for i in count]
        lines = [f"        const float x{i} = number(v{i}.each[e]);" for i in count]
        for number, node in enumerate(self.nodes):
            operands = [names[value] for value in node.inputs if value is not None]
            text = (expression(node) or "").format(*operands)
            lines.append(f"        const float y{number} = rounded({text}, y);")
            names[node.outputs[0]] = f"y{number}"
        lines.append(f"        put(&made.each[e], y{len(self.nodes) - 1});")
        return "\n".join([
            f'extern "C" __global__ void chain({parameters}T* y, unsigned count) {{',
            "    follow();",
            "    const unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;",
            "    if (first >= count) return;",
            *reads,
            "    pack made;",
            "#pragma unroll",
            "    for (int e = 0; e < WIDTH; ++e) {",
            *lines,
            "    }",
            "    *(pack*)(y + first) = made;",
            "}\n",
        ])  # fmt: skip


def _link(node: ir.Node, walk: Walk[Scope]) -> ir.Node | str:
    if expression(node) is None:
        return "no expression stands for it"
    many = len(inputs_of((*walk.nodes, node))) > MOST_INPUTS
    return f"a kernel reads {MOST_INPUTS} arrays" if many else node


HERE = (*SIMPLE, *COMPOUND)
LINK = Part(
    "link", (*HERE, *(f"{MICROSOFT_DOMAIN}::{n}" for n in MICROSOFTS)), _link, many=True, again=True
)


@fusion(*HERE, priority=ELEMENTWISE_CHAINS, takes=(LINK,))
@fusion(*MICROSOFTS, domain=MICROSOFT_DOMAIN, priority=ELEMENTWISE_CHAINS, takes=(LINK,))
def fuse_chain(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a chain of at least two nodes, or one that pays alone."""
    if expression(node) is None:
        return None
    nodes = scope.follow(node).nodes
    if len(nodes) < 2 and not pays_alone(node):
        return None
    chain = Chain(nodes, inputs_of(nodes))
    free = layouts.may_choose(nodes[-1])
    call = functools.partial(chained, scope.target.platform, whole(chain), free)
    return Fused(nodes, chain.inputs, (nodes[-1].outputs[0],), call)


def whole(chain: Chain) -> str:
    """Return a chain's source as it is compiled."""
    headers = ("common", "elementwise/activations", "elementwise/packs")
    return "".join(map(header, headers)) + chain.source


def width(arrays: Sequence[Array], periods: Sequence[int], count: int) -> int:
    """Return how many elements a thread takes: 16 bytes of many that lie evenly."""
    wide = 16 // arrays[0].dtype.itemsize
    even = all(period % wide == 0 for period in (*periods, count) if period > 1)
    return wide if count >= MIN_WIDE_ELEMENTS and even and is_aligned(*arrays) else 1


def chained(platform: Platform, text: str, free: bool, *operands: Array) -> Array | None:
    """Return what a chain computes; ``None`` where its kernel does not fit.

    Args:
        platform: The device.
        text: The kernel's source.
        free: Whether the result may have its channels last.
        operands: The chain's inputs.
    """
    turned = layouts.turned(operands) if free else None
    arrays = operands if turned is None else turned
    element = same_element(*arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    found = [repeats(array.shape, shape) for array in arrays]
    periods = [period for period in found if period is not None]
    count = math.prod(shape)
    if element is None or len(periods) < len(found) or not 0 < count <= MAX_CHAIN_ELEMENTS:
        return None
    xp = platform.xp
    y = xp.empty(shape, arrays[0].dtype)
    given = [xp.ascontiguousarray(array) for array in arrays]
    each = width(given, periods, count)
    hows = ["ALL" if n == count else "ALWAYS" if n == 1 else "AGAIN" for n in periods]
    reads = (f"-DHOW{i}={how}" for i, how in enumerate(hows))
    options = (f"-DT={element}", f"-DWIDTH={each}", *reads)
    launch = Kernel(platform.compile(text, "chain", options))
    pairs = (v for a, n in zip(given, periods, strict=True) for v in (a, np.uint32(n)))
    launch(blocks(-(-count // each)), (THREADS_PER_BLOCK,), (*pairs, y, np.uint32(count)))
    return y if turned is None else layouts.first(y)


def repeats(shape: tuple[int, ...], whole: tuple[int, ...]) -> int | None:
    """Return after how many elements an array of a shape begins anew in one it broadcasts to.

    ``None`` if it does not repeat as a whole, as a column does not in a matrix.
    """
    inner = list(shape)
    while inner and inner[0] == 1:
        inner.pop(0)
    tail = whole[len(whole) - len(inner) :]
    return math.prod(inner) if tuple(inner) == tuple(tail) else None
