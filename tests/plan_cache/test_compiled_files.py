"""Files of ``tenonnx compile``: the same answers, for those who trust them and fit; else models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from plan_models import (
    LAYERS,
    MODELS,
    OVERRIDABLE,
    X,
    answers,
    assert_same,
    is_kept,
    model_of,
    opened,
    options,
    saved,
)

import tenonnx
from tenonnx.formats.compiled_file import header_of
from tenonnx.plan_cache.compiling import compile_model


def compiled(folder: Path, text: str = LAYERS, **how: Any) -> Path:
    """Compile a model, which is gone then."""
    source, target = saved(folder / "model.onnx", text), folder / "model.tenonnx"
    compile_model(source, target, providers=["cpu"], **how)
    source.unlink()
    return target


def trusted(path: Path, **named: Any) -> tenonnx.InferenceSession:
    """Open a file by its plan."""
    return opened(path, **options(trust_compiled_plan=True, **named))


@pytest.mark.parametrize("name", MODELS)
def test_the_same_answers(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / "model.onnx", MODELS[name])
    wanted = opened(path)
    path = compiled(tmp_path, MODELS[name])
    by_plan, by_model = trusted(path), opened(path)
    assert is_kept(by_plan)
    assert not is_kept(by_model)
    for session in (by_plan, by_model):
        assert_same(answers(session), answers(wanted))
        assert session.get_inputs() == wanted.get_inputs()
        assert session.get_modelmeta().graph_name == wanted.get_modelmeta().graph_name
    assert str(by_plan.placement) == str(by_model.placement)


def test_weights_are_mapped_from_the_file(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    for session in (trusted(path), opened(path)):
        (weight, *_) = [each for each in session.weights if each.nbytes == 256]
        assert weight.storage.label == str(path)
        assert weight.offset % 64 == 0
    assert trusted(path).weights[0] is session.weights[0]


def test_external_data_is_taken_along(tmp_path: Path) -> None:
    source = tmp_path / "model.onnx"
    how = {"save_as_external_data": True, "location": "data", "size_threshold": 0}
    wanted = answers(opened(saved(source, LAYERS, **how)))
    compile_model(source, tmp_path / "model.tenonnx", providers=["cpu"])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = shutil.move(tmp_path / "model.tenonnx", elsewhere / "other.tenonnx")
    source.unlink()
    (tmp_path / "data").unlink()
    session = trusted(path)
    assert is_kept(session)
    assert_same(answers(session), wanted)
    assert_same(answers(opened(path)), wanted)


def test_derived_weights_are_taken_along(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 300] x) => (float[n, 300] y) <float[300, 300] w> {
            e = Exp(w)  y = MatMul(x, e) }""")
    w = np.random.default_rng(5).standard_normal((300, 300)).astype(np.float32)
    del proto.graph.value_info[:]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    source, path = tmp_path / "model.onnx", tmp_path / "model.tenonnx"
    onnx.save(proto, source)
    compile_model(source, path, providers=["cpu"])
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    x = np.ones((1, 300), np.float32)
    session = trusted(path)
    assert is_kept(session)
    assert_same(answers(session, x), answers(opened(source), x))
    assert {each.storage.label for each in session.weights} == {str(path)}


