"""Sessions that load cached plans: the same answers, also in other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plan_models import (
    LAYERS,
    MODELS,
    OVERRIDABLE,
    X,
    answers,
    assert_same,
    is_kept,
    opened,
    replaced,
    saved,
)

import tenonnx


@pytest.mark.parametrize("name", MODELS)
def test_the_same_answers(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "model.onnx", MODELS[name])
    first, second = opened(path), opened(path)
    assert not is_kept(first)
    assert is_kept(second)
    for x in (X, X, X[:1], np.tile(X, (3, 1)), X):
        if name == "pictures" and len(x) != 2:
            continue
        assert_same(answers(second, x), answers(first, x))
    assert second.get_inputs() == first.get_inputs()
    told = [[(o.name, o.type, o.shape) for o in s.get_outputs()] for s in (second, first)]
    assert told[0] == told[1]
    assert second.get_modelmeta() == first.get_modelmeta()
    assert second.get_overridable_initializers() == first.get_overridable_initializers()
    assert second.get_providers() == first.get_providers()
    assert {weight.key for weight in second.weights} == {weight.key for weight in first.weights}


def test_inputs_that_callers_override(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", OVERRIDABLE)
    first, second = opened(path), opened(path)
    feeds = {"x": X, "b": np.zeros(8, np.float32)}
    assert is_kept(second)
    assert_same(second.run(None, feeds), first.run(None, feeds))


def test_facts_are_those_of_the_session_that_compiled(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    first, second = opened(path), opened(path)
    assert is_kept(second)
    assert second.transforms == first.transforms
    assert second.plan.source == first.plan.source
    assert str(second.placement) == str(first.placement)
    assert second.get_modelmeta() == first.get_modelmeta()
    assert second.get_provider_graph_assignment_info()
    for one, other in zip(first.plan.steps, second.plan.steps, strict=True):
        assert [n.label for n in other.nodes] == [n.label for n in one.nodes]
        assert list(map(str, other.outputs)) == list(map(str, one.outputs))
    assert not second._model.is_open, "all of it is cached, and the model is not read"
    assert [n.op_type for n in second.model.graph] == [n.op_type for n in first.model.graph]


def test_errors_name_the_node(tmp_path: Path) -> None:
    text = LAYERS.replace("float[n, 8] x", "float[n, m] x")
    path = saved(tmp_path / "model.onnx", text)
    said = []
    for _ in range(2):
        session = opened(path)
        with pytest.raises(tenonnx.RuntimeException) as caught:
            answers(session, X[:, :5])
        said.append(str(caught.value))
    assert is_kept(session)
    assert not session._model.is_open
    assert said[0] == said[1]
    assert "Gemm 'i'" in said[0]


def test_a_model_that_changed_is_not_asked(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    session = opened(path)
    before = answers(session)
    replaced(path, LAYERS.replace("Tanh", "Sigmoid"))
    assert_same(answers(session), before)
    with pytest.raises(tenonnx.Fail, match="has changed since the session was opened"):
        _ = session.model
    assert list(session.placement.counts()) == ["CPUExecutionProvider"]


def test_threads_open_one_plan(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    wanted = answers(opened(path))
    found: list[Any] = []

    def work() -> None:
        session = opened(path)
        found.append((is_kept(session), answers(session), str(session.placement)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for kept, outputs, _ in found:
        assert kept
        assert_same(outputs, wanted)


SECOND = """
import json, sys
import numpy as np
import tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["cpu"])
y = session.run(None, {"x": np.ones((2, 8), np.float32)})[0]
there = [name for name in ("onnx", "onnx_ir", "pickletools") if name in sys.modules]
there = [name for name in there if hasattr(sys.modules[name], "__path__")]
print(json.dumps([list(session.load_times), y.tolist(), there]))
"""


def child(path: Path) -> subprocess.Popen[str]:
    """Start a process that opens a model and runs it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", SECOND, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)


@pytest.mark.parametrize("name", ["layers", "loops", "words"])
def test_processes(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "model.onnx", MODELS[name])
    together = [child(path) for _ in range(2)]
    first = [json.loads(each.communicate(timeout=100)[0]) for each in together]
    third = json.loads(child(path).communicate(timeout=100)[0])
    assert third[0] == ["open"]
    assert third[2] == []
    assert first[0][1] == first[1][1] == third[1]


def test_models_in_onnxruntime_s_format(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    made = tenonnx.SessionOptions()
    made.optimized_model_filepath = str(path)
    opened(saved(tmp_path / "model.onnx"), sess_options=made)
    first, second = opened(path), opened(path)
    assert is_kept(second)
    assert_same(answers(second), answers(first))


def test_weights_of_one_place_stay_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    first, second = opened(path), opened(path)
    assert is_kept(second)
    assert set(map(id, second.weights)) == set(map(id, first.weights))


def test_a_graph_s_file_that_is_gone(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx", LAYERS.replace("float[n, 8] x", "float[n, m] x"))
    wanted = answers(opened(path))
    session = opened(path)
    assert is_kept(session)
    path.unlink()
    assert_same(answers(session), wanted)
    with pytest.raises(tenonnx.RuntimeException, match=r"B .* has the shape"):
        answers(session, X[:, :5])
