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

    def add(name: str, apply: Callable[..., bool], order: int, *needs: str) -> None:
        register(Transform(name, apply, "basic", order, needs=needs))

    add("lift-constants", lift_constants, 10, "Constant")
    add("free-loop-invariants", free_invariants, 15, "Loop")
    add("fold-constants", fold_constants, 20)
    add("remove-unused", remove_unused, 1000)
