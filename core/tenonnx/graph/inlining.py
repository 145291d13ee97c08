"""onnx_ir's inliner, in time that is proportional to what it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from tenonnx.graph import nodes as graph_nodes


class Inliner(InlinePass):
    """The pass, with names that need not be looked for, and told of the functions at once."""

    def __init__(self) -> None:
        super().__init__(_one_call_at_a_time())

    def _reset(self, model: ir.Model) -> None:
        # The pass looks for a short name of each function among those of all others.
        super()._reset(ir.Model(ir.Graph([], [], nodes=[]), ir_version=model.ir_version))
        self._functions = model.functions
        self._function_id_abbreviations = {
            key: "_".join(filter(None, key)) for key in model.functions
        }
        self._opset_imports = model.opset_imports


def _one_call_at_a_time() -> Callable[[ir.Function], bool]:
    """Return the pass's question whether to inline a call, which is asked for one at a time.

    The answer is yes, and what the body names has names of its own by then. The pass makes them,
    too, but tries number after number for each, so its time grows with the square of the calls.
    """
    uses: Counter[str] = Counter()
    named: dict[ir.OperatorIdentifier, list[tuple[ir.Node | ir.Value, str]]] = {}

    def inline(function: ir.Function) -> bool:
        key = function.identifier()
        if key not in named:
            nodes = list(graph_nodes(function))
            named[key] = [(node, node.name or "node") for node in nodes]
            named[key] += [(v, v.name or "val") for node in nodes for v in node.outputs]
        for each, name in named[key]:
            uses[name] += 1
            each.name = name if uses[name] == 1 else f"{name}_{uses[name]}"
        return True

    return inline
