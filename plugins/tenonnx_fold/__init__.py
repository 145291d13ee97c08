"""Constants: lifted out of nodes, folded ahead of the run, and dropped when nobody reads them."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transforms; they run in this order."""
    from tenonnx_fold.fold import fold_constants
    from tenonnx_fold.loops import free_invariants
    from tenonnx_fold.tidy import lift_constants, remove_unused

    constant = ("Constant",)
    register(Transform("lift-constants", lift_constants, level="basic", order=10, needs=constant))
    register(Transform("free-loop-invariants", free_invariants, level="basic", order=15))
    register(Transform("fold-constants", fold_constants, level="basic", order=20))
    register(Transform("remove-unused", remove_unused, level="basic", order=1000))
