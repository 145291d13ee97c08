"""Providers that compile by tracing, and windows for libraries with convolutions of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import tenonnx
from hooks import options_with
from tenonnx.testing import ProviderTests, models
from tenonnx_array.provider import ArrayProvider
from tenonnx_array.tracing import MAX_COMPILED, Function, TracingProvider
from tenonnx_array.window_table import window_table
from tenonnx_array.windows import Windows
from walked import not_data

made: list[Function] = []


class Recording(TracingProvider):
    """Compiles nothing, and keeps every function that it is given."""

    name = "RecordingExecutionProvider"
    aliases = ("recording",)
    domains = frozenset(("",))
    without: ClassVar[dict[str, str]] = {"NonZero": "its result's shape is data"}

    def jit(self, function: Function) -> Function:
        """Return it as it is."""
        made.append(function)
        return function


def opened(model: Any) -> tenonnx.InferenceSession:
    made.clear()
    providers = ["RecordingExecutionProvider", "cpu"]
    return tenonnx.InferenceSession(model, options_with(Recording), providers=providers)


class TestRecording(ProviderTests):
    provider = Recording
    cases = "test_re*"
    examples = 5


def test_a_segment_is_one_function_of_inputs_and_weights() -> None:
    session = opened(models.mlp())
    (step,) = session.plan.steps
    assert [n.op_type for n in step.nodes] == [n.op_type for n in session.model.graph]
    names = {value.name for value in step.inputs if value is not None}
    assert names == {"x", "w1", "b1", "w2", "b2"}
    for rows in (2, 3):
        session.run(None, {"x": np.ones((rows, 16), np.float32)})
    assert len(made) == 1


def test_steps_are_data() -> None:
    (step,) = opened(models.mlp()).plan.steps
    assert not_data([step.call]) == set()


def test_kernels_of_a_table_are_data() -> None:
    assert not_data(kernel.call for kernel in Windowed.overrides) == set()


def test_there_is_a_function_for_all_that_a_trace_depends_on() -> None:
    body = "s = Concat <axis = 0> (rows, columns) y = Reshape(x, s)"
    session = opened(models.build(body, "float[n] x, int64[1] rows, int64[1] columns", "float[] y"))
    x = np.arange(12, dtype=np.float32)
    for rows in (2, 3, 2):
        feeds = {"x": x, "rows": np.array([rows]), "columns": np.array([-1])}
        np.testing.assert_array_equal(session.run(None, feeds)[0], x.reshape(rows, -1))
    assert len(made) == 2


def test_a_step_keeps_the_functions_used_last() -> None:
    model = models.build("y = Reshape(x, shape)", "float[n] x, int64[1] shape", "float[] y")
    session = opened(model)
    for size in (*range(1, MAX_COMPILED + 2), 1, MAX_COMPILED + 1):
        feeds = {"x": np.ones(size, np.float32), "shape": np.array([size])}
        assert session.run(None, feeds)[0].shape == (size,)
    assert len(made) == MAX_COMPILED + 2


def test_what_a_trace_cannot_know_is_left_to_the_next() -> None:
    body = "i = NonZero(x) s = ReduceMax <keepdims = 1> (i) y = Expand(x, s)"
    session = opened(models.build(body, "float[n] x", "float[] y"))
    reasons = {a.node.op_type: a.reasons for a in session.placement.elsewhere()}
    assert "would have to be known before the run" in str(reasons["Expand"])


def test_what_is_known_before_a_run_follows_in_time_from_long_calculations() -> None:
    steps = ["s0 = Add(shape, zero)"]
    steps += [f"s{i} = Max(s{i - 1}, s{i - 1})" for i in range(1, 1500)]
    body = "\n".join([*steps, "y = Reshape(x, s1499)"])
    session = opened(models.build(body, "float[n] x, int64[1] shape, int64[1] zero", "float[] y"))
    assert not list(session.placement.elsewhere())
    feeds = {"x": np.ones(3, np.float32), "shape": np.array([3]), "zero": np.array([0])}
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.ones(3))


def test_transforms_into_other_domains_are_left_out() -> None:
    session = opened(models.mlp())
    notes = {report.name: report.notes for report in session.transforms}
    why = "left to RecordingExecutionProvider: it has no operators of com.microsoft"
    assert notes["attention"] == (why,)
    assert notes["layer-norm"] == ()


def views(X: Any, windows: Windows, value: float) -> Any:
    """Return what each window of X sees, (N, C, *output, *kernel), by numpy's own windows."""
    grown = [(max(side, 0) for side in sides) for sides in windows.around]
    X = np.pad(X, [(0, 0), (0, 0), *map(tuple, grown)], constant_values=value)
    kept = [slice(None, min(end, 0) or None) for _, end in windows.around]
    X = X[(..., *kept)]
    rank = len(windows.size)
    spans = [(k - 1) * d + 1 for k, d in zip(windows.kernel, windows.dilations, strict=True)]
    found = sliding_window_view(X, spans, axis=tuple(range(2, 2 + rank)))
    strides = [slice(None, None, stride) for stride in windows.strides]
    taps = [slice(None, None, dilation) for dilation in windows.dilations]
    found = found[(slice(None), slice(None), *strides, *taps)]
    assert found.shape[2 : 2 + rank] == windows.output
    return found


def convolve(xp: Any, X: Any, W: Any, B: Any, windows: Windows, group: int) -> Any:
    rank = len(windows.size)
    parts = []
    for X_part, W_part in zip(np.split(X, group, 1), np.split(W, group), strict=True):
        axes = [1, *range(2 + rank, 2 + 2 * rank)]
        seen = views(X_part, windows, 0)
        parts.append(np.moveaxis(xp.tensordot(seen, W_part, (axes, range(1, 2 + rank))), -1, 1))
    Y = xp.concatenate(parts, axis=1)
    return Y if B is None else Y + B.reshape(-1, *(1,) * rank)


def reduced(how: Callable[..., Any], X: Any, windows: Windows, value: float) -> Any:
    rank = len(windows.size)
    return how(views(X, windows, value), axis=tuple(range(2 + rank, 2 + 2 * rank)))


def greatest(xp: Any, X: Any, windows: Windows) -> Any:
    least = -np.inf if X.dtype.kind == "f" else np.iinfo(X.dtype).min
    return reduced(xp.max, X, windows, least)


def average(xp: Any, X: Any, windows: Windows, counts: Any) -> Any:
    return reduced(xp.sum, X, windows, 0) / counts.astype(X.dtype)


class Windowed(ArrayProvider):
    """Slides windows by numpy's."""

    name = "WindowedExecutionProvider"
    aliases = ("windowed",)
    overrides = window_table(convolve, greatest, average)
    complete = True


class TestWindowed(ProviderTests):
    provider = Windowed
    test_shapes_and_dtypes = None  # they are of other operators
    examples = 1
