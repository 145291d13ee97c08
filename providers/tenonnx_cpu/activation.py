"""The activations that kernels apply to their results, and how nodes spell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tenonnx.by_name import cacheable
from tenonnx.graph.traits import ACTIVATIONS, parameters_of
from tenonnx.planning.anchors import Part, Walk, clip_bounds
from tenonnx_cpu.elementwise.kernels import opcodes
from tenonnx_cpu.kernel_selection import Site

if TYPE_CHECKING:
    import onnx_ir as ir

OPCODE_OF_NAME: Final = {
    "Clip": opcodes.CLIP,
    "Gelu": opcodes.GELU,
    "HardSigmoid": opcodes.HARD_SIGMOID,
    "HardSwish": opcodes.HARD_SWISH,
    "LeakyRelu": opcodes.LEAKY_RELU,
    "Relu": opcodes.RELU,
    "Sigmoid": opcodes.SIGMOID,
    "Softsign": opcodes.SOFTSIGN,
    "Swish": opcodes.SILU,
    "Tanh": opcodes.TANH,
    "ThresholdedRelu": opcodes.THRESHOLDED_RELU,
}

# The parameters of the HardSigmoid that is in HardSwish.
SWISH: Final = (1 / 6, 0.5)


@cacheable
class Activation(NamedTuple):
    """The operation of kernels on every number of a result.

    Attributes:
        code: One of ``elementwise.kernels.opcodes``'s.
        first: Its first parameter.
        second: Its second parameter.
    """

    code: int = opcodes.NONE
    first: float = 0.0
    second: float = 0.0


NO_ACTIVATION: Final = Activation()


def activation_of(site: Site) -> Activation | None:
    """Return what a node does to its first input, if it is an activation that kernels apply."""
    name = site.node.op_type
    if site.node.domain or name not in OPCODE_OF_NAME:
        return None
    if name == "Clip":
        bounds = clip_bounds(site.node)
        return named(name, bounds) if bounds is not None and bounds[0] <= bounds[1] else None
    if name == "Gelu" and site.attribute("approximate", "none") == "tanh":
        return Activation(opcodes.GELU_TANH)
    if name == "Swish" and site.attribute("alpha", 1.0) != 1.0:
        return None
    return named(name, [float(site.attribute(*known)) for known in ACTIVATIONS[name].items()])


def named(name: str, given: Sequence[float] = ()) -> Activation | None:
    """Return an activation by its operator's name and the parameters that are given."""
    if name == "HardSwish":
        given = SWISH
    elif name != "Clip":
        given = parameters_of(name, given)
    return Activation(OPCODE_OF_NAME[name], *given[:2]) if name in OPCODE_OF_NAME else None


def _activation(node: ir.Node, walk: Walk[Any]) -> Activation | str:
    made = activation_of(walk.scope.site(node))
    return "kernels do not apply it with its parameters" if made is None else made


# The last operation of anchors on their results.
ACTIVATION_PART: Final = Part("activation", tuple(OPCODE_OF_NAME), _activation)
