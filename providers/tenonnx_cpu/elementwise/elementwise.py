"""Elementwise operators as programs: what nodes mean, and several of them in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tenonnx.graph import attribute
from tenonnx.graph.traits import COSTLY, parameters_of
from tenonnx.planning.fusion import inputs_of
from tenonnx.planning.lower import is_constant
from tenonnx_cpu.activation import OPCODE_OF_NAME as ACTIVATIONS
from tenonnx_cpu.activation import activation_of
from tenonnx_cpu.buffers import F32
from tenonnx_cpu.capture.capturable import Capturable
from tenonnx_cpu.elementwise.kernels import functions, opcodes
from tenonnx_cpu.elementwise.kernels.opcodes import MAX_INPUTS
from tenonnx_cpu.elementwise.kernels.operations import BFLOAT16, FLOAT16
from tenonnx_cpu.elementwise.program import Instruction, Program, ProgramCall
from tenonnx_cpu.fuse import ELEMENTWISE, Fused, Scope, fusion
from tenonnx_cpu.kernel_selection import Call, Site, on_host, specialize
from tenonnx_cpu.subgraph import find_subgraph

if TYPE_CHECKING:
    import onnx_ir as ir

# ONNX's codes of float32 and float64.
FLOAT, DOUBLE = 1, 11

# Types of 16-bit floats by ONNX's codes.
HALF_OF_ONNX = {10: FLOAT16, 16: BFLOAT16}

# Under which a scope keeps what makes its programs.
COMPILER = "elementwise"

# Says what instruction a node is, if it is one; its operands are filled in later.
Meaning: TypeAlias = Callable[[Site], "Instruction | None"]


def _since(version: int, code: int) -> Meaning:
    """Return what an operator without parameters means from a version on."""

    def meaning(site: Site) -> Instruction | None:
        return Instruction(code) if (site.node.version or 1) >= version else None

    return meaning


def _activation(site: Site) -> Instruction | None:
    made = activation_of(site)
    return None if made is None else Instruction(made.code, (made.first, made.second), operands=1)


def _swish(site: Site) -> Instruction | None:
    return Instruction(opcodes.SILU, (float(site.attribute("alpha", 1.0)), 0.0))


POWERS = {1.0: opcodes.COPY, 2.0: opcodes.SQUARE, 3.0: opcodes.CUBE, -1.0: opcodes.RECIPROCAL}


def _power(site: Site) -> Instruction | None:
    exponent = site.constant(1)
    if (site.node.version or 1) < 7 or exponent is None or exponent.ndim or exponent.dtype != F32:
        return None
    code = POWERS.get(float(exponent))
    return None if code is None else Instruction(code, operands=1)


def _elu(site: Site) -> Instruction | None:
    """Return an exponential unit; the constants of the first Selu are others."""
    name = site.node.op_type
    if (site.node.version or 1) < 6:
        return None
    alpha, gamma = (*parameters_of(name), 1.0)[:2]
    alpha, gamma = site.attribute("alpha", alpha), site.attribute("gamma", gamma)
    if name != "Celu":
        return Instruction(functions.ELU, (alpha * gamma, gamma))
    return Instruction(functions.CELU, (alpha, 0.0)) if alpha > 0 else None


def _shrink(site: Site) -> Instruction | None:
    return Instruction(
        functions.SHRINK, (site.attribute("lambd", 0.5), site.attribute("bias", 0.0))
    )


def _variadic(code: int) -> Meaning:
    def meaning(site: Site) -> Instruction | None:
        wanted = (site.node.version or 1) >= 8 and len(site.node.inputs) == 2
        return Instruction(code) if wanted else None

    return meaning


# Programs of nodes in ONNX's own domain.
PROGRAMS: Mapping[str, Meaning] = {
    **dict.fromkeys(ACTIVATIONS, _activation),
    "Abs": _since(6, opcodes.ABS),
    "Acos": _since(7, functions.ACOS),
    "Acosh": _since(9, functions.ACOSH),
    "Add": _since(7, opcodes.ADD),
    "Asin": _since(7, functions.ASIN),
    "Asinh": _since(9, functions.ASINH),
    "Atan": _since(7, functions.ATAN),
    "Atanh": _since(9, functions.ATANH),
    "Ceil": _since(6, opcodes.CEIL),
    "Celu": _elu,
    "Cos": _since(7, functions.COS),
    "Cosh": _since(9, functions.COSH),
    "Div": _since(7, opcodes.DIV),
    "Elu": _elu,
    "Erf": _since(9, opcodes.ERF),
    "Exp": _since(6, opcodes.EXP),
    "Floor": _since(6, opcodes.FLOOR),
    "Log": _since(6, functions.LOG),
    "Max": _variadic(opcodes.MAX),
    "Min": _variadic(opcodes.MIN),
    "Mish": _since(18, functions.MISH),
    "Mul": _since(7, opcodes.MUL),
    "Neg": _since(6, opcodes.NEG),
    "PRelu": _since(7, opcodes.PRELU),
    "Pow": _power,
    "Reciprocal": _since(6, opcodes.RECIPROCAL),
    "Selu": _elu,
    "Shrink": _shrink,
    "Sin": _since(7, functions.SIN),
    "Sinh": _since(9, functions.SINH),
    "Softplus": _since(1, functions.SOFTPLUS),
    "Sqrt": _since(6, opcodes.SQRT),
    "Sub": _since(7, opcodes.SUB),
    "Swish": _swish,
    "Tan": _since(7, functions.TAN),
}


@specialize(*PROGRAMS)
def specialize_others(site: Site, plain: Call) -> Call | None:
    """Take what is known to be of other types than float32, which chains are of."""
    dtype = site.dtype(0)
    if dtype is None or dtype == F32:  # None is float64 to numpy
        return None
    from tenonnx_cpu.elementwise.operators import typed

    return typed(site, plain)


def line_of(node: ir.Node, threads: int) -> Instruction | None:
    """Return the instruction that a node is, without its operands; ``None`` if it is none."""
    meaning = PROGRAMS.get(node.op_type) if not node.domain else None
    if meaning is None or len(node.outputs) != 1 or not node.inputs:
        return None
    if not all(_may_be_float(value) for value in (*node.inputs, *node.outputs)):
        _pass_on_double(node)
        return None
    line = meaning(Site(node, threads))
    return None if line is None or None in node.inputs[: _operands(line)] else line


def _operands(line: Instruction) -> int:
    return line.operands or (2 if opcodes.ADD <= line.code < functions.FUNCTIONS else 1)


def _may_be_float(value: ir.Value | None) -> bool:
    return value is None or value.dtype is None or int(value.dtype) == FLOAT


def _pass_on_double(node: ir.Node) -> None:
    """Note that a result is of float64, where the model does not: the next node is no program.

    Nodes come in order, so that this goes on through chains of any length.
    """
    given, made = node.inputs[0], node.outputs[0]
    told = None if given is None else given.dtype
    if made.dtype is None and told is not None and int(told) == DOUBLE:
        made.dtype = told


class _Constant(NamedTuple):
    shape: tuple[int, ...]
    value: float


def scalar_of(value: ir.Value) -> _Constant | None:
    """Return a constant of one float32."""
    tensor = value.const_value if is_constant(value) else None
    if tensor is None or tensor.size != 1:
        return None
    array = on_host(tensor)
    return _Constant(array.shape, float(array.reshape(-1)[0])) if array.dtype == F32 else None


class HalfCast(NamedTuple):
    """A cast between float32 and 16-bit floats.

    Attributes:
        element: The type of 16 bits, as ``operations`` has it.
        widens: Whether it is the operand's.
    """

    element: int
    widens: bool


def cast_of(node: ir.Node) -> HalfCast | None:
    """Return the cast that a node is, if it is one between float32 and 16-bit floats."""
    if node.op_type != "Cast" or node.domain or (node.version or 1) < 6:
        return None
    source = None if node.inputs[0] is None else node.inputs[0].dtype
    codes = (0 if source is None else int(source)), attribute(node, "to", 0)
    for widens, (wide, narrow) in ((False, codes), (True, codes[::-1])):
        if wide == FLOAT and narrow in HALF_OF_ONNX:
            return HalfCast(HALF_OF_ONNX[narrow], widens)
    return None


def _casts_at_ends(subgraph: Sequence[ir.Node]) -> bool:
    """Return whether arrays alone are widened, and the result alone is rounded."""
    inside = {value for node in subgraph for value in node.outputs}
    for node in subgraph:
        cast = cast_of(node)
        if cast is not None and (
            node.inputs[0] in inside if cast.widens else node is not subgraph[-1]
        ):
            return False
    return True


class ProgramCompiler:
    """A compiler of nodes to programs; what nodes and constants are it finds out once.

    Long chains ask hundreds of times.

    Args:
        threads: How many a kernel may use.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._lines: dict[ir.Node, Instruction | None] = {}
        self._scalars: dict[ir.Value, _Constant | None] = {}

    def line(self, node: ir.Node) -> Instruction | None:
        """Return the instruction that a node is, without its operands; ``None`` if it is none."""
        if node not in self._lines:
            self._lines[node] = line_of(node, self.threads)
        return self._lines[node]

    def is_instruction(self, node: ir.Node) -> bool:
        """Return whether a node may be part of a program."""
        return self.line(node) is not None or cast_of(node) is not None

    def scalar(self, value: ir.Value) -> _Constant | None:
        """Return a constant of one float32."""
        if value not in self._scalars:
            self._scalars[value] = scalar_of(value)
        return self._scalars[value]

    def hopeless(self, values: Iterable[ir.Value]) -> bool:
        """Return whether these are more than a program reads."""
        return sum(self.scalar(value) is None for value in values) > MAX_INPUTS

    def fits(self, subgraph: Sequence[ir.Node]) -> bool:
        """Return whether a program can compute some nodes."""
        arrays = [value for value in inputs_of(subgraph) if self.scalar(value) is None]
        if not 1 <= len(arrays) <= MAX_INPUTS or not _casts_at_ends(subgraph):
            return False
        program, _ = self.compiled(subgraph)
        return bool(program.lines) and program.fits()

    def compiled(self, subgraph: Sequence[ir.Node]) -> tuple[Program, tuple[ir.Value, ...]]:
        """Return the program of some nodes, and what it reads."""
        program = Program()
        places: dict[ir.Value, int] = {}
        arrays: list[ir.Value] = []
        for node in subgraph:
            if (cast := cast_of(node)) is not None:
                value, (result,) = node.inputs[0], node.outputs
                assert value is not None
                if cast.widens and value not in places:
                    places[value] = program.array(cast.element)
                    arrays.append(value)
                elif not cast.widens:
                    program.result = cast.element
                places[result] = places[value]
                continue
            line = self.line(node)
            assert line is not None
            operands = []
            for value in node.inputs[: _operands(line)]:
                assert value is not None
                if value not in places:
                    if (constant := self.scalar(value)) is not None:
                        places[value] = program.number(constant.value, constant.shape)
                    else:
                        places[value] = program.array()
                        arrays.append(value)
                operands.append(places[value])
            places[node.outputs[0]] = _add(program, line, operands)
        return program, tuple(arrays)