def test_who_does_not_trust_a_file_has_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the plan is looked at, whatever is in it."""
    path = compiled(tmp_path)
    content = bytearray(path.read_bytes())
    header = header_of(memoryview(content), "it")
    content[header.plan : header.size] = b"\xff" * (header.size - header.plan)
    other = tmp_path / "other.tenonnx"
    other.write_bytes(content)
    assert_same(answers(opened(other)), answers(trusted(path)))
    with pytest.raises(tenonnx.Fail, match="damaged"):
        trusted(other)
    monkeypatch.setenv("TENONNX_PLANS", "0")
    assert not is_kept(trusted(path))


def test_folders_that_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiled(tmp_path)
    folders = [str(tmp_path / "nowhere"), str(tmp_path)]
    monkeypatch.setenv("TENONNX_TRUST_COMPILED", os.pathsep.join(folders))
    assert is_kept(opened(path))
    monkeypatch.setenv("TENONNX_TRUST_COMPILED", str(tmp_path / "nowhere"))
    assert not is_kept(opened(path))


def test_a_model_is_a_model_whoever_is_trusted(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.onnx")
    assert not is_kept(trusted(path))
    assert is_kept(trusted(path))


CHANGES: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], dict[str, Any]]]] = {
    "tenonnx": (
        "tenonnx: .* when it was compiled, 0.0 here",
        lambda patch: patch.setattr("tenonnx.process.distributions.release", lambda: "0.0") or {},
    ),
    "numpy": ("numpy: ", lambda patch: patch.setattr(np, "__version__", "0.0") or {}),
    "Python's -O": (
        "-O: 0",
        lambda patch: patch.setattr("tenonnx.plan_cache.key.OPTIMIZED", 2) or {},
    ),
    "the level": ("the option graph_optimization_level: nothing .*, 1", lambda _: {"level": 1}),
    "threads": ("intra_op_num_threads", lambda _: {"threads": 1}),
    "an entry": ("the entry session.disable_prepacking", lambda _: {"entry": "1"}),
    "a variable": (
        r"the variable TENONNX_PROCESSOR: \S+ when it was compiled, native here",
        lambda patch: patch.setenv("TENONNX_PROCESSOR", "native") or {},
    ),
    "the kernels": (
        "CPUExecutionProvider: the library of kernels",
        lambda patch: patch.setattr("tenonnx_cpu.jit.library.fingerprint", lambda: "") or {},
    ),
    "cores": (
        "CPUExecutionProvider: how many threads .* 99 here",
        lambda patch: patch.setattr("tenonnx_cpu.provider.most_threads", lambda: 99) or {},
    ),
    "code": ("the code of tenonnx_cpu", lambda patch: another_code(patch)),
    "plug-ins": ("the plug-in more: nothing .*, more 1.0", lambda patch: another_plugin(patch)),
    "providers": ("providers: .*CPU.* here", lambda _: {"providers": ["cuda", "cpu"]}),
    "provider options": (
        "providers: ",
        lambda _: {"providers": [("cpu", {"arena_extend_strategy": "kSameAsRequested"})]},
    ),
}


def another_code(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have another source of the CPU provider."""
    from tenonnx.plan_cache import key

    plain = key._lines
    patch.setattr(key, "_lines", lambda *which: [*plain(*which), "one more"])
    return {}


