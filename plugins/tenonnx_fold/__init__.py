"""Constants: lifted out of nodes, folded ahead of the run, and dropped when nobody reads them."""

from __future__ import annotations

from collections.abc import Callable

from tenonnx import Transform, hookimpl


@hookimpl
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Announce the transforms; they run in this order."""

    def add(name: str, place: str, order: int, *needs: str) -> None:
        apply = Transform.later(f"tenonnx_fold.{place}")
        register(Transform(name, apply, "basic", order, needs=needs))

    add("lift-constants", "tidy:lift_constants", 10, "Constant")
    add("free-loop-invariants", "loops:free_invariants", 15, "Loop")
    add("fold-constants", "fold:fold_constants", 20)
    add("remove-unused", "tidy:remove_unused", 1000)
