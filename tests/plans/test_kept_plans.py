"""Sessions that open what earlier ones kept: the same answers, and never from a wrong plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx
from tenonnx.plans import files

NDArray = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 8)).astype(np.float32)

LAYERS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[8, 8] w, float[8] b> {
    h = MatMul(x, w)  i = Add(h, b)  j = Relu(i)  k = MatMul(j, w)  l = Tanh(k)  m = Exp(l)
    y = Softmax(m)
}"""
BRANCHES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <float[8, 8] w> {
    s = ReduceSum <keepdims=0> (x)  zero = Constant <value=float {0.0}> ()  c = Greater(s, zero)
    y = If (c) <then_branch = a () => (float[n, 8] p) { p = MatMul(x, w) },
                else_branch = b () => (float[n, 8] q) { q = Neg(x) }>
}"""
LOOPS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y, float[m, n, 8] z) <float[8, 8] w> {
    trips = Constant <value=int64 {3}> ()  yes = Constant <value=bool {1}> ()
    y, z = Loop (trips, yes, x) <body = b (int64 i, bool go, float[n, 8] v)
        => (bool on, float[n, 8] o, float[n, 8] p) {
        on = Identity(go)  t = MatMul(v, w)  o = Tanh(t)  p = Abs(o) }>
}"""
SCAN = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[8] y, float[n, 8] z) {
    zero = Constant <value_floats=[0.0]> ()  eight = Constant <value_ints=[8]> ()
    start = Expand(zero, eight)
    y, z = Scan <num_scan_inputs=1, body = b (float[8] a, float[8] r) => (float[8] o, float[8] p) {
        o = Add(a, r)  p = Mul(o, r) }> (start, x)
}"""
WORDS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (string[n, 8] y) {
    t = Constant <value_strings=["a", "b"]> ()  i = Constant <value_int=1> ()
    s = Gather(t, i)  w = Cast <to=8> (x)  y = StringConcat(w, s)
}"""
SEQUENCES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[m, 8] y) {
    n = Neg(x)  s = SequenceConstruct(x, n)  e = Exp(x)  t = SequenceInsert(s, e)
    y = ConcatFromSequence <axis=0> (t)
}"""
SHAPES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[m] y) {
    s = Shape(x)  p = ReduceProd <keepdims=1> (s)  f = Reshape(x, p)  y = Sqrt(f)
}"""
OVERRIDABLE = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x, float[8] b) => (float[n, 8] y) <float[8] b = {1, 2, 3, 4, 5, 6, 7, 8}> {
    h = Add(x, b)  y = Relu(h)
}"""
OUTPUTS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] x, float[8, 8] w, y) <float[8, 8] w> {
    y, z = Split <num_outputs=2, axis=1> (x)
}"""
LAYER = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 1, 1, 4] y) <float[1, 16, 8] w, float[1, 16, 4] r> {
    a = Constant <value_ints=[1]> ()  u = Unsqueeze(x, a)
    y = LSTM <hidden_size=4> (u, w, r)
}"""
PICTURES = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (y) <float[4, 1, 3, 3] w, float[4] b> {
    s = Constant <value_ints=[1, 1, 4, 4]> ()  i = Reshape(x, s)
    c = Conv <pads=[1, 1, 1, 1]> (i, w, b)  r = Relu(c)  p = GlobalAveragePool(r)  y = Flatten(p)
}"""
INTEGERS = """<ir_version: 10, opset_import: ["": 21]>
g (float[n, 8] x) => (float[n, 8] y) <int8[8, 8] w> {
    s = Constant <value=float {0.1}> ()  z = Constant <value=uint8 {128}> ()
    q = QuantizeLinear(x, s, z)  a = DequantizeLinear(q, s, z)  b = DequantizeLinear(w, s)
    y = MatMul(a, b)
}"""

