"""Code for If, Loop, Scan and SequenceMap: Python's own branches and loops; and for bodies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tenonnx.errors import InvalidGraph, NotSupported
from tenonnx.graph.values import NodeInfo, ValueInfo
from tenonnx.planning import control
from tenonnx.planning.program import Control
from tenonnx.provider import HOST, Body, Device, Step

if TYPE_CHECKING:
    from tenonnx.planning.codegen import Generator

# Loops inside each other. CPython compiles at most 20 nested blocks; Scan-8 takes two.
MAX_LOOPS = 9

# Conditions of bodies: models declare scalars, or rows of one element.
TRUE, TRUE_ROW = np.array(True), np.array([True])


def assign(g: Generator, names: Sequence[str], values: Sequence[str]) -> None:
    """Assign all at once, so that a name may stand on both sides."""
    g.line(f"{', '.join(names)} = {', '.join(values)}" if names else "pass")


@contextmanager
def loop(g: Generator, header: str) -> Iterator[None]:
    """Write a loop; observers are called in every iteration, and can stop it."""
    if g.loops >= MAX_LOOPS:
        raise NotSupported(f"loops are nested deeper than {MAX_LOOPS}")
    g.loops += 1
    with g.indented(header):
        g.watch_iteration()
        yield
    g.loops -= 1


def homes_of(g: Generator, node: NodeInfo, count: int) -> list[Device]:
    """Return where a node's outputs are to be; the host for outputs it does not name."""
    homes = [g.home_of(output) for output in node.outputs]
    return homes + [HOST] * (count - len(homes))


def start_lists(g: Generator, count: int) -> list[str]:
    """Start empty lists that collect one value per iteration."""
    names = [g.fresh("l") for _ in range(count)]
    for name in names:
        g.line(f"{name} = []")
    return names


def enter(
    g: Generator, values: Sequence[ValueInfo], names: Sequence[str], homes: Sequence[Device]
) -> None:
    """Define a body's inputs from variables; its own variables may then be dropped in it."""
    for value, name, home in zip(values, names, homes, strict=True):
        g.settle(value, home)
        g.line(f"{g.define(value, home)} = {name}")


def leave(
    g: Generator,
    values: Sequence[ValueInfo],
    carried: Sequence[str],
    lists: Sequence[str],
    homes: Sequence[Device],
) -> None:
    """End an iteration: carry the state on and collect the scan outputs."""
    results = [g.fetch(value, home) for value, home in zip(values, homes, strict=True)]
    assign(g, carried, results[: len(carried)])
    for name, result in zip(lists, results[len(carried) :], strict=True):
        g.line(f"{name}.append({result})")


def emit_if(g: Generator, item: Control) -> None:
    """If: both branches assign the same variables."""
    node = item.node
    homes = homes_of(g, node, len(node.outputs))
    names = [g.fresh("v") for _ in node.outputs]
    condition = g.call(control.truth, g.fetch(node.inputs[0], HOST))
    for header, branch in ((f"if {condition}:", "then_branch"), ("else:", "else_branch")):
        with g.indented(header):
            body = item.bodies[branch]
            g.emit_block(body)
            outputs = zip(body.graph.outputs, homes, strict=True)
            assign(g, names, [g.fetch(value, home) for value, home in outputs])
    for output, home, name in zip(node.outputs, homes, names, strict=True):
        g.define(output, home, name)


