"""Models with all optimizations against the same node by node, on numpy and on kernels."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from drafts import Case, Row, drawn

import tenonnx
from fusing import Plain

ALL, NONE = (
    tenonnx.GraphOptimizationLevel.ORT_ENABLE_ALL,
    tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL,
)

PLUGINS = tenonnx.PluginSet()
PLUGINS.register(Plain())

ROUNDING = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-9}
"""The greatest difference of results, as a part of the greatest of them."""


def session(
    case: Case, provider: str, level: Any, disabled: Sequence[str] = ()
) -> tenonnx.InferenceSession:
    """Return a session of a model; the provider ``plain`` is numpy, and take every transform."""
    options = tenonnx.SessionOptions(
        plugins=PLUGINS, graph_optimization_level=level, disabled_transforms=tuple(disabled)
    )
    options.intra_op_num_threads = 1
    return tenonnx.InferenceSession(case.model, options, providers=[provider])


def answer(case: Case, provider: str, level: Any, disabled: Sequence[str] = ()) -> Any:
    """Return a session's outputs of three runs, or its error."""
    try:
        made = session(case, provider, level, disabled)
        results = [made.run(None, case.feeds) for _ in range(1 if level == NONE else 3)]
    except Exception as error:
        return error
    return results


def differing(case: Case, provider: str = "plain", disabled: Sequence[str] = ()) -> str | None:
    """Return how a model with all optimizations differs from the same without, if it does.

    Those that are disabled leave what the provider fuses itself.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected, actual = answer(case, "plain", NONE), answer(case, provider, ALL, disabled)
    if isinstance(expected, Exception) or isinstance(actual, Exception):
        if isinstance(expected, Exception) and isinstance(actual, Exception):
            return None
        return f"{expected if isinstance(expected, Exception) else 'results'} -> {actual!r:.300}"
    for results in actual:
        for output, (old, new) in enumerate(zip(expected[0], results, strict=True)):
            if (wrong := _apart(old, new, case.rounding)) is not None:
                return f"output {output}: {wrong}"
    return None


def _apart(old: Any, new: Any, rounding: float) -> str | None:
    if isinstance(old, list):
        apart = [_apart(*each, rounding) for each in zip(old, new, strict=True)]
        return next(filter(None, apart), None)
    old, new = np.asarray(old), np.asarray(new)
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        return f"{old.dtype}{old.shape} -> {new.dtype}{new.shape}"
    if old.dtype.kind != "f":
        return None if np.array_equal(old, new) else f"{old.ravel()[:4]} -> {new.ravel()[:4]}"
    finite = old[np.isfinite(old)]
    scale = float(np.abs(finite.astype(np.float64)).max(initial=1e-3))
    atol = max(rounding, ROUNDING[old.dtype.name]) * scale
    same = np.allclose(new.astype(np.float64), old.astype(np.float64), 0, atol, equal_nan=True)
    return None if same else f"{old.ravel()[:6]} -> {new.ravel()[:6]}"


def base(options: Sequence[Any]) -> Any:
    """Choose what exporters write."""
    return options[0]


def deviations(row: Row, **options: Any) -> Iterator[tuple[str, Case]]:
    """Yield a row's models that differ from the base form in one choice, and which."""
    sizes: list[int] = []

    def count(given: Sequence[Any]) -> Any:
        sizes.append(len(given))
        return given[0]

    drawn(row, count, **options)
    for place, size in enumerate(sizes):
        for other in range(1, size):
            chosen: list[Any] = []
            yield_case = drawn(row, _at(place, other, chosen), **options)
            yield f"choice {place}: {chosen[0] if chosen else '?'}", yield_case


def _at(place: int, other: int, chosen: list[Any]) -> Callable[[Sequence[Any]], Any]:
    calls = iter(range(1000))

    def choose(given: Sequence[Any]) -> Any:
        if next(calls) != place:
            return given[0]
        chosen.append(given[other] if other < len(given) else given[-1])
        return chosen[0]

    return choose
