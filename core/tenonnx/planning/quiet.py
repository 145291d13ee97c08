"""Floating-point warnings of numpy off: infinities and NaN are results like others in ONNX."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# The settings of ``np.errstate``. To set it to what was made once takes a fifth of the time.
_SETTING: Any = getattr(sys.modules.get("numpy._core.umath"), "_extobj_contextvar", None)

with np.errstate(all="ignore"):
    _IGNORING = None if _SETTING is None else _SETTING.get()


def quietly(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Return ``function(*arguments)``, during which numpy warns of nothing."""
    if _SETTING is None:
        with np.errstate(all="ignore"):
            return function(*arguments)
    before = _SETTING.get()  # no token: a signal's handler may raise before it is kept
    try:
        _SETTING.set(_IGNORING)
        return function(*arguments)
    finally:
        _SETTING.set(before)