def another_plugin(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have one more plug-in installed."""
    from tenonnx.plan_cache import admitted, key
    from tenonnx.process.distributions import EntryPoint

    patch.setattr(key, "refuse_registered", lambda: None)
    found = [*admitted.plugins(), EntryPoint("more", "json", "more", "1.0")]
    patch.setattr(admitted, "plugins", lambda **_: found)
    return {}


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_plan_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path = compiled(tmp_path)
    says, make = CHANGES[change]
    how = make(monkeypatch)
    made = tenonnx.SessionOptions(trust_compiled_plan=True)
    made.graph_optimization_level = how.pop("level", made.graph_optimization_level)
    made.intra_op_num_threads = how.pop("threads", 0)
    if "entry" in how:
        made.add_session_config_entry("session.disable_prepacking", how.pop("entry"))
    with pytest.raises(tenonnx.Fail, match="compiled for something else") as caught:
        opened(path, sess_options=made, **how)
    assert caught.match(says)
    assert "tenonnx compile" in str(caught.value)


@pytest.mark.parametrize(
    "providers",
    [None, [], ["cpu"], ["CPUExecutionProvider"], [("cpu", {})]],
    ids=["none", "empty", "alias", "name", "pair"],
)
def test_ways_to_ask_for_the_provider_it_has(tmp_path: Path, providers: Any) -> None:
    path = compiled(tmp_path)
    made = tenonnx.SessionOptions(trust_compiled_plan=True)
    assert is_kept(tenonnx.InferenceSession(path, made, providers))


@pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")
def test_files_that_others_may_write_are_refused(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    path.chmod(0o666)
    with pytest.raises(tenonnx.Fail, match="others may write to it"):
        trusted(path)
    assert not is_kept(opened(path))


def test_files_that_are_not_whole(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    content = path.read_bytes()
    for size in (16, 60, 4096, len(content) - 1):
        path.write_bytes(content[:size])
        for way in (trusted, opened):
            with pytest.raises(tenonnx.InvalidProtobuf):
                way(path)


def test_what_is_asked_besides_is_read_from_the_model_in_it(tmp_path: Path) -> None:
    text = LAYERS.replace("float[n, 8] x", "float[n, m] x")
    session = trusted(compiled(tmp_path, text))
    with pytest.raises(tenonnx.RuntimeException, match="Gemm 'i'"):
        answers(session, X[:, :5])
    assert [node.op_type for node in session.model.graph][-1] == "Softmax"


def test_inputs_that_callers_override(tmp_path: Path) -> None:
    path = compiled(tmp_path, OVERRIDABLE)
    feeds = {"x": X, "b": np.zeros(8, np.float32)}
    assert_same(trusted(path).run(None, feeds), [np.maximum(X, 0)])


def test_what_cannot_be_compiled_says_why(tmp_path: Path) -> None:
    source = saved(tmp_path / "model.onnx")
    for how, why in (
        (options(time_limit=1.0), "time_limit"),
        (options(weights=tenonnx.WeightRegistry()), "weights of this process"),
    ):
        with pytest.raises(tenonnx.NotSupported, match=why):
            compile_model(source, tmp_path / "out", how["sess_options"])
    with pytest.raises(tenonnx.Fail, match="No such file or directory"):
        compile_model(source, tmp_path / "nowhere" / "out")
    with pytest.raises(tenonnx.NoSuchFile):
        compile_model(tmp_path / "nothing.onnx", tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir() if each.name != "cache"] == ["model.onnx"]


def test_files_are_replaced_if_asked(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    before, session = path.read_bytes(), trusted(path)
    wanted = answers(session)
    with pytest.raises(tenonnx.Fail, match="there already"):
        compiled(tmp_path, MODELS["words"])
    assert path.read_bytes() == before
    compiled(tmp_path, MODELS["words"], overwrite=True)
    assert trusted(path).get_outputs()[0].type == "tensor(string)"
    assert_same(answers(session), wanted)


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(tenonnx.Fail, match=r"cannot write .*No space left on device"):
        compiled(tmp_path)
    assert not (tmp_path / "model.tenonnx").exists()
    assert not list(tmp_path.glob(".model*"))


def test_threads_that_write_one_file(tmp_path: Path) -> None:
    source, path = saved(tmp_path / "model.onnx"), tmp_path / "model.tenonnx"
    ends: list[str] = []

    def work() -> None:
        try:
            compile_model(source, path, providers=["cpu"])
            ends.append("wrote")
        except tenonnx.Fail as error:
            ends.append(str(error).partition("\n")[0])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = f"{path} is there already"
    assert sorted(ends) == sorted(["wrote", refused, refused])
    assert_same(answers(trusted(path)), answers(opened(source)))


SECOND = """
import json, sys
import numpy as np
import tenonnx
session = tenonnx.InferenceSession(sys.argv[1], providers=["cpu"])
y = session.run(None, {"x": np.ones((2, 8), np.float32)})[0]
there = [name for name in ("onnx", "onnx_ir") if name in sys.modules]
there = [name for name in there if hasattr(sys.modules[name], "__path__")]
print(json.dumps([list(session.load_times), y.tolist(), there]))
"""


def test_other_processes(tmp_path: Path) -> None:
    path = compiled(tmp_path)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment |= {
        "TENONNX_TRUST_COMPILED": str(tmp_path),
        "TENONNX_CACHE_DIR": str(tmp_path / "another"),
    }
    command = [sys.executable, "-c", SECOND, str(path)]
    answer = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True)
    stages, y, there = json.loads(answer.stdout)
    assert stages == ["open"]
    assert there == []
    assert_same([np.array(y, np.float32)], answers(trusted(path), np.ones((2, 8), np.float32)))


def test_models_are_read_from_it_by_others(tmp_path: Path) -> None:
    from tenonnx.formats.convert import convert
    from tenonnx.weights.registry import default_registry

    path = compiled(tmp_path)
    convert(path, tmp_path / "back.onnx", default_registry())
    back = onnx.load(tmp_path / "back.onnx")
    wanted = model_of(LAYERS)
    assert [node.op_type for node in back.graph.node] == [n.op_type for n in wanted.graph.node]
    assert_same(answers(opened(tmp_path / "back.onnx")), answers(trusted(path)))
