"""Constant nodes become initializers; nodes and initializers that nobody reads go."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass, RemoveUnusedNodesPass

from tenonnx import TransformContext


def lift_constants(model: ir.Model, context: TransformContext) -> bool:
    """Turns every Constant node into an initializer over the same weight."""
    del context
    return bool(
        LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified
    )


def remove_unused(model: ir.Model, context: TransformContext) -> bool:
    """Removes nodes and initializers that no output depends on."""
    del context
    return bool(RemoveUnusedNodesPass()(model).modified)
