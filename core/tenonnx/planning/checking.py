"""The checking mode: what every step makes, held against the same nodes alone on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenonnx.errors import CheckFailed, TenonnxError
from tenonnx.graph import has_bodies
from tenonnx.graph.traits import RANDOM
from tenonnx.graph.values import ValueInfo, node_info
from tenonnx.planning.device_arrays import downloaded
from tenonnx.planning.differences import Limits, differences, limits_of, range_of
from tenonnx.planning.placement import PlacedControl, PlacedGraph
from tenonnx.planning.program import Block, Control, Program, constant_on
from tenonnx.planning.reference import run_step, step_on_host
from tenonnx.provider import HOST, Device, Provider, Step

if TYPE_CHECKING:
    import onnx_ir as ir

# Nodes of a step that an error names; it counts the others.
MAX_NODES = 3


def checked(
    program: Program,
    placed: PlacedGraph,
    hosts: Sequence[Provider],
    tolerances: Mapping[str, float | tuple[float, float]],
) -> Program:
    """Return a program whose steps are checked after each call.

    Args:
        program: What a placed graph was lowered to, where the same infos are made of its values.
        placed: The graph.
        hosts: Providers on the host, the first of which to run a node says what it computes.
        tolerances: Of nodes; see ``differences.limits_of``.
    """
    references, owners, limits = {}, {}, {}
    for node, owner in _nodes(placed):
        info = node_info(node)
        owners[info.id] = owner
        own = limits_of(tolerances, info.name, info.op_type)
        limits.update(dict.fromkeys(filter(None, info.outputs), own))
        # Random operators draw other numbers there, and bodies are checked node by node.
        if node.op_type not in RANDOM and not has_bodies(node):
            references[info.id] = step_on_host(node, hosts)
    check = Checks(references, owners, limits)
    return Program(program.inputs, program.outputs, check.block(program.block), program.homes)


def _nodes(placed: PlacedGraph) -> Iterator[tuple[ir.Node, str]]:
    yield from ((node, provider) for node, provider, _ in placed.places)
    for item in placed.items:
        if isinstance(item, PlacedControl):
            for body in item.bodies.values():
                yield from _nodes(body)


class Checks:
    """References that steps are held against.

    Args:
        references: The step of each node alone on the host, by the node's number.
        owners: The provider of each node.
        limits: The tolerances of values.
    """

    def __init__(
        self,
        references: Mapping[int, Step | None],
        owners: Mapping[int, str],
        limits: Mapping[ValueInfo, Limits],
    ) -> None:
        self._references, self._owners = references, owners
        self.limits = limits

    def block(self, block: Block) -> Block:
        """Return a block whose steps are checked."""
        items: list[Step | Control] = []
        for item in block.items:
            if isinstance(item, Step):
                items.append(self.step(item))
            else:
                bodies = {name: self.block(body) for name, body in item.bodies.items()}
                own = item.step and self.step(item.step)
                items.append(item._replace(bodies=bodies, step=own))
        return Block.of(block.graph, items)

    def step(self, step: Step) -> Step:
        """Return a step that is checked."""
        return step.replaced(call=CheckedCall(step, self), nodes=step.nodes, parts=())

    def expected(self, step: Step, values: dict[ValueInfo, Any]) -> dict[ValueInfo, Any]:
        """Return what the nodes of a step make of its inputs, as far as the host runs them."""
        known = dict(values)
        for node in step.nodes:
            reference = self._references.get(node.id)
            reads = () if reference is None else [v for v in reference.inputs if v is not None]
            known.update((v, constant_on(v, HOST)) for v in reads if v.constant is not None)
            if reference is not None and all(value in known for value in reads):
                known.update(run_step(reference, known))
        return known

    def label(self, step: Step) -> str:
        """Return the names of a step's nodes and their provider."""
        names = ", ".join(node.label for node in step.nodes[:MAX_NODES])
        more = f" and {len(step.nodes) - MAX_NODES} more" if len(step.nodes) > MAX_NODES else ""
        owner = self._owners.get(step.nodes[0].id, "the runtime") if step.nodes else "?"
        return f"{names}{more} on {owner}"


