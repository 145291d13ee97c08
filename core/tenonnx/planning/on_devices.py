"""Runs from and to devices: inputs that are there already, and outputs that are to stay."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.planning.device_arrays import exposes_arrays
from tenonnx.provider import HOST, Device

if TYPE_CHECKING:
    from tenonnx.graph.values import ValueInfo
    from tenonnx.planning.bound import DirectOutput
    from tenonnx.planning.plan import GeneratedCode


class RunOnDevices:
    """A plan's run from and to certain devices.

    Args:
        code: The code generated for it.
        direct: Outputs that a step can write into a buffer; ``run`` takes those after the inputs.
        sources: Where the inputs are.
        targets: Where the outputs are to be.
        waited: Devices whose work is to be waited for.

    Attributes:
        code: The code.
    """

    def __init__(
        self,
        code: GeneratedCode,
        direct: Sequence[DirectOutput],
        sources: Sequence[Device],
        targets: Sequence[Device],
        waited: Iterable[Device],
    ) -> None:
        self.code = code
        self._direct = direct
        self._sources, self._targets = sources, targets
        self._lenders = [device if exposes_arrays(device) else None for device in targets]
        self._there = [i for i, device in enumerate(sources) if device is not HOST]
        self._waited = [device for device in waited if exposes_arrays(device)]
        self._last: tuple[list[weakref.ref[Any] | None], list[int | None]] = ([], [])

    def choose(self, inputs: Sequence[Any], buffers: Sequence[Any]) -> list[Any]:
        """Return the buffers that may be written while inputs are still read, or ``None``s.

        Callers bind the same arrays in run after run, so the last answer is kept.
        """
        if not self._direct:
            return []
        arrays = [inputs[i] for i in self._there]
        arrays += [buffers[output.position] for output in self._direct]
        last, free = self._last
        if not last or any(a is not (r and r()) for r, a in zip(last, arrays, strict=True)):
            free = [
                output.position if self._is_free(buffers[output.position], output, inputs) else None
                for output in self._direct
            ]
            self._last = [None if a is None else weakref.ref(a) for a in arrays], free
        return [None if i is None else buffers[i] for i in free]

    def _is_free(self, buffer: Any, output: DirectOutput, inputs: Sequence[Any]) -> bool:
        lender, dtype = self._lenders[output.position], output.dtype
        if buffer is None or lender is None or dtype is None or buffer.dtype != dtype:
            return False
        return not any(
            self._sources[i].id == lender.id and lender.shares(buffer, inputs[i])
            for i in self._there
            if i not in output.owned
        )

    def finish(
        self,
        outputs: Sequence[Any],
        values: Sequence[ValueInfo],
        inputs: Sequence[Any],
        buffers: Sequence[Any],
    ) -> list[Any]:
        """Wait for the outputs, and make those on devices arrays that no input or weight shares.

        Those that have buffers there are in them.
        """
        for device in self._waited:
            device.synchronize()
        found, given = [], set(map(id, inputs))
        for output, value, lender, buffer in zip(
            outputs, values, self._lenders, buffers, strict=True
        ):
            if lender is None or output is buffer:
                found.append(output)
            elif buffer is not None and _alike(output, buffer):
                lender.write(buffer, output)
                found.append(buffer)
            else:
                is_view = value.constant is not None or getattr(output, "base", None) is not None
                shared = is_view or id(output) in given
                found.append(lender.copy(output) if shared else output)
        return found


def _alike(output: Any, buffer: Any) -> bool:
    same: bool = output.shape == buffer.shape and output.dtype == buffer.dtype
    return same
