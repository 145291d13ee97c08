"""Steps refer to functions of modules and to data: no closure, no lambda, nothing of onnx_ir."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import onnx_ir as ir
import pytest

import tenonnx
from walked import exported, not_data, onnx_models


@pytest.mark.parametrize("models", [onnx_models, exported])
@pytest.mark.parametrize(
    "level",
    [tenonnx.GraphOptimizationLevel.ORT_ENABLE_ALL, tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL],
)
def test_steps_are_data(models: Callable[[], Iterator[Any]], level: Any) -> None:
    options = tenonnx.SessionOptions(graph_optimization_level=level)
    opened = 0
    for model in models():
        try:
            session = tenonnx.InferenceSession(model, options, providers=["cpu"])
        except tenonnx.TenonnxError:  # an operator that no provider runs
            continue
        plan = session.plan
        assert not not_data([plan.program, plan.steps, plan.placement]), model
        opened += 1
    assert opened > 50


def test_what_is_no_data_is_found() -> None:
    def closure() -> list[str]:
        return names

    names = ["a"]
    value = ir.val("x")
    given = functools.partial(print, {"a": (closure, lambda: None)}, [value])
    assert not_data([given]) == {
        f"{__name__}.test_what_is_no_data_is_found.<locals>.closure",
        f"{__name__}.test_what_is_no_data_is_found.<locals>.<lambda>",
        "onnx_ir.Value in a step",
    }