MODELS = {
    "layers": LAYERS, "branches": BRANCHES, "loops": LOOPS, "scan": SCAN, "words": WORDS,
    "sequences": SEQUENCES, "shapes": SHAPES, "overridable": OVERRIDABLE, "outputs": OUTPUTS,
    "layer": LAYER, "pictures": PICTURES, "integers": INTEGERS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TENONNX_PLANS", "1")
    # While kernels compile in the background no plan is kept.
    monkeypatch.setenv("TENONNX_JIT", "wait")


def model_of(text: str, *, seed: int = 1) -> onnx.ModelProto:
    """Returns a model whose weights have numbers in them."""
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)
    for info in model.graph.value_info:
        kind = info.type.tensor_type
        dims = [each.dim_value for each in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made = (rng.standard_normal(dims) * 3).astype(dtype)
        model.graph.initializer.append(onnx.numpy_helper.from_array(made, info.name))
    del model.graph.value_info[:]
    return model


def saved(path: Path, text: str = LAYERS, **how: Any) -> Path:
    """Writes a model."""
    onnx.save(model_of(text), path, **how)
    return path


def opened(path: Path, **how: Any) -> tenonnx.InferenceSession:
    """Opens a model on the CPU."""
    return tenonnx.InferenceSession(path, **{"providers": ["cpu"]} | how)


def is_kept(session: tenonnx.InferenceSession) -> bool:
    """Says whether a session opened what another one kept."""
    return list(session.load_times) == ["open"]


def answers(session: tenonnx.InferenceSession, x: NDArray = X) -> list[Any]:
    """Runs a model."""
    return session.run(None, {"x": x})


def assert_same(some: list[Any], others: list[Any]) -> None:
    """Compares outputs, bit by bit."""
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, strict=True)


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


def test_what_is_asked_besides_is_read_from_the_model(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    first, second = opened(path), opened(path)
    assert is_kept(second)
    assert second.plan.source == first.plan.source
    assert str(second.placement) == str(first.placement)
    assert [r.name for r in second.transforms] == [r.name for r in first.transforms]
    assert len(second.plan.steps) == len(first.plan.steps)
    run_options = tenonnx.RunOptions()
    assert_same(second.run(None, {"x": X}, run_options), answers(first))
    binding = second.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    second.run_with_iobinding(binding)
    assert_same(binding.copy_outputs_to_cpu(), answers(first))


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
        _ = session.placement


def replaced(path: Path, text: str) -> None:
    """Renames another model to a model's name."""
    other = saved(path.with_suffix(".other"), text)
    other.replace(path)


def touched(path: Path) -> None:
    """Writes the same model into the same file."""
    path.write_bytes(path.read_bytes())


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]] = {
    "another model": lambda path, _: replaced(path, LAYERS.replace("Tanh", "Sigmoid")) or {},
    "the file was written": lambda path, _: touched(path) or {},
    "its time": lambda path, _: os.utime(path, (1, 1)) or {},
    "the level": lambda _, __: options(graph_optimization_level=1),
    "threads": lambda _, __: options(intra_op_num_threads=1),
    "a transform less": lambda _, __: options(disabled_transforms=["fold-constants"]),
    "a transform less, by name": lambda _, __: {"disabled_optimizers": ["fold-constants"]},
    "an entry": lambda _, __: entries("session.disable_prepacking", "1"),
    "a dimension": lambda _, __: sizes("n", 2),
    "providers": lambda _, __: {"providers": None},
    "provider options": lambda _, __: {
        "providers": [("cpu", {"arena_extend_strategy": "kSameAsRequested"})]
    },
    "a variable": lambda _, patch: patch.setenv("TENONNX_PROCESSOR", "native") or {},
    "Python": lambda _, patch: patch.setattr(sys, "version", "another") or {},
    "numpy": lambda _, patch: patch.setattr(np, "__version__", "0.0") or {},
    "tenonnx": lambda _, patch: patch.setattr("tenonnx.installed.release", lambda: "0.0") or {},
    "plug-ins": lambda _, patch: another_plugin(patch),
    "a version of something else": lambda _, patch: (
        patch.setattr("tenonnx.installed.installations", lambda: ("onnx-0.0.dist-info",)) or {}
    ),
    "code": lambda _, patch: another_code(patch),
    "the processor": lambda _, patch: another_machine(patch),
    "kernels": lambda _, patch: another_compiler(patch),
}


def options(**named: Any) -> dict[str, Any]:
    """Returns session options."""
    made = tenonnx.SessionOptions()
    for name, value in named.items():
        setattr(made, name, value)
    return {"sess_options": made}


def entries(key: str, value: str) -> dict[str, Any]:
    """Returns session options with an entry."""
    made = tenonnx.SessionOptions()
    made.add_session_config_entry(key, value)
    return {"sess_options": made}


def sizes(name: str, size: int) -> dict[str, Any]:
    """Returns session options that fix a dimension."""
    made = tenonnx.SessionOptions()
    made.add_free_dimension_override_by_name(name, size)
    return {"sess_options": made}


