"""Arithmetic on shapes: done once for inputs of the same shapes, and looked up from then on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.by_name import cacheable
from tenonnx.graph.values import value_info, value_infos
from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST, Step
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, fix

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.planning.compound import Compound


def shape_cache(
    nodes: Sequence[ir.Node], steps: Sequence[Step], plain: Callable[[ir.Node], Step]
) -> list[Step]:
    """Return steps with those in between that compute what depends on shapes alone.

    Args:
        nodes: What is computed on shapes.
        steps: All other steps, in order.
        plain: Returns a node's step on array kernels.
    """
    asked: dict[ir.Value, set[ir.Value]] = {}
    below: dict[ir.Value, set[ir.Node]] = {}
    for node in nodes:
        given = [value for value in node.inputs if value is not None and not is_constant(value)]
        output = node.outputs[0]
        asked[output] = set().union(*(asked.get(value, {value}) for value in given))
        below[output] = {node}.union(*(below.get(value, ()) for value in given))
    inner = set(nodes)
    made = {value: place for place, step in enumerate(steps, 1) for value in step.outputs}
    groups: dict[int, list[ir.Value]] = {}
    for value, sources in asked.items():
        if any(user not in inner for user in value.consumers()):
            groups.setdefault(max(made.get(value_info(each), 0) for each in sources), []).append(
                value
            )
    result: list[Step] = []
    for place in range(len(steps) + 1):
        result += steps[place - 1 : place] if place else []
        if place in groups:
            wanted = groups[place]
            inputs = dict.fromkeys(each for value in wanted for each in asked[value])
            taken = set().union(*(below[value] for value in wanted))
            part = [node for node in nodes if node in taken]
            result.append(_step(part, tuple(inputs), wanted, plain))
    return result


def _step(
    nodes: Sequence[ir.Node],
    asked: tuple[ir.Value, ...],
    wanted: Sequence[ir.Value],
    plain: Callable[[ir.Node], Step],
) -> Step:
    from tenonnx.planning.compound import Compound

    given = [(value, HOST) for value in value_infos(asked)]
    compute = Compound([plain(node) for node in nodes], given, value_infos(wanted))

    call = functools.partial(_fixed, compute)
    return Step(
        call=Capturable(call, call, each_length=True),
        inputs=asked,
        outputs=tuple(wanted),
        nodes=tuple(nodes),
        multiple=len(wanted) > 1,
    )


@cacheable
def _fixed(compute: Compound, *inputs: Any) -> Launch:
    """Compute with shapes; the results never change."""
    results = tuple(map(fix, compute(*inputs)))
    return Launch(None, (), results if len(results) > 1 else results[0])
