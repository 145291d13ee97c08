"""Steps that run as one call, which is captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.graph.values import ValueInfo
from tenonnx.planning.compound import Compound
from tenonnx.planning.program import constant_on
from tenonnx.provider import HOST, Device, Step
from tenonnx_cuda.capture.captured_call import shared
from tenonnx_cuda.capture.dynamic_length import Limit, Limits
from tenonnx_cuda.capture.replay import dynamic_of
from tenonnx_cuda.capture.tracer import hold

if TYPE_CHECKING:
    from tenonnx.planning.spans import Span


class DeviceProgram(Compound):
    """A span's steps as one call.

    Args:
        span: The steps.
        outputs: The values that something outside reads.

    Attributes:
        inputs: Values from outside, and whether each is wanted on the host.
        outputs: The values that something outside reads.
        limits: Of inputs that only say how much there may be.
    """

    def __init__(self, span: Span, outputs: Sequence[ValueInfo]) -> None:
        self.inputs = tuple(span.inputs)
        self.outputs = tuple(outputs)
        device = span.steps[0].device
        given = [(value, HOST if on_host else device) for value, on_host in self.inputs]
        super().__init__(span.steps, given, outputs)
        self._steps = span.steps
        self._positions = {key: i for i, key in enumerate(self.inputs)}
        constants = (
            constant_on(value, device)
            for step in span.steps
            for i, value in enumerate(step.inputs)
            if value is not None
            and value.constant is not None
            and step.device_of_input(i) is not HOST
        )
        self._held = list({id(x): x for x in constants}.values())
        self.limits = self._limits()

    def _known(self, step: Step, i: int) -> Any:
        """Return the position of a step's input, a constant's array, or ``None`` for neither."""
        value = step.inputs[i] if i < len(step.inputs) else None
        if value is None:
            return None
        where = step.device_of_input(i)
        if value.constant is not None:
            return constant_on(value, where)
        return self._positions.get((value, where is HOST))

    def _limits(self) -> Limits:
        found: dict[int, list[Limit]] = {}
        exact = set()
        for step in self._steps:
            dynamic = dynamic_of(step)
            for i, value in enumerate(step.inputs):
                slot = None if value is None else self._positions.get((value, True))
                if slot is None or step.device_of_input(i) is not HOST:
                    continue
                if dynamic is None or i not in dynamic.limits:
                    exact.add(slot)
                    continue
                for limit in dynamic.limits[i]:
                    of = self._known(step, limit.of) if isinstance(limit.of, int) else limit.of
                    found.setdefault(slot, []).append(limit._replace(of=of))
        return {slot: limits for slot, limits in found.items() if slot not in exact}

    def step(self, call: Any, device: Device, parts: tuple[Step, ...] = ()) -> Step:
        """Return a step that does it by a call."""
        return Step(
            call=call,
            inputs=tuple(value for value, _ in self.inputs),
            outputs=self.outputs,
            nodes=tuple(node for step in self._steps for node in step.nodes),
            multiple=True,
            device=device,
            host=tuple(i for i, (_, on_host) in enumerate(self.inputs) if on_host),
            parts=parts,
        )

    def __call__(self, *inputs: Any, _outs: Sequence[Any] = ()) -> tuple[Any, ...]:
        """Return the outputs, in the arrays ``_outs`` as far as steps can write there."""
        hold(*self._held)
        if not any(out is not None for out in _outs):
            return super().__call__(*inputs)
        read = in_common(inputs, _outs)
        free = [None if read[d.position] - d.owned else _outs[d.position] for d in self.direct]
        return self.run_into(inputs, free)


def in_common(inputs: Sequence[Any], outs: Sequence[Any]) -> list[set[int]]:
    """Return the positions of the inputs that each buffer has memory in common with."""
    found: list[set[int]] = [set() for _ in outs]
    for i, j, _ in shared([*inputs, *outs]):
        if i < len(inputs) <= j:
            found[j - len(inputs)].add(i)
    return found