def emit_loop(g: Generator, item: Control) -> None:
    """Loop: inputs are the trip count, the first condition and the state."""
    node, body = item.node, item.bodies["body"].graph
    trip, start, *initial = [*node.inputs, None, None][: max(len(node.inputs), 2)]
    homes = homes_of(g, node, len(body.outputs) - 1)
    carried = [g.fresh("v") for _ in initial]
    assign(g, carried, [g.fetch(v, h) for v, h in zip(initial, homes, strict=False)])
    lists = start_lists(g, len(homes) - len(carried))
    going, number = g.fresh("g"), g.fresh("n")
    begin = "True" if start is None else g.call(control.truth, g.fetch(start, HOST))
    g.line(f"{going} = {begin}")
    count = g.call(control.iterations, g.fetch(trip, HOST))
    with loop(g, f"for {number} in {count}:"):
        # At the beginning, since a first condition that is false allows no iteration.
        g.line(f"if not {going}: break")
        index, condition, *state = body.inputs
        if item.bodies["body"].is_read(index):
            make = control.iteration_numbers if index.shape else control.iteration_number
            g.line(f"{g.define(index, HOST)} = {g.call(make, number)}")
        g.line(f"{g.define(condition, HOST)} = {_true(g, condition, start)}")
        enter(g, state, carried, homes[: len(carried)])
        g.emit_block(item.bodies["body"])
        g.line(f"{going} = {g.call(control.truth, g.fetch(body.outputs[0], HOST))}")
        leave(g, body.outputs[1:], carried, lists, homes)
    scanned = body.outputs[1 + len(carried) :]
    stacks = [control.stacker(h, v) for v, h in zip(scanned, homes[len(carried) :], strict=True)]
    finish(g, node, carried, lists, stacks)


def _true(g: Generator, condition: ValueInfo, start: ValueInfo | None) -> str:
    """Return a true condition of the rank that a body declares, or else of the first one's."""
    if condition.shape is None and start is not None:
        return g.fetch(start, HOST)
    return g.bind("c", TRUE_ROW if condition.shape else TRUE)


def finish(
    g: Generator,
    node: NodeInfo,
    carried: Sequence[str],
    lists: Sequence[str],
    stacks: Sequence[Callable[..., object]],
) -> None:
    """Turn a loop's variables into the node's outputs."""
    results = [*carried]
    results += (g.call(stack, name) for stack, name in zip(stacks, lists, strict=True))
    for output, result in zip(node.outputs, results, strict=False):
        g.line(f"{g.define(output, g.home_of(output))} = {result}")


def emit_scan(g: Generator, item: Control) -> None:
    """Scan from version 9 on, and version 8 by way of a loop over the batch."""
    if (item.node.version or 9) < 9:
        emit_batched_scan(g, item)
        return
    node, body = item.node, item.bodies["body"].graph
    count = item.attributes["num_scan_inputs"]
    states = len(node.inputs) - count
    homes = homes_of(g, node, len(body.outputs))
    carried = [g.fresh("v") for _ in range(states)]
    initial = zip(node.inputs[:states], homes, strict=False)
    assign(g, carried, [g.fetch(value, home) for value, home in initial])
    axes, reverse = ints(item, "scan_input_axes", count), ints(item, "scan_input_directions", count)
    views = [
        g.call(control.slices, g.fetch(value, HOST), f"{axes[i]:d}", f"{reverse[i]:d}")
        for i, value in enumerate(node.inputs[states:])
    ]
    lists = scan_loop(g, item, carried, views, homes)
    out_axes = ints(item, "scan_output_axes", len(lists))
    out_reverse = ints(item, "scan_output_directions", len(lists))
    stacks = [
        control.stacker(homes[states + i], value, out_axes[i], bool(out_reverse[i]))
        for i, value in enumerate(body.outputs[states:])
    ]
    finish(g, node, carried, lists, stacks)


def scan_loop(
    g: Generator,
    item: Control,
    carried: Sequence[str],
    views: Sequence[str],
    homes: Sequence[Device],
) -> list[str]:
    """Write the loop over the slices of the scan inputs; return the lists it fills."""
    body = item.bodies["body"].graph
    states = len(carried)
    lists = start_lists(g, len(body.outputs) - states)
    items = [g.fresh("v") for _ in views]
    with loop(g, f"for {', '.join(items)}, in {g.call(control.same_length, *views)}:"):
        enter(g, body.inputs[:states], carried, homes[:states])
        enter(g, body.inputs[states:], items, [HOST] * len(items))
        g.emit_block(item.bodies["body"])
        leave(g, body.outputs, carried, lists, homes)
    return lists


