"""The jax provider: the contract, one compiled function for a segment, shapes by value."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from rounded import ROUNDED

import tenonnx
from child import child
from tenonnx.testing import ProviderTests, models

pytest.importorskip("jax", reason="jax is not installed; tox -e frameworks")


class TestJax(ProviderTests):
    provider = "jax"
    cases = "test_a*"
    gaps = ROUNDED
    frameworks = ("jax",)
    examples = 5


def session(model: object) -> tenonnx.InferenceSession:
    return tenonnx.InferenceSession(model, providers=["jax", "cpu"])


def test_a_model_is_one_step_and_its_weights_are_arguments() -> None:
    opened = session(models.mlp())
    (step,) = opened.plan.steps
    assert [n.op_type for n in step.nodes] == [n.op_type for n in opened.model.graph]
    names = {value.name for value in step.inputs if value is not None}
    assert names == {"x", "w1", "b1", "w2", "b2"}


def test_weights_at_64_bytes_are_used_where_they_are() -> None:
    memory = np.zeros(1 << 10, np.float32)
    start = -memory.ctypes.data % 64 // 4
    given = memory[start : start + 64]
    device = opened_device()
    assert device.upload(given).unsafe_buffer_pointer() == given.ctypes.data


def opened_device() -> object:
    (provider,) = (
        p for n, p in tenonnx.default_plugins().providers.items() if n == "JaxExecutionProvider"
    )
    return provider.device


def test_shapes_that_come_as_inputs_are_taken_by_value() -> None:
    model = models.build(
        "s = Concat <axis = 0> (rows, columns) y = Reshape(x, s)",
        "float[n] x, int64[1] rows, int64[1] columns",
        "float[a, b] y",
    )
    opened = session(model)
    x = np.arange(12, dtype=np.float32)
    for rows in (2, 3, 2):
        feeds = {"x": x, "rows": np.array([rows]), "columns": np.array([-1])}
        np.testing.assert_array_equal(opened.run(None, feeds)[0], x.reshape(rows, -1))


def test_what_depends_on_data_is_left_to_the_cpu() -> None:
    model = models.build(
        "i = NonZero(x) s = Shape(i) r = Reshape(x, s2) y = Neg(r) s2 = Identity(s)",
        "float[n] x",
        "float[a, b] y",
    )
    opened = session(model)
    reasons = {a.node.op_type: a.reasons for a in opened.placement.elsewhere()}
    assert "NonZero" in reasons
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(opened.run(None, {"x": x})[0], -x.reshape(1, 4))


def test_nodes_between_others_are_one_function() -> None:
    """Abs, Neg and Exp are one, between which is what jax cannot trace; Concat reads that."""
    body = "a = Abs(x) n = NonZero(a) b = Neg(a) m = NonZero(b) y = Exp(b) i = Concat<axis=1>(n, m)"
    model = models.build(body, outputs="float[k] y, int64[1, j] i")
    session = tenonnx.InferenceSession(model, providers=["jax", "cpu"])
    counted = Counter(step.device.id for step in session.plan.steps)
    assert counted["jax"] == 2
    x = np.array([-1, 0, 2], np.float32)
    y, i = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp(-np.abs(x)), rtol=1e-6)
    assert i.tolist() == [[0, 2, 0, 2]]


COMPILES = """
import json, os, sys
import numpy as np, tenonnx
import tenonnx_jax.provider as own

compiled, serialized = [], own.JaxExecutionProvider.serialized
def counting(self, function, types):
    compiled.append([each.shape for each in types])
    return serialized(self, function, types)
own.JaxExecutionProvider.serialized = counting
session = tenonnx.InferenceSession(os.environ["MODEL"], providers=["jax", "cpu"])
found = []
for rows in json.loads(os.environ["ROWS"]):
    feeds = {"x": np.arange(rows * 16, dtype=np.float32).reshape(rows, 16)}
    found.append(float(session.run(None, feeds)[0].sum()))
print(json.dumps([len(compiled), found, session.load_times.uncached, "onnx_ir" in sys.modules]))
"""


def test_compiled_functions_are_kept_for_later_processes(tmp_path: Path) -> None:
    """A function for each shape; the nodes are read for a new one alone."""
    onnx.save(models.mlp(), tmp_path / "model.onnx")

    def compiles(rows: list[int]) -> tuple[int, list[float], str, bool]:
        given = {"MODEL": tmp_path / "model.onnx", "ROWS": json.dumps(rows)}
        return child(COMPILES, TENONNX_CACHE_DIR=tmp_path / "cache", **given)

    number, first, uncached, _ = compiles([2, 3, 2])
    assert (number, uncached) == (2, "")
    assert compiles([3, 2]) == [0, [first[1], first[0]], "", False]
    number, found, _, read = compiles([4, 3])
    assert (number, found[1], read) == (1, first[1], True)
