"""BatchNormalization on its own: a product and a sum per channel, in one pass."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from tenonnx.by_name import cacheable
from tenonnx.graph.affine import affine_of
from tenonnx_cpu.buffers import F32, F64, frozen
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels import operations as o
from tenonnx_cpu.elementwise.kernels.opcodes import ADD, MUL
from tenonnx_cpu.elementwise.kernels.operations import FLOAT64
from tenonnx_cpu.elementwise.program import Instruction, Program, ProgramCall
from tenonnx_cpu.elementwise.typed import APPLY, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize


@specialize("BatchNormalization")
def specialize_batch_norm(site: Site, plain: Call) -> Call | None:
    """Normalize float32 and float64 by constant statistics."""
    image, dtype = site.node.inputs[0], F64 if site.dtype(0) == F64 else F32
    found = None if image is None else affine_of(site.node, image, None, 0)
    affine = () if found is None else tuple(a.astype(dtype) for a in found if a is not None)
    if len(affine) < 2:
        return None
    if dtype == F64:
        APPLY.request()
        call = functools.partial(_affine, site.threads)
        return Capturable(BatchNormCall(affine[0], affine[1], call, plain))
    program = Program()
    x, factor, shift = (program.array() for _ in range(3))
    program.add(Instruction(ADD), (program.add(Instruction(MUL), (x, factor)), shift))
    program_call = ProgramCall(program, _in_two_passes, site.threads)
    return Capturable(BatchNormCall(affine[0], affine[1], program_call.launch, plain))


@cacheable
def _affine(threads: int, x: NDArray, factor: NDArray, shift: NDArray) -> Any:
    made = launch(o.AFFINE, FLOAT64, (x, factor, shift), F64, threads)
    return _in_two_passes(x, factor, shift) if made is None else made


@cacheable
@dataclass(frozen=True, eq=False)
class BatchNormCall:
    """Multiplies each channel by a factor, and adds a number.

    Attributes:
        factors: Of channels.
        shifts: Of channels.
        call: Does it, or returns a launch that does.
        plain: Normalizes other arrays than those of so many channels and of the factors' type.
    """

    factors: NDArray
    shifts: NDArray
    call: Call
    plain: Call
    _placed: dict[int, tuple[NDArray, NDArray]] = field(default_factory=dict)

    def __call__(self, x: NDArray, *parameters: NDArray) -> Any:
        """Return a launch, or the results."""
        if x.dtype != self.factors.dtype or x.ndim < 2 or x.shape[1] != self.factors.size:
            return self.plain(x, *parameters)
        if (placed := self._placed.get(x.ndim)) is None:
            shape = (-1, *(1,) * (x.ndim - 2))
            placed = frozen(self.factors).reshape(shape), frozen(self.shifts).reshape(shape)
            self._placed[x.ndim] = placed
        made = self.call(x, *placed)
        return made._replace(result=(made.result,)) if isinstance(made, Launch) else (made,)


@cacheable
def _in_two_passes(x: NDArray, factor: NDArray, shift: NDArray) -> NDArray:
    y = x * factor
    y += shift
    return y