class CheckedCall:
    """A step's call, and the check of what it returns.

    Args:
        step: The step.
        checks: What to hold it against.

    Attributes:
        function: The step's call.
    """

    def __init__(self, step: Step, checks: Checks) -> None:
        self.function = step.call
        self._step, self._checks = step, checks

    def __call__(self, *inputs: Any, **bodies: Any) -> Any:
        """Run the step, then check its outputs.

        Raises:
            CheckFailed: One is not what the model says, or not what the nodes compute.
        """
        step = self._step
        # Copies: a step may write where its inputs are.
        given = {
            value: _copied(array, step.device_of_input(position))
            for position, (value, array) in enumerate(zip(step.inputs, inputs, strict=True))
            if value is not None
        }
        made = self.function(*inputs, **bodies)
        self._check(given, tuple(made) if step.multiple else (made,))
        return made

    def _check(self, given: dict[ValueInfo, Any], outputs: Sequence[Any]) -> None:
        step = self._step
        expected = {} if step.bodies else self._checks.expected(step, given)
        wrong = self._first_wrong(outputs, expected, nan=_has_nan(given.values()))
        if wrong is None:
            return
        self._check_parts(given)
        read = "; ".join(_described(value, array) for value, array in given.items())
        raise CheckFailed(
            f"{self._checks.label(step)}: {wrong}; it read {read or 'nothing'}",
            hint="`tenonnx check` and `tenonnx reduce` show it alone, in the smallest model",
        )

    def _first_wrong(
        self, outputs: Sequence[Any], expected: Mapping[ValueInfo, Any], *, nan: bool
    ) -> str | None:
        """Return what is wrong with the first output that is; ``None`` if all are right."""
        step, device = self._step, self._step.device_of_outputs
        if len(outputs) < len(step.outputs):
            return f"it returned {len(outputs)} of {len(step.outputs)} outputs"
        for value, output in zip(step.outputs, outputs, strict=False):
            try:
                found = output if device is HOST else _copied(output, device)
            except Exception as error:  # a stranger's code may raise anything
                said = error.args[0] if isinstance(error, TenonnxError) else error
                return f"'{value.name}' is no array of {device.id}: {type(error).__name__}: {said}"
            wrong = _unlike(value, found, device)
            if wrong is None and value in expected:
                limits = self._checks.limits.get(value, (None, None))
                (row,) = differences([f"'{value.name}'"], [found], [expected[value]], *limits)
                wrong = None if row.agrees else row.sentence(found)
            elif wrong is None and _has_nan([found]) and not nan:
                # No host computes the node: NaN out of numbers is the only sign of a fault.
                wrong = f"'{value.name}' has NaN, and what it was made of has none"
            if wrong:
                return wrong
        return None

    def _check_parts(self, given: Mapping[ValueInfo, Any]) -> None:
        """Run the parts of a step that is wrong, so that the first wrong one names itself."""
        known = dict(given)
        for part in self._step.parts:
            reads = [v for v in part.inputs if v is not None]
            known.update((v, constant_on(v, HOST)) for v in reads if v.constant is not None)
            there = [
                None if v is None else _moved(known[v], part.device_of_input(i).upload)
                for i, v in enumerate(part.inputs)
            ]
            made = CheckedCall(part, self._checks)(*there)
            each, home = tuple(made) if part.multiple else (made,), part.device_of_outputs
            known.update((v, _copied(a, home)) for v, a in zip(part.outputs, each, strict=False))


def _moved(value: Any, move: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_moved(each, move) for each in value]
    return value if value is None else move(value)


def _copied(value: Any, device: Device) -> Any:
    """Return a copy on the host of what is on a device."""
    return _moved(value, lambda array: np.array(downloaded(device, array)))


def _unlike(value: ValueInfo, found: Any, device: Device) -> str | None:
    """Return why what was found is not what the model says of a value."""
    if isinstance(found, list | dict) or found is None:
        return None  # a sequence, a map or an absent optional, of whose elements nothing is said
    if not isinstance(found, np.ndarray | np.generic):
        return f"'{value.name}' is a {type(found).__name__}, no array of {device.id}"
    words = value.dtype is None or value.dtype.kind in "OSUT"
    if not words and found.dtype != value.dtype:
        return f"'{value.name}' is {found.dtype}; the model says {value.dtype}"
    sizes = value.shape
    if sizes is not None and (
        len(sizes) != found.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(sizes, found.shape, strict=True))
    ):
        return f"the shape of {value} is {list(found.shape)}"
    return None


def _has_nan(arrays: Iterable[Any]) -> bool:
    floats = (a for a in arrays if isinstance(a, np.ndarray) and a.dtype.kind in "fVc")
    return any(bool((a != a).any()) for a in floats)


def _described(value: ValueInfo, array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return f"'{value.name}' {type(array).__name__}"
    span = range_of(array)
    return f"'{value.name}' {array.dtype}{list(array.shape)}" + (f" {span}" if span else "")
