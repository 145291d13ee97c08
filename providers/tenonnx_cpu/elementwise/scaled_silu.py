"""ScaledSiLU: a program of two instructions."""

from __future__ import annotations

from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.elementwise.kernels.opcodes import MUL, SILU
from tenonnx_cpu.elementwise.program import Instruction, Program, ProgramCall
from tenonnx_cpu.kernel_selection import Call, Site, specialize


@specialize("ScaledSiLU", domain="com.microsoft")
def specialize_scaled_silu(site: Site, plain: Call) -> Call | None:
    """Take float32, whose factor is an attribute."""
    if site.given(1) or site.dtype(0) != F32:
        return None
    program = Program()
    x = program.array()
    scaled = program.add(Instruction(MUL), (x, program.number(site.attribute("alpha", 1.0))))
    program.add(Instruction(SILU, (1.0, 0.0)), (scaled,))
    return Capturable(ProgramCall(program, plain, site.threads).launch)
