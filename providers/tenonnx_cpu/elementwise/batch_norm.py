"""BatchNormalization on its own: a product and a sum per channel, in one pass."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch
from tenonnx_cpu.elementwise.opcodes import ADD, MUL
from tenonnx_cpu.elementwise.program import Line, Program, ProgramCall
from tenonnx_cpu.specialise import F32, Call, NDArray, Site, specialise


@specialise("BatchNormalization")
def specialise_batch_norm(site: Site, plain: Call) -> Call | None:
    """Normalises float32 by constant statistics."""
    affine = affine_of(site)
    if affine is None:
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


def affine_of(site: Site) -> tuple[NDArray, NDArray] | None:
    """Returns the factor and the summand of each channel, if a node's statistics are constants."""
    if (site.node.version or 1) < 9 or len(site.node.outputs) > 1:
        return None
    if site.attribute("training_mode", 0):
        return None
    given = [site.constant(position) for position in range(1, 5)]
    wide = [a.astype(np.float64) for a in given if a is not None and a.dtype == F32 and a.ndim == 1]
    if len(wide) < 4 or not wide[0].size or len({a.size for a in wide}) > 1:
        return None
    scale, bias, mean, var = wide
    factor = scale / np.sqrt(var + site.attribute("epsilon", 1e-5))
    return factor.astype(F32), (bias - mean * factor).astype(F32)


def _in_two_passes(x: NDArray, factor: NDArray, shift: NDArray) -> NDArray:
    y = x * factor
    y += shift
    return y
