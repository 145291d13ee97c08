"""Steps that are repeated as one, in memory that they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from emulated import FakePlatform, provider_on, session
from kernel_calls import needs_compiler
from test_cuda_execution import on_device
from test_cuda_replay import draw

import tenonnx
from models import model, node, value
from tenonnx_cuda.capture.captured_call import CapturedCall
from tenonnx_cuda.capture.step_fusion import MAX_RUNS_WITHOUT_REPLAY, FusedSteps


def chained(count: int, *, odd: str = "") -> Any:
    """Softmaxes one after another, and one operator that is the array library's."""
    nodes = [node("Softmax", f"h{n}", f"h{n + 1}") for n in range(count)]
    if odd:
        middle = node(odd, f"h{count // 2}", "odd")
        nodes[count // 2] = node("Softmax", "odd", f"h{count // 2 + 1}")
        nodes.insert(count // 2, middle)
    shape = (2, "n")
    return model(nodes, [value("h0", shape=shape)], [value(f"h{count}", shape=shape)])


def joined(opened: tenonnx.InferenceSession) -> list[FusedSteps]:
    """Return the groups of a session whose other steps are the array library's."""
    calls = (step.call for step in opened.plan.program.block.steps() if step.parts)
    found = [call.func.__self__ for call in calls]  # bound to the stream
    return [each for each in found if isinstance(each, FusedSteps)]


@needs_compiler
def test_steps_between_which_nothing_is_read_are_one() -> None:
    platform = FakePlatform()
    opened = session(chained(6), provider_on(platform))
    (group,) = joined(opened)
    x = draw(0, 2, 8).astype(np.float32)
    (first,) = opened.run(None, {"h0": x})
    for _ in range(3):
        np.testing.assert_array_equal(opened.run(None, {"h0": x})[0], first)
    (take,) = group._captured.values()
    assert isinstance(take, CapturedCall)
    assert (len(take.starts), len(take.made)) == (6, 2)


@needs_compiler
def test_steps_are_one_where_outputs_are_bound_that_none_can_write_to() -> None:
    opened = session(chained(4), provider_on(FakePlatform()))
    (group,) = joined(opened)
    cpu = tenonnx.InferenceSession(chained(4), providers=["cpu"])
    bound = on_device(opened, np.zeros((2, 8), np.float32))
    for turn in range(4):
        x = draw(turn, 2, 8).astype(np.float32)
        binding = opened.io_binding()
        binding.bind_cpu_input("h0", x)
        binding.bind_ortvalue_output("h4", bound)
        opened.run_with_iobinding(binding)
        np.testing.assert_allclose(bound.numpy(), cpu.run(None, {"h0": x})[0], rtol=1e-5)
    assert group.missed == 0


@needs_compiler
def test_an_error_names_the_node_of_a_group() -> None:
    nodes = [node("Softmax", "x", "a"), node("Reshape", "a shape", "b"), node("Softmax", "b", "y")]
    made = model(
        nodes, [value("x", shape=("n",))], [value("y", shape=None)], {"shape": np.array([2, 3])}
    )
    opened = session(made, provider_on(FakePlatform()))
    assert joined(opened)
    with pytest.raises(tenonnx.errors.RuntimeException, match=r"^Reshape 'b'"):
        opened.run(None, {"x": np.ones(7, np.float32)})


@needs_compiler
def test_a_group_is_another_for_each_shape_that_it_is_given() -> None:
    nodes = [node("Softmax", "x", "a"), node("Reshape", "a shape", "b"), node("Softmax", "b", "y")]
    given = [value("x", shape=("n",)), value("shape", onnx.TensorProto.INT64, shape=(2,))]
    made = model(nodes, given, [value("y", shape=None)])
    opened = session(made, provider_on(FakePlatform()))
    (group,) = joined(opened)
    cpu = tenonnx.InferenceSession(made, providers=["cpu"])
    for turn in range(9):
        feeds = {"x": draw(turn, 6).astype(np.float32), "shape": np.roll([2, 3], turn // 3)}
        np.testing.assert_allclose(opened.run(None, feeds)[0], cpu.run(None, feeds)[0], rtol=1e-5)
    assert len(group._captured) == 2
    assert group.missed == 0


@needs_compiler
def test_a_step_that_is_another_each_time_leaves_the_others() -> None:
    opened = session(chained(6, odd="Softplus"), provider_on(FakePlatform()))
    (group,) = joined(opened)
    cpu = tenonnx.InferenceSession(chained(6, odd="Softplus"), providers=["cpu"])
    for turn in range(2 * MAX_RUNS_WITHOUT_REPLAY):
        x = draw(turn, 2, 8).astype(np.float32)
        expected = cpu.run(None, {"h0": x})[0]
        np.testing.assert_allclose(opened.run(None, {"h0": x})[0], expected, rtol=1e-5)
    calls = [step.call for step in group._call._steps]  # type: ignore[attr-defined]
    assert [call.missed == 0 for call in calls] == [True, False, True]
