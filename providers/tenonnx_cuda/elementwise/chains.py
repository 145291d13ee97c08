"""Chains of elementwise operators as one kernel, whose source is written for the chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tenonnx.operators import Array
from tenonnx.planning.lower import is_constant
from tenonnx.provider import Device, Step
from tenonnx_cuda.chosen import same_element
from tenonnx_cuda.elementwise.expressions import expression, pays_alone
from tenonnx_cuda.graphs.grouping import Group
from tenonnx_cuda.graphs.program import Program, constant_on
from tenonnx_cuda.images import layouts
from tenonnx_cuda.platform import Platform
from tenonnx_cuda.sources import THREADS, blocks, common, header, is_aligned

if TYPE_CHECKING:
    import onnx_ir as ir

MOST_INPUTS: Final = 8
LARGEST: Final = 2**32 - 8 * THREADS

MANY: Final = 1 << 17
"""Elements from which on threads are busy with several."""


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


def chains(
    nodes: Sequence[ir.Node], escaping: frozenset[ir.Value], is_free: Callable[[ir.Node], bool]
) -> Iterator[Chain]:
    """Yields chains of at least two nodes, or of one that pays alone; no node is in two of them.

    Args:
        nodes: In an order in which they can run.
        escaping: Values that something outside the nodes reads.
        is_free: Whether a node may be computed otherwise than by the kernel it has.
    """
    taken: set[ir.Node] = set()
    for node in nodes:
        if node in taken or expression(node) is None or not is_free(node):
            continue
        found = [node]
        while (following := only_reader(found[-1], escaping)) is not None:
            longer = [*found, following]
            fits = expression(following) is not None and following not in taken
            if not fits or not is_free(following) or len(_inputs(longer)) > MOST_INPUTS:
                break
            found = longer
        if len(found) > 1 or pays_alone(node):
            taken.update(found)
            yield Chain(tuple(found), _inputs(found))


def only_reader(node: ir.Node, escaping: frozenset[ir.Value]) -> ir.Node | None:
    """Returns the node that reads another's first output, if nobody else does."""
    readers = set(node.outputs[0].consumers())
    return readers.pop() if len(readers) == 1 and node.outputs[0] not in escaping else None


def _inputs(nodes: Sequence[ir.Node]) -> tuple[ir.Value, ...]:
    made = {node.outputs[0] for node in nodes}
    read = (value for node in nodes for value in node.inputs)
    return tuple(dict.fromkeys(v for v in read if v is not None and v not in made))


def whole(chain: Chain) -> str:
    """Returns a chain's source as it is compiled."""
    return common() + header("activations") + header("packs") + chain.source


def width(arrays: Sequence[Array], periods: Sequence[int], count: int) -> int:
    """Returns how many elements a thread takes: 16 bytes of many that lie evenly."""
    wide = 16 // arrays[0].dtype.itemsize
    even = all(period % wide == 0 for period in (*periods, count) if period > 1)
    return wide if count >= MANY and even and is_aligned(*arrays) else 1


def chain_step(chain: Chain, steps: Sequence[Step], platform: Platform, device: Device) -> Step:
    """Returns a chain as one step; where its kernel does not fit, the steps of its nodes run."""
    group = Group()
    for step in steps:
        group.add(step)
    output = chain.nodes[-1].outputs[0]
    program = Program(group, (output,))
    given = [value for value, _ in program.inputs]
    constants = {v: constant_on(v, device) for v in chain.inputs if is_constant(v)}
    text = whole(chain)
    free = layouts.may_choose(chain.nodes[-1])

    def call(*arrays: Array) -> Array:
        values = {**constants, **dict(zip(given, arrays, strict=True))}
        operands = [values[value] for value in chain.inputs]
        turned = layouts.turned(operands) if free else None
        operands = operands if turned is None else turned
        element = same_element(*operands)
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        found = [repeats(operand.shape, shape) for operand in operands]
        periods = [period for period in found if period is not None]
        count = int(np.prod(shape, dtype=np.int64))
        if element is None or len(periods) < len(found) or not 0 < count <= LARGEST:
            return program(*arrays)[0]
        y = platform.xp.empty(shape, operands[0].dtype)
        operands = [platform.xp.ascontiguousarray(operand) for operand in operands]
        each = width(operands, periods, count)
        hows = ["ALL" if n == count else "ALWAYS" if n == 1 else "AGAIN" for n in periods]
        options = (f"-DHOW{i}={how}" for i, how in enumerate(hows))
        launch = platform.compile(text, "chain", (f"-DT={element}", f"-DWIDTH={each}", *options))
        pairs = (v for a, n in zip(operands, periods, strict=True) for v in (a, np.uint32(n)))
        launch(blocks(-(-count // each)), (THREADS,), (*pairs, y, np.uint32(count)))
        return y if turned is None else layouts.first(y)

    return Step(call, tuple(given), (output,), chain.nodes, device=device)


def repeats(shape: tuple[int, ...], whole: tuple[int, ...]) -> int | None:
    """Returns after how many elements an array of a shape begins anew in one it broadcasts to.

    ``None`` if it does not repeat as a whole, as a column does not in a matrix.
    """
    inner = list(shape)
    while inner and inner[0] == 1:
        inner.pop(0)
    tail = whole[len(whole) - len(inner) :]
    return int(np.prod(inner, dtype=np.int64)) if tuple(inner) == tuple(tail) else None
