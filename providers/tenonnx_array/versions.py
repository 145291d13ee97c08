"""Older forms of a kernel, told apart by its attributes alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tenonnx.operators import Array, Namespace


def without(kernel: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Return the form of a kernel before it had these attributes: their defaults are its ways."""

    @functools.wraps(kernel)
    def older(xp: Namespace, *inputs: Array, **attributes: Any) -> Any:
        return kernel(xp, *inputs, **attributes)

    signature = inspect.signature(kernel)
    kept = [p for p in signature.parameters.values() if p.name not in names]
    vars(older)["__signature__"] = signature.replace(parameters=kept)
    return older
