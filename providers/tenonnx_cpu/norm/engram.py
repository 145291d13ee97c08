"""EngramGate: norms of keys and queries, their product, and a gate per hyper-connection."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_cpu.buffers import F32, is_half
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.capture.launch import Launch, ahead, fix
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.elementwise.kernels.operations import FLOAT32, MUL, SIGN
from tenonnx_cpu.elementwise.program import Instruction, Program, ProgramCall
from tenonnx_cpu.elementwise.typed import APPLY, code_of, launch
from tenonnx_cpu.kernel_selection import Call, NDArray, Site, specialize
from tenonnx_cpu.norm.branches import ones
from tenonnx_cpu.norm.norms import Normalize
from tenonnx_cpu.reduce.fold import FOLD, folded

# The least magnitude that has a root.
LEAST_MAGNITUDE = 1e-6


class Absent(Exception):
    """A kernel is not there, or is not for such arrays."""


@specialize("EngramGate", domain="com.microsoft")
def specialize_engram_gate(site: Site, plain: Call) -> Call | None:
    """Take floats of 16 and 32 bits, as float32, whose result is not normed again."""
    if site.given(5):
        return None
    APPLY.request()
    FOLD.request()
    norm = Normalize(site.attribute("epsilon", 1e-5), centered=False, threads=site.threads)
    program = Program()
    sign, dot = program.array(), program.array()
    size = program.add(Instruction(opcodes.ABS), (dot,))
    size = program.add(Instruction(opcodes.MAX), (size, program.number(LEAST_MAGNITUDE)))
    size = program.add(Instruction(opcodes.SQRT), (size,))
    size = program.add(Instruction(opcodes.MUL), (sign, size))
    program.add(Instruction(opcodes.SIGMOID), (size,))
    gate = ProgramCall(program, _nothing, site.threads)
    return Capturable(functools.partial(_gated, EngramCall(norm, gate, site.threads), plain))


@cacheable
def _nothing(*_: NDArray) -> None:
    return None


@cacheable
def _gated(call: EngramCall, plain: Call, *given: NDArray) -> Any:
    try:
        return call.launch(*given)
    except Absent:
        return plain(*given)


@cacheable
@dataclass(frozen=True, eq=False)
class EngramCall:
    """The launches of an EngramGate.

    Attributes:
        norm: Divides rows by their root mean square.
        gate: Computes gates from products and their signs.
        threads: How many to use at most.
    """

    norm: Normalize
    gate: ProgramCall
    threads: int

    def launch(
        self, key: NDArray, query: NDArray, value: NDArray, of_key: NDArray, of_query: NDArray
    ) -> Launch:
        """Return the last launch.

        Raises:
            Absent: The kernels do not take the arrays.
        """
        dtype, threads = key.dtype, self.threads
        if not key.size or key.ndim != 4 or (dtype != F32 and not is_half(dtype)):
            raise Absent
        k, q = self._normed(key, of_key), self._normed(query, of_query)
        dot = self._made(folded("ReduceSum", self._product(k, q), (-1,), True, threads))
        dot = self._product(dot, _root_of_width(key.shape[-1]))
        sign = self._made(launch(SIGN, FLOAT32, (dot,), F32, threads))
        gate = self._made(self.gate.launch(sign, dot))
        made = launch(MUL, FLOAT32, (gate, self._wide(value)[..., None, :]), F32, threads)
        if dtype != F32:
            code = code_of(dtype)
            assert code is not None
            made = launch(code, FLOAT32, (self._made(made),), dtype, threads)
        if made is None:
            raise Absent
        return made._replace(result=(made.result, None))

    def _normed(self, x: NDArray, scale: NDArray) -> NDArray:
        wide = self._wide(x)
        made = self.norm(wide, None, ones(wide.shape[-1], F32), None)
        return self._product(self._made(made), self._wide(scale))

    def _product(self, x: NDArray, y: NDArray) -> NDArray:
        return self._made(launch(MUL, FLOAT32, (x, y), F32, self.threads))

    def _wide(self, x: NDArray) -> NDArray:
        element = code_of(x.dtype)
        if x.dtype == F32 or element is None:
            return x
        return self._made(launch(FLOAT32, element, (x,), F32, self.threads))

    def _made(self, launch: Launch | None) -> NDArray:
        if not isinstance(launch, Launch):
            raise Absent
        made: NDArray = ahead(launch)
        return made


@functools.lru_cache(maxsize=16)
def _root_of_width(width: int) -> NDArray:
    return fix(np.array([1 / math.sqrt(width)], np.float32))