def another_plugin(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has one more plug-in installed."""
    from tenonnx import installed
    from tenonnx.plans import admitted

    found = [*admitted.plugins(), installed.EntryPoint("more", "json", "more", "1.0")]
    patch.setattr(admitted, "plugins", lambda **_: found)
    return {}


def another_code(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has a plug-in's file changed before the process began."""
    from tenonnx.plans import key

    plain = key._state_of_code
    patch.setattr(key, "_state_of_code", lambda *which: (*plain(*which), "changed"))
    return {}


def another_machine(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has another processor."""
    from tenonnx_cpu import provider

    patch.setattr(provider, "machine_stamp", lambda _: "another")
    return {}


def another_compiler(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Has numba where there was none, or none where there was."""
    from tenonnx_cpu import provider

    found = provider.has_numba()
    patch.setattr(provider, "has_numba", lambda: not found)
    return {}


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_plan_is_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    assert is_kept(opened(path))
    how = CHANGES[change](path, monkeypatch)
    assert not is_kept(opened(path, **how))


def test_external_data_that_changed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model_of(LAYERS), path, save_as_external_data=True, location="data", size_threshold=0)
    first = opened(path)
    second = opened(path)
    assert is_kept(second)
    assert_same(answers(second), answers(first))
    data = tmp_path / "data"
    data.write_bytes(data.read_bytes()[::-1])
    third = opened(path)
    assert not is_kept(third)


def test_what_is_the_process_s_is_not_kept(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")

    def observed() -> dict[str, Any]:
        made = tenonnx.SessionOptions()
        made.enable_profiling = True
        made.profile_file_prefix = str(tmp_path / "profile")
        return {"sess_options": made}

    def custom() -> dict[str, Any]:
        made = tenonnx.SessionOptions()
        made.operator("my.domain::Own")(lambda x: x)
        return {"sess_options": made}

    def limited() -> dict[str, Any]:
        return options(time_limit=60.0)

    def plugins() -> dict[str, Any]:
        return options(plugins=tenonnx.PluginSet())

    def weights() -> dict[str, Any]:
        return options(weights=tenonnx.WeightRegistry())

    for how in (observed, custom, limited, plugins, weights):
        for _ in range(2):
            assert not is_kept(opened(path, **how())), how.__name__
    content = path.read_bytes()
    for _ in range(2):
        assert not is_kept(tenonnx.InferenceSession(content, providers=["cpu"]))


@pytest.mark.parametrize("place", [0, 8, 70, 200, -1])
def test_damaged_files_are_made_again(tmp_path: Path, place: int) -> None:
    path = saved(tmp_path / "model.onnx")
    first = opened(path)
    (kept,) = files.files()
    content = bytearray(kept.read_bytes())
    content[place] ^= 1
    kept.write_bytes(content)
    second = opened(path)
    assert not is_kept(second)
    assert_same(answers(second), answers(first))
    assert is_kept(opened(path))
    for size in (0, 4, 60, 120, len(content) // 2):
        kept.write_bytes(content[:size])
        assert not is_kept(opened(path))


class Evil:
    """Would run a command when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


def test_files_name_no_other_code(tmp_path: Path) -> None:
    import pickle

    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    found = files.read(kept)
    checks = bytes(found.checks)
    evil = pickle.dumps(Evil(tmp_path / "evil"))
    for parts in ((checks, evil), (evil, bytes(found.parts))):
        kept.write_bytes(files.packed(*parts, []))
        assert not is_kept(opened(path))
        assert not (tmp_path / "evil").exists()


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_files_that_others_may_write_are_not_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    opened(path)
    (kept,) = files.files()
    kept.chmod(0o666)
    assert not is_kept(opened(path))


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TENONNX_CACHE_DIR", str(tmp_path / "file"))
    path = saved(tmp_path / "model.onnx")
    for _ in range(2):
        session = opened(path)
        assert not is_kept(session)
        answers(session)


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
    """Starts a process that opens a model and runs it."""
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


def test_plug_ins_that_the_program_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenonnx.plugins import manager

    path = saved(tmp_path / "model.onnx")
    opened(path)
    plugins = tenonnx.PluginSet()
    monkeypatch.setattr(manager, "_default", plugins)
    assert is_kept(opened(path))
    seen = []

    class Plugin:
        """Observes plans."""

        @tenonnx.hookimpl
        def create_observer(self, plan: Any) -> None:
            seen.append(plan)

    plugins.register(Plugin(), "own")
    for number in range(2):
        assert not is_kept(opened(path))
        assert len(seen) == number + 1


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
    with pytest.raises(tenonnx.RuntimeException, match="stacks to broadcast"):
        answers(session, X[:, :5])
