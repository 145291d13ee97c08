"""BatchNormalization on its own: a product and a sum per channel, in one pass."""

from __future__ import annotations

import functools
from typing import Any

from tenonnx.affine import affine_of
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.kernels.opcodes import ADD, MUL
from tenonnx_cpu.elementwise.program import Line, Program, ProgramCall
from tenonnx_cpu.kernel_selection import F32, Call, NDArray, Site, specialize


@specialize("BatchNormalization")
def specialize_batch_norm(site: Site, plain: Call) -> Call | None:
    """Normalizes float32 by constant statistics."""
    image = site.node.inputs[0]
    found = None if image is None else affine_of(site.node, image, None, 0)
    affine = () if found is None else tuple(a.astype(F32) for a in found if a is not None)
    if len(affine) < 2:
        return None
    program = Program()
    x, factor, shift = (program.array() for _ in range(3))
    program.add(Line(ADD), (program.add(Line(MUL), (x, factor)), shift))
    program_call = ProgramCall(program, _in_two_passes, site.threads)
    channels = affine[0].size

    @functools.lru_cache(maxsize=8)
    def placed(rank: int) -> tuple[NDArray, NDArray]:
        shape = (channels, *(1,) * (rank - 2))
        return affine[0].reshape(shape), affine[1].reshape(shape)

    def call(x: NDArray, *parameters: NDArray) -> Any:
        if x.dtype != F32 or x.ndim < 2 or x.shape[1] != channels:
            return plain(x, *parameters)
        made = program_call.launch(x, *placed(x.ndim))
        return made._replace(result=(made.result,)) if isinstance(made, Launch) else (made,)

    return Capturable(call)


def _in_two_passes(x: NDArray, factor: NDArray, shift: NDArray) -> NDArray:
    y = x * factor
    y += shift
    return y
