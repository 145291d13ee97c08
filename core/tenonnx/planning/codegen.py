"""The run path as a Python function: one line per step, values in local variables.

A loop over steps would pay for list indexing and dispatch at every node; straight-line code pays
for the call alone. Control flow becomes Python's own, so a body reads the outer graph's values
where they are, and nothing is copied into it.
"""

from __future__ import annotations

import functools
import time
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenonnx.errors import InvalidGraph, NotSupported
from tenonnx.graph.values import NodeInfo, ValueInfo
from tenonnx.planning.device_arrays import downloaded, wait_for
from tenonnx.planning.plan import GeneratedCode
from tenonnx.planning.program import Block, Control, Program, constant_on
from tenonnx.provider import HOST, Device, Step


class Generator:
    """The writer of a program's function ``run(*inputs)``.

    Args:
        program: The program.
        observed: Call ``observe(step, start_ns, outputs)`` after every step and, with ``None``
            for the step, in every iteration of a loop.
        buffers: Graph outputs that ``run`` takes buffers for, after the inputs; ``None`` for one
            that is to be made anew. Each is an output of a step that can write into it.
        sources: Where the inputs are; on the host if empty.
        targets: Where the outputs are to be; on the host if empty.
    """

    def __init__(
        self,
        program: Program,
        *,
        observed: bool = False,
        buffers: Sequence[ValueInfo] = (),
        sources: Sequence[Device] = (),
        targets: Sequence[Device] = (),
    ) -> None:
        self._namespace: dict[str, Any] = {"clock": time.perf_counter_ns}
        self._origin: dict[int, Step | NodeInfo] = {}
        program = program.started_on(sources) if sources else program
        self._homes = dict(program.homes)
        self._targets = targets or [HOST] * len(program.outputs)
        self.observed = observed
        self.loops = 0
        self._lines: list[str] = []
        self._indent = 1
        self._count = 0
        self._names: ChainMap[tuple[ValueInfo, str], str] = ChainMap()
        self._devices = {HOST.id}
        self._constants: dict[tuple[int, str], str] = {}
        self._current: Step | NodeInfo | None = None
        self._makers: dict[ValueInfo, Step] = {}
        self._buffers = {value: self.fresh("b") for value in buffers}
        self._emit_function(program)

    def code(self, filename: str) -> GeneratedCode:
        """Return the function, whose frames say that they are of this file.

        Raises:
            NotSupported: Python cannot compile it.
        """
        source = "\n".join(self._lines) + "\n"
        try:
            compiled = compile(source, filename, "exec")
        except (RecursionError, SyntaxError, MemoryError) as error:
            raise NotSupported(f"the graph nests too deeply to be compiled: {error}") from error
        exec(compiled, self._namespace)
        # Without it in its own globals it goes, with all that they hold, when nobody has it.
        run = self._namespace.pop("run")
        return GeneratedCode(run, compiled, self._namespace, self._origin, source)

    def _emit_function(self, program: Program) -> None:
        parameters = [self.define(value, home) for value, home in program.inputs]
        parameters += self._buffers.values()
        self._lines.append(f"def run({', '.join(parameters)}):")
        self.emit_block(program.block)
        self._current = None
        wanted = zip(program.outputs, self._targets, strict=True)
        results = [self.fetch(value, device) for value, device in wanted]
        self.line(f"return ({''.join(result + ', ' for result in results)})")

    def line(self, code: str) -> None:
        """Write one line."""
        self._lines.append("    " * self._indent + code)
        if self._current is not None:
            self._origin[len(self._lines)] = self._current

    def fresh(self, prefix: str) -> str:
        """Return a name not used yet."""
        self._count += 1
        return f"{prefix}{self._count}"

    def bind(self, prefix: str, thing: Any) -> str:
        """Return a global name that stands for an object."""
        name = self.fresh(prefix)
        self._namespace[name] = thing
        return name

    def call(self, function: Callable[..., Any], *arguments: str) -> str:
        """Return the expression that calls a function."""
        return f"{self.bind('f', function)}({', '.join(arguments)})"

    def home_of(self, value: ValueInfo) -> Device:
        """Return where a value appears first that is no constant."""
        return self._homes.get(value, HOST)

    def settle(self, value: ValueInfo, device: Device) -> None:
        """Have a value of a body appear on a device."""
        self._homes[value] = device

    def define(self, value: ValueInfo, device: Device, name: str | None = None) -> str:
        """Name a value on a device; return the variable."""
        name = name or self.fresh("v")
        self._names[value, device.id] = name
        self._devices.add(device.id)
        return name

    @contextmanager
    def indented(self, header: str) -> Iterator[None]:
        """Write a compound statement's header, then its body.

        Values that the body defines or moves to another device are unknown after it.
        """
        self.line(header)
        self._names = self._names.new_child()
        self._indent += 1
        yield
        self._indent -= 1
        self._names = self._names.parents

    def fetch(self, value: ValueInfo | None, device: Device) -> str:
        """Return an expression for a value on a device, moving it there if need be."""
        if value is None:
            return "None"
        here = value, device.id
        for names in self._names.maps:  # in a third of the time that it takes as a mapping
            if (name := names.get(here)) is not None:
                return name
        if value.constant is not None:
            return self._constant(value, device)
        # From device to device by way of the host: providers do not know each other's arrays.
        home = self.home_of(value)
        if (on_host := self._names.get((value, HOST.id))) is None:
            if (name := self._names.get((value, home.id))) is None:
                raise InvalidGraph(f"'{value.name}' is read before it is made")
            fetched = functools.partial(_fetched, self._makers.get(value), home)
            on_host = self._move(value, name, fetched, HOST)
        return (
            on_host if device.id == HOST.id else self._move(value, on_host, device.upload, device)
        )

    def _move(
        self, value: ValueInfo, source: str, move: Callable[[Any], Any], target: Device
    ) -> str:
        expression = self.call(functools.partial(_moved, move), source)
        name = self.define(value, target)
        self.line(f"{name} = {expression}")
        return name

    def _constant(self, value: ValueInfo, device: Device) -> str:
        key = (value.id, device.id)
        if key not in self._constants:
            self._constants[key] = self.bind("c", constant_on(value, device))
        return self._constants[key]

    def watch_iteration(self) -> None:
        """Call the observers of a run in a loop's iteration."""
        if self.observed:
            current, self._current = self._current, None
            self.line("observe(None, 0, ())")
            self._current = current

    def emit_block(self, block: Block) -> None:
        """Write a graph's steps; its inputs must be defined."""
        around = self._current
        for item, last in zip(block.items, block.last_use, strict=True):
            if isinstance(item, Step):
                self._emit_step(item, unread=last)
            else:
                self._current = item.node
                self._emit_control(item)
                self._current = item.node  # the steps of its bodies were current meanwhile
            self._release(last)
        self._current = around

    def _emit_control(self, item: Control) -> None:
        # Few graphs have other graphs inside.
        from tenonnx.planning.codegen_control import EMITTERS, bodies

        if item.step is not None:
            self._emit_step(item.step, bodies(self, item, item.step))
        else:
            EMITTERS[item.node.op_type](self, item)

    def _release(self, values: Sequence[ValueInfo]) -> None:
        """Drop variables after their last use, so that memory is free for the next step."""
        # Only variables of the innermost block: those around it are read in its next iteration.
        keys = [(value, device) for value in values for device in self._devices]
        dead = [self._names.maps[0].pop(key) for key in keys if key in self._names.maps[0]]
        if dead:
            self.line(" = ".join(dead) + " = None")

    def _emit_step(
        self, step: Step, keywords: Sequence[str] = (), unread: Sequence[ValueInfo] = ()
    ) -> None:
        self._current = step
        values = [self.fetch(v, step.device_of_input(i)) for i, v in enumerate(step.inputs)]
        arguments = ", ".join((*values, *keywords))
        call = f"{self.bind('k', step.call)}({arguments})"
        if not self._buffers.keys().isdisjoint(step.outputs):
            buffers = [self._buffers.get(value, "None") for value in step.outputs]
            target = f"({', '.join(buffers)},)" if step.multiple else buffers[0]
            from tenonnx.planning.writing import writer

            write = writer(step.call, multiple=step.multiple)
            call = f"{self.bind('k', write)}({target}, {arguments})"
        if self.observed:
            self.line("started = clock()")
        names = [self.define(value, step.device_of_outputs) for value in step.outputs]
        # A device's work may fail after the call. The error then comes where a result is fetched.
        if step.device is not HOST:
            self._makers.update((value, step) for value in step.outputs)
        if not step.multiple:
            self.line(f"{names[0] if names else '_'} = {call}")
        else:
            self.line(f"results = {call}")
            for position, (name, value) in enumerate(zip(names, step.outputs, strict=True)):
                if self.observed or value not in unread:
                    self.line(f"{name} = results[{position}]")
            self.line("results = None")  # the tuple would hold results whose variables are released
        if self.observed:
            outputs = "".join(f"{name}, " for name in names)
            self._current = None  # an observer's error is not the step's
            self.line(f"observe({self.bind('s', step)}, started, ({outputs}))")


def _fetched(maker: Step | None, device: Device, array: Any) -> Any:
    """Return a device's array on the host.

    What the work that makes it raises has the step that began it as its attribute ``step``.
    """
    if maker is None:
        return downloaded(device, array)
    try:
        wait_for(array)
    except Exception as error:
        vars(error).setdefault("step", maker)
        raise
    return device.download(array)


def _moved(move: Callable[[Any], Any], value: Any) -> Any:
    """Move an array, or a sequence of them; an absent optional stays absent."""
    if value is None:
        return None
    return [_moved(move, item) for item in value] if isinstance(value, list) else move(value)
