"""From typed functions to LLVM's language: what numba does, less what kernels have no use for.

Kernels own no memory: arrays are their callers', so nobody counts references. They have no
environment either, for they use nothing of Python's.
"""

from __future__ import annotations

import operator
from typing import Any

from numba.core import lowering, typed_passes
from numba.core.compiler_machinery import register_pass
from numba.core.runtime.context import NRTContext


class Uncounted(NRTContext):
    """numba's runtime without counters of references; what allocates finds no function to call."""

    def incref(self, builder: Any, typ: Any, value: Any) -> None:
        """Do nothing."""

    def decref(self, builder: Any, typ: Any, value: Any) -> None:
        """Do nothing."""


class Lower(lowering.Lower):
    """Lowers a function whose variables are memory of the stack and nothing more."""

    def emit_environment_object(self) -> None:
        """Do nothing."""

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable; what it held before needs no care."""
        del argidx
        self._alloca_var(name, self.typeof(name))
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, self.getvar(name))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Lower arithmetic by the types that are known; numba would type it again.

        An operand that is a constant has a definition of its own only as an exponent.
        """
        if op in (operator.pow, operator.ipow):
            return super().lower_binop(resty, expr, op)
        context, typing = self.context, self.context.typing_context
        given = self.fndesc.calltypes[expr].args
        values = [
            context.cast(self.builder, self.loadvar(each.name), self.typeof(each.name), kind)
            for each, kind in zip((expr.lhs, expr.rhs), given, strict=True)
        ]
        function = typing.resolve_value_type(op)
        signature = typing.resolve_function_type(function, given, {})
        result = context.get_function(function, signature)(self.builder, values)
        return context.cast(self.builder, result, signature.return_type, resty)

    def delvar(self, name: str) -> None:
        """Note that a variable is deleted before it is set, as in a loop; the memory stays."""
        if name not in self._blk_local_varmap:
            self._singly_assigned_vars.discard(name)
        self._alloca_var(name, self.typeof(name))


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(typed_passes.NativeLowering):
    """Numba's pass, lowering so."""

    _name = "tenonnx_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """The function that lowers."""
        return Lower