def _add(program: Program, line: Instruction, operands: list[int]) -> int:
    """Add the instruction of a node, or those of a Swish whose slope is not 1."""
    slope = line.numbers[0]
    if line.code != opcodes.SILU or slope == 1:
        return program.add(line, operands)
    inside = program.add(Instruction(opcodes.MUL), (*operands, program.number(slope)))
    gate = program.add(Instruction(opcodes.SIGMOID), (inside,))
    return program.add(Instruction(opcodes.MUL), (*operands, gate))


@fusion(*PROGRAMS, priority=ELEMENTWISE)
def fuse_chain(node: ir.Node, scope: Scope) -> Fused | None:
    """Take a subgraph of elementwise nodes, or one that is known to be of float32."""
    threads = scope.threads
    known = scope.known
    compiler: ProgramCompiler = known.get(COMPILER) or known.setdefault(
        COMPILER, ProgramCompiler(threads)
    )
    member, fits = compiler.is_instruction, compiler.fits
    subgraph = find_subgraph(node, scope, member, fits, compiler.hopeless)
    if subgraph is None:
        if not (member(node) and _pays_alone(node) and fits([node])):
            return None
        subgraph = [node]
    program, arrays = compiler.compiled(subgraph)
    return scope.fused(
        subgraph, arrays, lambda plain: Capturable(ProgramCall(program, plain, threads).launch)
    )


def _pays_alone(node: ir.Node) -> bool:
    """Return whether a node is worth a program: what is not float32 only costs it a look."""
    from tenonnx.graph.dtypes import dtype_of

    return node.op_type in COSTLY or dtype_of(node.outputs[0]) == FLOAT
