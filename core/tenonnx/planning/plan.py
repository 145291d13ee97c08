"""A compiled model: the function that runs it, and who watches it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from tenonnx import errors
from tenonnx.planning import bound as binding
from tenonnx.planning.quiet import quietly
from tenonnx.process.interruption import Stopped, check, lines, raised_by_handler
from tenonnx.process.later import Later
from tenonnx.provider import Device, Step

if TYPE_CHECKING:
    from tenonnx.graph.values import NodeInfo
    from tenonnx.planning.on_devices import RunOnDevices
    from tenonnx.planning.placement import PlacedGraph, Placement
    from tenonnx.planning.program import Program

_numbers = itertools.count()


class GeneratedCode(NamedTuple):
    """A function that was generated.

    Attributes:
        run: The function.
        compiled: Its code, for ``exec`` in a namespace.
        namespace: The values of its global names.
        origin: The step or node that each line came from.
        source: Its text.
    """

    run: Callable[..., tuple[Any, ...]]
    compiled: CodeType
    namespace: dict[str, Any]
    origin: dict[int, Step | NodeInfo]
    source: str


class Observer(Protocol):
    """An observer of a plan's runs. Exceptions it raises stop the run and reach its caller."""

    def on_step(self, step: Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        """Called after a step; with ``None`` in every iteration of a loop.

        Args:
            step: The step, whose ``nodes`` and ``outputs`` name what it computed.
            start_ns: When it started, in nanoseconds of ``time.perf_counter_ns``.
            outputs: Its outputs, where the step left them; not to be changed or kept.
        """


class Plan:
    """A program that runs. Any number of threads may run one plan at once.

    Args:
        program: The steps.
        placement: The ``Placement`` of the program's nodes.
        threads: How many numpy's products may use; ``None`` leaves it to them.

    Attributes:
        program: The steps.
    """

    def __init__(self, program: Program, placement: Later, threads: int | None = None) -> None:
        self.program, self._placement = program, placement
        self._quietly: Callable[..., Any] = quietly
        if threads is not None:
            from tenonnx.planning.blas import bounded

            self._quietly = bounded(threads)
        self._filename = f"<tenonnx plan {next(_numbers)}>"
        self._start()

    @classmethod
    def of(cls, placed: PlacedGraph, threads: int | None = None) -> Plan:
        """Return the plan of a placed graph, compiled."""
        from tenonnx.planning.lower import lower

        program, placement = lower(placed)
        return cls(program, Later(placement), threads)

    @property
    def placement(self) -> Placement:
        """The provider of each node, and the reasons."""
        found: Placement = self._placement.open()
        return found

    def _start(self) -> None:
        self._reset(self._generate())

    def _reset(self, code: GeneratedCode) -> None:
        self._code = code
        self._watched: GeneratedCode | None = None
        self._binding: GeneratedCode | None = None
        self._watcher: Callable[[GeneratedCode], GeneratedCode] | None = None
        self._direct: Sequence[binding.DirectOutput] = ()
        self._on_devices: dict[tuple[object, ...], RunOnDevices] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step, in subgraphs too; those of one that has parts."""
        return tuple(self.program.apart().block.steps())

    @property
    def source(self) -> str:
        """The code that runs."""
        return self._code.source

    def narrowed(self, positions: Sequence[int]) -> Plan:
        """Return a plan of the same steps that computes some of the outputs, and no more."""
        import copy

        plan = copy.copy(self)
        outputs = [self.program.outputs[position] for position in positions]
        plan.program = self.program.narrowed(outputs)
        plan._start()
        return plan

    def _generate(self, program: Program | None = None, **how: Any) -> GeneratedCode:
        from tenonnx.planning.codegen import Generator

        return Generator(program or self.program, **how).code(self._filename)

    def _call(self, code: GeneratedCode, arguments: Sequence[Any]) -> Any:
        """Run the code; what a node raises comes with the node's name."""
        try:
            return self._quietly(code.run, arguments)
        except Exception as error:
            explained = self._explain(error, code)
            if explained is error:
                raise
            raise explained from error

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs for the inputs, both in the graph's order, on the host.

        Outputs never share memory with the inputs; they may be views of weights, read-only.

        Args:
            inputs: Numpy arrays of the declared dtypes and ranks, which are not checked again.

        Raises:
            RuntimeException: A node failed; the message names it.
        """
        return settled(self._call(self._code, inputs), inputs)

    def run_observed(self, inputs: Sequence[Any], observers: Sequence[Observer]) -> list[Any]:
        """Run as ``run`` does, while observers see every step."""
        if self._watched is None:
            self._watched = self._generate(self.program.apart(), observed=True)
        # A namespace of its own lets runs with different observers go on at once.
        own = {**self._watched.namespace, "observe": _fan_out(observers)}
        exec(self._watched.compiled, own)
        return settled(self._call(self._watched._replace(run=own.pop("run")), inputs), inputs)

    def watch(self, watcher: Callable[[GeneratedCode], GeneratedCode]) -> None:
        """Have code run in place of what runs until ``unwatch``, with buffers or without."""
        self._watcher = watcher
        self._code = watcher(self._code)

    def unwatch(self, run: Callable[..., Any], code: GeneratedCode) -> bool:
        """Have code run as it did before ``watch``; return whether it was watched by ``run``."""
        for name in ("_code", "_binding"):
            found = getattr(self, name)
            if found is not None and found.run is run:
                setattr(self, name, code)
                return True
        return False

    def run_checked(self, inputs: Sequence[Any]) -> list[Any]:
        """Run as ``run`` does; the thread's limits are looked at after every step."""
        return self.run_observed(inputs, [CHECKING])

    def run_into(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        """Run as ``run`` does, and leave outputs in buffers that the caller gives.

        A step that can writes into the buffer itself. The buffer may be the memory of an input;
        then the step updates it in place, if nothing else reads that input.

        Args:
            inputs: In the graph's order.
            buffers: A host array for every output, ``None`` for those to be made.

        Raises:
            InvalidArgument: A buffer differs from its output in shape or dtype.
            RuntimeException: A node failed; the message names it.
        """
        return self.run_chosen(inputs, self.chosen(inputs, buffers), buffers)

    def chosen(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        """Return the buffers that steps write themselves, as ``run_chosen`` takes them."""
        if self._binding is None:
            direct = self._direct = self.program.direct
            code = self._generate(buffers=[output.value for output in direct])
            self._binding = code if self._watcher is None else self._watcher(code)
        return binding.choose_buffers(self._direct, inputs, buffers)

    def run_chosen(
        self, inputs: Sequence[Any], given: Sequence[Any], buffers: Sequence[Any]
    ) -> list[Any]:
        """Run as ``run_into`` does; ``given`` was chosen for inputs that lie like these."""
        assert self._binding is not None, "it was chosen for"
        outputs = self._call(self._binding, [*inputs, *given])
        identities, each = set(map(id, inputs)), zip(outputs, buffers, strict=True)
        delivered = [o if o is b else _settle(o, inputs, identities) for o, b in each]
        return self.deliver(delivered, buffers)

    def run_on_devices(
        self,
        inputs: Sequence[Any],
        sources: Sequence[Device],
        targets: Sequence[Device],
        buffers: Sequence[Any] = (),
    ) -> list[Any]:
        """Run as ``run`` does, from and to devices.

        Args:
            inputs: In the graph's order.
            sources: Where each of them is.
            targets: Where each output is to be.
            buffers: An array there for every output, written as by ``run_into``; ``None`` for
                those to be made.

        Raises:
            RuntimeException: A node failed; the message names it.
        """
        buffers = buffers or [None] * len(targets)
        bound = any(buffer is not None for buffer in buffers)
        key = (*(device.id for device in (*sources, *targets)), bound)
        if (found := self._on_devices.get(key)) is None:
            found = self._on_devices[key] = self._for_devices(sources, targets, bound=bound)
        given = found.choose(inputs, buffers)
        outputs = self._call(found.code, [*inputs, *given])
        outputs = found.finish(outputs, self.program.outputs, inputs, buffers)
        return settled(outputs, inputs)

    def _for_devices(
        self, sources: Sequence[Device], targets: Sequence[Device], *, bound: bool
    ) -> RunOnDevices:
        from tenonnx.planning.device_arrays import exposes_arrays
        from tenonnx.planning.on_devices import RunOnDevices

        there = [device if exposes_arrays(device) else None for device in targets]
        direct = tuple(
            output
            for output in (binding.direct_outputs(self.program, targets) if bound else ())
            if there[output.position] is not None
        )
        values = [output.value for output in direct]
        code = self._generate(sources=sources, targets=targets, buffers=values)
        waited = {step.device.id: step.device for step in self.steps}
        return RunOnDevices(code, direct, sources, targets, waited.values())

    def deliver(self, outputs: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        """Copy outputs into the buffers that they are not in yet; return those.

        Raises:
            InvalidArgument: A buffer differs from its output in shape or dtype.
        """
        each = enumerate(zip(outputs, buffers, strict=True))
        return [
            o
            if o is buffer or buffer is None
            else binding.deliver(o, buffer, self.program.outputs[position].name)
            for position, (o, buffer) in each
        ]

    def _explain(self, error: Exception, failed: GeneratedCode) -> Exception:
        """Name the node whose line raised; what stops a run comes back as it is."""
        if isinstance(error, Stopped | errors.CheckFailed) or raised_by_handler(error):
            return error
        # The innermost frame of the plan's code: bodies of operators are functions within it.
        culprit = None
        for code, line in lines(error):
            if code.co_filename == self._filename:
                culprit = failed.origin.get(line)
        if culprit is None:
            return error
        from tenonnx.graph.validation import misfit
        from tenonnx.planning.node_errors import (
            describe_failure,
            misgiven,
            note_arguments,
        )

        if isinstance(part := vars(error).get("step"), Step):
            culprit = part
        else:
            note_arguments(error, self._filename, failed.source)

        # Of a node that differs from its schema, the schema's sentence says more than a kernel's.
        nodes = culprit.nodes if isinstance(culprit, Step) else (culprit,)
        if wrong := next(filter(None, map(misfit, nodes)), None):
            return errors.NodeMisused(wrong)
        step = culprit if isinstance(culprit, Step) else None
        if step is not None and (wrong_input := misgiven(step, error)) is not None:
            value, found = wrong_input
            maker = next((each for each in self.steps if value in each.outputs), None)
            if maker is not None:
                made, who = maker.nodes[-1], self._provider_of(maker)
                return errors.NodeFailed(
                    f"{made.label} on {who} returned {found}; expected {value}, "
                    f"for which {nodes[0].label} failed"
                )
        who = "" if step is None else self._provider_of(step)
        return failure_class(error)(describe_failure(nodes, error, step, who))

    def _provider_of(self, step: Step) -> str:
        nodes = {node.id for node in step.nodes}
        found = (each.provider for each in self.placement if each.node.id in nodes)
        return next(found, "the runtime")


class _Checking:
    """An observer that has the thread's limits looked at after every step."""

    def on_step(self, step: object, start_ns: int, outputs: tuple[Any, ...]) -> None:
        """Raise ``Stopped`` if a limit does."""
        del step, start_ns, outputs
        check()


CHECKING = _Checking()


def failure_class(error: Exception) -> type[errors.TenonnxError]:
    """Return what a node's failure is called."""
    if isinstance(error, errors.DeviceReset):
        return errors.DeviceReset
    if isinstance(error, MemoryError):
        return errors.OutOfMemory
    return errors.NodeMisused if isinstance(error, TypeError) else errors.NodeFailed


def _fan_out(observers: Sequence[Observer]) -> Callable[..., None]:
    if len(observers) == 1:
        return observers[0].on_step

    def observe(step: Step | None, start_ns: int, outputs: tuple[Any, ...]) -> None:
        for observer in observers:
            observer.on_step(step, start_ns, outputs)

    return observe


def settled(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """Make outputs arrays of their own, unless they are views of weights."""
    if len(outputs) == 1:  # a model of microseconds, most likely: calls and sets take a tenth of it
        (output,) = outputs
        if type(output) is np.ndarray and output.base is None:
            for array in inputs:
                if array is output:
                    break
            else:
                return [output]
    given = set(map(id, inputs))
    return [_settle(output, inputs, given) for output in outputs]


def _copied(output: Any) -> Any:
    """Return a copy of an output.

    Raises:
        OutOfMemory: There is no room for it, as of a view that repeats its elements.
    """
    try:
        return output.copy()
    except MemoryError as error:
        found = f"{output.dtype}{list(output.shape)}"
        raise errors.OutOfMemory(f"an output needs more memory than there is: {found}") from error


def _settle(output: Any, inputs: Sequence[Any], given: set[int]) -> Any:
    """Make an output an array of its own; ``given`` are the inputs' identities.

    Raises:
        RuntimeException: It is a tuple.
    """
    if isinstance(output, np.ndarray):
        if output.base is None:
            return _copied(output) if id(output) in given else output
        if any(isinstance(i, np.ndarray) and np.may_share_memory(output, i) for i in inputs):
            return _copied(output)
        return output
    if isinstance(output, np.generic):
        return np.asarray(output)
    if isinstance(output, tuple):
        raise errors.RuntimeException(
            f"an output is a tuple of {len(output)} values, so its kernel returns several",
            hint="register it with multiple=True, or with outputs=2 for tenonnx.operator",
        )
    return output
