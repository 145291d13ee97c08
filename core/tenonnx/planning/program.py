"""Consecutive steps as one call: straight-line code, as a plan has it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.interruption import lines
from tenonnx.planning.bound import Direct, direct_outputs
from tenonnx.planning.codegen import Generator
from tenonnx.planning.lower import Lowering
from tenonnx.planning.plan import Code
from tenonnx.provider import HOST, Device, Step

if TYPE_CHECKING:
    import onnx_ir as ir

_numbers = itertools.count()


class Program:
    """Steps as one call, whose errors have the step that failed as their attribute ``step``.

    Args:
        steps: In order.
        inputs: The inputs of the call and their places, without constants.
        outputs: Its outputs; a tuple, even for one value.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Sequence[tuple[ir.Value, Device]],
        outputs: Sequence[ir.Value],
    ) -> None:
        self._lowering = Lowering.of_steps(steps, inputs, outputs)
        self._targets = [self._lowering.home_of(value) or HOST for value in outputs]
        self._filename = f"<tenonnx steps {next(_numbers)}>"

    @functools.cached_property
    def direct(self) -> Sequence[Direct]:
        """The outputs that steps can write into buffers."""
        return direct_outputs(self._lowering, self._targets)

    @functools.cached_property
    def _code(self) -> Code:
        return Generator(self._lowering, targets=self._targets).code(self._filename)

    @functools.cached_property
    def _binding(self) -> Code:
        values = [output.value for output in self.direct]
        made = Generator(self._lowering, targets=self._targets, buffers=values)
        return made.code(self._filename)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Returns the outputs."""
        return self._run(self._code, inputs)

    def run_into(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the outputs, in buffers for those that are ``direct``, or ``None``s."""
        return self._run(self._binding, (*inputs, *buffers))

    def _run(self, program: Code, arguments: Sequence[Any]) -> tuple[Any, ...]:
        try:
            return program.run(*arguments)
        except Exception as error:
            for code, line in lines(error):
                if code.co_filename == self._filename:
                    vars(error).setdefault("step", program.origin.get(line))
            raise
