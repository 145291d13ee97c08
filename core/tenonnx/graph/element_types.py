"""Whether element types fit together: those of operands, and those that a model declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx.errors import MalformedGraph
from tenonnx.graph.dtypes import result_type, said_type

if TYPE_CHECKING:
    from typing import TypeAlias

    Types: TypeAlias = dict[ir.Value, ir.DataType]

# ai.onnx operators whose operands have one type; all inputs are operands, Where's first is not.
OF_ONE_TYPE: Final = frozenset(
    """
    Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Clip Concat Conv ConvTranspose Div Equal Gemm
    Greater GreaterOrEqual Less LessOrEqual MatMul Max Mean Min Mod Mul Or PRelu Sub Sum Where Xor
    """.split()  # noqa: SIM905 - a list would be a page
)

_OF_ONE_TENSOR = (
    "AveragePool",
    "GlobalAveragePool",
    "LeakyRelu",
    "ReduceMean",
    "Sigmoid",
    "Softmax",
)

# Those of which only some inputs have one type: tensors, and the zero points that belong to them.
#
# Schemas say so, too, but reading one loads all of them, which takes longer than a small session.
WITH_ZERO_POINTS: Final = {
    ("", "ConvInteger"): ((0, 2), (1, 3)),
    ("", "DequantizeLinear"): ((0, 2),),
    ("", "MatMulInteger"): ((0, 2), (1, 3)),
    ("", "QLinearConv"): ((0, 2), (3, 5)),
    ("", "QLinearMatMul"): ((0, 2), (3, 5)),
    **{("com.microsoft", f"QLinear{name}"): ((0, 2, 3, 5, 7),) for name in ("Add", "Mul")},
    **{("com.microsoft", f"QLinear{name}"): ((0, 2, 4),) for name in _OF_ONE_TENSOR},
    ("com.microsoft", "QLinearWhere"): ((1, 3, 4, 6, 8),),
}


def check_types(graph: ir.Graph) -> None:
    """Check that operands have one type where an operator wants one, and results the declared one.

    Types follow from the weights' and the model's inputs' through all operators of which it is
    known. What a model declares of other values counts where nothing is known.

    Raises:
        InvalidGraph: Two operands have different types, or a value another than the model declares.
    """
    _check(graph, {})


def _check(graph: ir.Graph, types: Types) -> None:
    for value in (*graph.inputs, *graph.initializers.values()):
        if (kind := said_type(value)) is not None:
            types[value] = kind
        if value.const_value is not None and value.is_graph_input() and value.dtype != kind:
            raise MalformedGraph(
                f"the initializer '{value.name}' is {_name(kind)}, and the input of that name "
                f"{_name(value.dtype)}"
            )
    for node in graph:
        if graphs.has_bodies(node):
            for _, body in graphs.subgraphs(node):
                _check(body, types)
        if not node.domain and node.op_type in OF_ONE_TYPE:
            _check_one_type(node, node.inputs[node.op_type == "Where" :], types)
        for positions in WITH_ZERO_POINTS.get((node.domain, node.op_type), ()):
            operands = [node.inputs[i] for i in positions if i < len(node.inputs)]
            _check_one_type(node, operands, types)
        for index, value in enumerate(node.outputs):
            _check_result(node, index, value, types)


def _check_result(node: ir.Node, index: int, value: ir.Value, types: Types) -> None:
    declared = said_type(value)
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return
    kind, alike = result_type(node, index, by_schema=declared is not None)
    kind = kind or next((types[each] for each in alike if each in types), None)
    if declared is not None and kind not in (None, declared):
        raise MalformedGraph(
            f"{graphs.label(node)} makes '{value.name}' in {_name(kind)}, the model declares "
            f"{_name(declared)}",
            hint="delete the model's value_info, and declare its outputs as they are",
        )
    if (known := kind or declared) is not None:
        types[value] = known


def _check_one_type(node: ir.Node, operands: Sequence[ir.Value | None], types: Types) -> None:
    first: tuple[ir.Value, ir.DataType] | None = None
    for value in operands:
        if value is None or (dtype := types.get(value)) is None:
            continue
        first = first or (value, dtype)
        if dtype != first[1]:
            pair = (first, (value, dtype))
            found = " and ".join(f"{v.name} is {_name(kind)}" for v, kind in pair)
            raise MalformedGraph(
                f"{graphs.label(node)} wants operands of one type: {found}",
                hint="put a Cast before one of them",
            )


def _name(kind: ir.DataType | None) -> str:
    return "an unknown type" if kind is None else kind.name.lower()
