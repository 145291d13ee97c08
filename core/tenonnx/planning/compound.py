"""Consecutive steps as one call: straight-line code, as a plan has it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx.graph.values import ValueInfo
from tenonnx.planning.bound import DirectOutput, direct_outputs
from tenonnx.planning.codegen import Generator
from tenonnx.planning.plan import GeneratedCode
from tenonnx.planning.program import Program
from tenonnx.process.interruption import lines
from tenonnx.provider import HOST, Device, Step

_numbers = itertools.count()


@cacheable
class Compound:
    """Steps as one call, whose errors have the step that failed as their attribute ``step``.

    Args:
        steps: In order.
        inputs: The inputs of the call and their places, without constants.
        outputs: Its outputs; a tuple, even for one value.

    Attributes:
        program: The steps.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Sequence[tuple[ValueInfo, Device]],
        outputs: Sequence[ValueInfo],
    ) -> None:
        self.program = Program.of_steps(steps, inputs, outputs)
        self._targets = [self.program.home_of(value) or HOST for value in self.program.outputs]
        self._filename = f"<tenonnx steps {next(_numbers)}>"

    @functools.cached_property
    def direct(self) -> Sequence[DirectOutput]:
        """The outputs that steps can write into buffers."""
        return direct_outputs(self.program, self._targets)

    @functools.cached_property
    def _code(self) -> GeneratedCode:
        return Generator(self.program, targets=self._targets).code(self._filename)

    @functools.cached_property
    def _binding(self) -> GeneratedCode:
        values = [output.value for output in self.direct]
        made = Generator(self.program, targets=self._targets, buffers=values)
        return made.code(self._filename)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Return the outputs."""
        return self._run(self._code, inputs)

    def run_into(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> tuple[Any, ...]:
        """Return the outputs, in buffers for those that are ``direct``, or ``None``s."""
        return self._run(self._binding, (*inputs, *buffers))

    def _run(self, program: GeneratedCode, arguments: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return program.run(*arguments)
        except Exception as error:
            for code, line in lines(error):
                if code.co_filename == self._filename and "step" not in vars(error):
                    from tenonnx.planning.node_errors import note_arguments

                    vars(error)["step"] = program.origin.get(line)
                    note_arguments(error, self._filename, program.source)
            raise