def emit_batched_scan(g: Generator, item: Control) -> None:
    """Scan-8: every input has a batch axis in front, and sequences may differ in length."""
    node, body = item.node, item.bodies["body"].graph
    count = item.attributes["num_scan_inputs"]
    lengths, *inputs = [g.fetch(value, HOST) for value in node.inputs]
    states = len(inputs) - count
    reverse = ints(item, "directions", count)
    homes = [HOST] * len(body.outputs)
    totals = start_lists(g, len(body.outputs))
    entry = g.fresh("n")
    with loop(g, f"for {entry} in range({g.call(control.batch_size, *inputs)}):"):
        carried = [g.fresh("v") for _ in range(states)]
        assign(g, carried, [f"{name}[{entry}, ...]" for name in inputs[:states]])
        views = [
            g.call(control.batch_slices, name, entry, lengths, f"{reverse[i]:d}")
            for i, name in enumerate(inputs[states:])
        ]
        lists = scan_loop(g, item, carried, views, homes)
        for total, name in zip(totals, carried, strict=False):
            g.line(f"{total}.append({name})")
        for total, name, value in zip(totals[states:], lists, body.outputs[states:], strict=True):
            g.line(f"{total}.append({g.call(control.stacker(HOST, value), name)})")
    for output, total in zip(node.outputs, totals, strict=False):
        g.settle(output, HOST)
        g.line(f"{g.define(output, HOST)} = {g.call(control.join_batch, total)}")


def emit_sequence_map(g: Generator, item: Control) -> None:
    """SequenceMap: the outputs are the lists themselves."""
    node, body = item.node, item.bodies["body"].graph
    homes = homes_of(g, node, len(body.outputs))
    lists = start_lists(g, len(body.outputs))
    items = [g.fresh("v") for _ in node.inputs]
    sources = g.call(control.sequence_items, *(g.fetch(v, HOST) for v in node.inputs))
    with loop(g, f"for {', '.join(items)}, in {sources}:"):
        enter(g, body.inputs, items, [HOST] * len(items))
        g.emit_block(item.bodies["body"])
        leave(g, body.outputs, (), lists, homes)
    for output, home, name in zip(node.outputs, homes, lists, strict=False):
        g.define(output, home, name)


def bodies(g: Generator, item: Control, step: Step) -> list[str]:
    """Write the bodies that a step calls as functions; return its keyword arguments.

    They are closures, so they too read the outer graph's values where they are.
    """
    device = HOST if step.host == "all" else step.device
    keywords = []
    for name in step.bodies:
        body = item.bodies[name]
        parameters = []
        for value in body.graph.inputs:
            g.settle(value, device)
            parameters.append(g.fresh("v"))
        function = g.fresh("body")
        outside, g.loops = g.loops, 0  # CPython counts nested blocks in each function anew
        with g.indented(f"def {function}({', '.join(parameters)}):"):
            for value, parameter in zip(body.graph.inputs, parameters, strict=True):
                g.define(value, device, parameter)
            g.watch_iteration()
            g.emit_block(body)
            results = [g.fetch(value, device) for value in body.graph.outputs]
            g.line(f"return ({''.join(result + ', ' for result in results)})")
        g.loops = outside
        if not name.isidentifier():
            raise InvalidGraph(f"no attribute is called {name!r}")
        keywords.append(f"{name}={g.call(functools.partial(Body, body.graph), function)}")
    return keywords


def ints(item: Control, name: str, count: int) -> Sequence[int]:
    """Return an attribute of ints; zeros when it is absent."""
    found: Sequence[int] = item.attributes.get(name, [0] * count)
    return found


EMITTERS: dict[str, Callable[[Generator, Control], None]] = {
    "If": emit_if,
    "Loop": emit_loop,
    "Scan": emit_scan,
    "SequenceMap": emit_sequence_map,
}
