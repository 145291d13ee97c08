"""Session options: effects, refusals, warnings."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tenonnx
from models import FLOAT, model, node, value
from tenonnx.interface import config

X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.ones((3, 4), np.float32)


def product(weights: Any = W) -> onnx.ModelProto:
    return model(
        [node("MatMul", "x w", "h"), node("Relu", "h", "y")],
        [value("x", FLOAT, ["batch", 3])],
        [value("y", FLOAT, ["batch", 4])],
        {"w": weights},
    )


def test_entries_are_kept_and_unknown_keys_warn_once() -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry("session.disable_prepacking", "1")
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    with pytest.raises(tenonnx.NotFound, match=r"did you mean 'session\.disable_prepacking'"):
        options.get_session_config_entry("session.disable_prepack")
    with pytest.warns(UserWarning, match=r"unknown.*did you mean 'session\.disable_prepacking'"):
        options.add_session_config_entry("session.disable_prepackin", "1")
    options.add_session_config_entry("session.disable_prepackin", "1")
    with pytest.raises(tenonnx.InvalidArgument, match="a pair of strings"):
        options.add_session_config_entry("session.disable_prepacking", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("intra_op_num_threads", "3", "an integer"),
        ("graph_optimization_level", "all", "ORT_ENABLE_"),
        ("enable_profiling", "no", "True or False"),
        ("time_limit", "soon", "a number of seconds, or None"),
        ("allowed_roots", "/", "a list of folders"),
        ("disabled_transforms", "gelu", "a list of names"),
    ],
)
def test_values_of_another_type_are_refused(name: str, value: Any, expected: str) -> None:
    with pytest.raises(TypeError, match=expected):
        setattr(tenonnx.SessionOptions(), name, value)


@pytest.mark.parametrize(("name", "kind"), [("plugins", "PluginSet"), ("weights", "WeightReg")])
def test_surroundings_of_another_type_are_named(name: str, kind: str) -> None:
    options = tenonnx.SessionOptions(**{name: ["mine.py"]})
    with pytest.raises(
        tenonnx.InvalidArgument, match=rf"{name} is \['mine.py'\]; expected a {kind}"
    ):
        tenonnx.InferenceSession(product(), options)


def test_what_is_given_for_something_else_is_named() -> None:
    with pytest.raises(tenonnx.InvalidArgument, match="providers go by name"):
        tenonnx.InferenceSession(product(), ["CPUExecutionProvider"])  # type: ignore[arg-type]
    session = tenonnx.InferenceSession(product())
    with pytest.raises(tenonnx.InvalidArgument, match="expected RunOptions"):
        session.run(None, {"x": X}, {"terminate": True})  # type: ignore[arg-type]
    with pytest.raises(tenonnx.InvalidArgument, match=r"pass a list: \['y'\]"):
        session.run("y", {"x": X})


def test_an_option_of_the_arena_is_taken() -> None:
    options = {"arena_extend_strategy": "kSameAsRequested", "use_arena": "1"}
    provider = ("CPUExecutionProvider", options)
    assert tenonnx.InferenceSession(product(), providers=[provider]).run(None, {"x": X})


@pytest.mark.parametrize(
    "key", [k for k, v in config.SESSION_KEYS.items() if v.effect == "refused"]
)
def test_what_is_refused_says_why(key: str) -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(key, "0")
    with pytest.raises(tenonnx.NotSupported, match=key):
        options.add_session_config_entry(key, "1")


@pytest.mark.parametrize(("key", "name"), config.ENTRY_ATTRIBUTES.items())
def test_entries_that_are_attributes_set_them(key: str, name: str) -> None:
    options = tenonnx.SessionOptions()
    before = getattr(options, name)
    options.add_session_config_entry(key, "1")
    assert getattr(options, name) == type(before)(1)
    assert type(getattr(options, name)) is type(before)
    if not isinstance(before, str):
        with pytest.raises(tenonnx.InvalidArgument, match=f"{key} is 'nonsense'"):
            options.add_session_config_entry(key, "nonsense")


def test_a_session_keeps_the_options_it_was_built_with() -> None:
    options = tenonnx.SessionOptions(logid="one")
    session = tenonnx.InferenceSession(product(), options)
    options.logid = "two"
    options.add_session_config_entry("session.disable_prepacking", "1")
    own = session.get_session_options()
    assert own.logid == "one"
    with pytest.raises(tenonnx.NotFound):
        own.get_session_config_entry("session.disable_prepacking")


def test_dimensions_get_the_sizes_that_the_options_say() -> None:
    proto = product()
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_FEATURE"
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    options = tenonnx.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_free_dimension_override_by_denotation("DATA_FEATURE", 3)
    session = tenonnx.InferenceSession(proto, options)
    assert session.get_inputs()[0].shape == [2, 3]
    assert session.get_outputs()[0].shape == [2, 4]
    session.run(None, {"x": X})
    with pytest.raises(tenonnx.InvalidArgument, match=r"expected .*\[2, 3\], got shape \[1, 3\]"):
        session.run(None, {"x": X[:1]})


def test_initializers_of_the_callers_are_used_in_place() -> None:
    own = np.full((3, 4), 2, np.float32)
    options = tenonnx.SessionOptions()
    options.add_initializer("w", tenonnx.OrtValue.ortvalue_from_numpy(own))
    session = tenonnx.InferenceSession(product(), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ own)
    assert any(np.shares_memory(weight.array, own) for weight in session.weights)


def external(tmp_path: Path) -> tuple[bytes, bytes]:
    path = tmp_path / "model.onnx"
    onnx.save(product(), path, save_as_external_data=True, size_threshold=0, location="data.bin")
    model_bytes, data = path.read_bytes(), (tmp_path / "data.bin").read_bytes()
    (tmp_path / "data.bin").unlink()
    return model_bytes, data


def test_external_initializers_need_no_file(tmp_path: Path) -> None:
    source, _ = external(tmp_path)
    own = np.full((3, 4), 3, np.float32)
    options = tenonnx.SessionOptions()
    options.add_external_initializers(["w"], [own])
    (y,) = tenonnx.InferenceSession(source, options).run(None, {"x": X})
    np.testing.assert_array_equal(y, X @ own)


def test_lists_of_names_have_the_length_of_what_they_name() -> None:
    options = tenonnx.SessionOptions()
    with pytest.raises(tenonnx.InvalidArgument, match="got 2 names and 1 values"):
        options.add_external_initializers(["v", "w"], [X])
    with pytest.raises(tenonnx.InvalidArgument, match="got 1 names and 1 buffers and 0 lengths"):
        options.add_external_initializers_from_files_in_memory(["data.bin"], [X], [])
    with pytest.raises(TypeError, match="disabled_optimizers is 'fold'; expected a list"):
        tenonnx.InferenceSession(product(), disabled_optimizers="fold")


def test_files_in_memory_stand_for_files(tmp_path: Path) -> None:
    source, data = external(tmp_path)
    buffer = np.frombuffer(bytearray(data) + bytearray(64), np.uint8)
    options = tenonnx.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["data.bin"], [buffer], [len(data)])
    session = tenonnx.InferenceSession(source, options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)
    assert all(np.shares_memory(weight.array, buffer) for weight in session.weights)


def test_external_data_may_come_from_a_folder_of_the_options(tmp_path: Path) -> None:
    source, data = external(tmp_path)
    (tmp_path / "data.bin").write_bytes(data)
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(config.DATA_FOLDER, str(tmp_path))
    (y,) = tenonnx.InferenceSession(source, options).run(None, {"x": X})
    np.testing.assert_array_equal(y, X @ W)


@pytest.mark.parametrize(
    ("name", "array", "error", "message"),
    [
        ("v", W, tenonnx.NotFound, "no initializer 'v'"),
        ("w", W[:2], tenonnx.InvalidArgument, r"'w': expected FLOAT\[3, 4\], got float32\[2, 4\]"),
        ("w", W.astype(np.float64), tenonnx.InvalidArgument, r"got float64\[3, 4\]"),
    ],
)
def test_initializers_that_do_not_fit(name: str, array: Any, error: Any, message: str) -> None:
    options = tenonnx.SessionOptions()
    options.add_initializer(name, array)
    with pytest.raises(error, match=message):
        tenonnx.InferenceSession(product(), options)


@pytest.mark.parametrize("data", ["", "weights.bin"])
def test_the_optimized_model_is_written_and_runs_alike(tmp_path: Path, data: str) -> None:
    proto = product(np.ones((3, 400), np.float32))
    constant = helper.make_node("Constant", [], ["c"], value_floats=[1.0])
    proto.graph.node.extend([constant, node("Add", "c c", "unused")])
    proto.graph.node[1].input[0] = "h"
    path = tmp_path / "optimized.onnx"
    options = tenonnx.SessionOptions(optimized_model_filepath=str(path))
    options.add_session_config_entry(config.SAVED_DATA, data)
    expected = tenonnx.InferenceSession(proto, options).run(None, {"x": X})[0]
    written = onnx.load(path, load_external_data=False)
    assert [n.op_type for n in written.graph.node] == ["MatMul", "Relu"]
    assert (tmp_path / "weights.bin").exists() == bool(data)
    plain = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    (y,) = tenonnx.InferenceSession(path, plain).run(None, {"x": X})
    np.testing.assert_array_equal(y, expected)


def test_the_optimized_model_says_nothing_twice(tmp_path: Path) -> None:
    """Tools that replace weights by others, as quantization does, leave value_info where it is."""
    proto = product()
    proto.graph.value_info.append(value("w", FLOAT, W.shape))
    proto.graph.initializer[0].name = "w"
    proto.graph.node[0].input[1] = "w"
    path = tmp_path / "optimized.onnx"
    options = tenonnx.SessionOptions(optimized_model_filepath=str(path))
    session = tenonnx.InferenceSession(proto, options)
    written = onnx.load(path)
    weights = {tensor.name for tensor in written.graph.initializer}
    assert not weights & {info.name for info in written.graph.value_info}
    assert all(value.shape is not None for value in session.model.graph.initializers.values())
    onnx.shape_inference.infer_shapes(written, strict_mode=True, check_type=True, data_prop=True)


def test_the_optimized_model_of_an_old_one_is_valid(tmp_path: Path) -> None:
    """Weights were inputs before IR version 4; in the model that is written they are none."""
    proto = product()
    tensor = proto.graph.initializer[0]
    proto.graph.input.append(value(tensor.name, FLOAT, W.shape))
    proto.ir_version = 3
    path = tmp_path / "optimized.onnx"
    tenonnx.InferenceSession(proto, tenonnx.SessionOptions(optimized_model_filepath=str(path)))
    written = onnx.load(path)
    assert [given.name for given in written.graph.input] == ["x"]
    onnx.checker.check_model(written, full_check=True)


def test_optimizers_can_be_disabled_by_name() -> None:
    names = ["fold-constants", "GeluFusion"]
    session = tenonnx.InferenceSession(product(), disabled_optimizers=names)
    assert "fold-constants" not in [report.name for report in session.transforms]
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(config.DISABLED, ";".join(names))
    session = tenonnx.InferenceSession(product(), options)
    assert "fold-constants" not in [report.name for report in session.transforms]


def test_models_may_bring_options() -> None:
    proto = product()
    helper.set_model_props(
        proto, {"ort_config": '{"session_options": {"intra_op_num_threads": 1}}'}
    )
    session = tenonnx.InferenceSession(proto, read_config_from_model=True)
    assert session.get_session_options().intra_op_num_threads == 1
    session = tenonnx.InferenceSession(proto)
    assert session.get_session_options().intra_op_num_threads == 0
    helper.set_model_props(proto, {"ort_config": "nonsense"})
    with pytest.raises(tenonnx.InvalidArgument, match="ort_config is not understood"):
        tenonnx.InferenceSession(proto, read_config_from_model=True)


def test_the_cpu_may_be_refused() -> None:
    options = tenonnx.SessionOptions()
    options.add_session_config_entry(config.NO_CPU_FALLBACK, "1")
    with pytest.raises(tenonnx.Fail, match="2 nodes are on CPUExecutionProvider"):
        tenonnx.InferenceSession(product(), options)


def test_loading_can_be_cancelled() -> None:
    options = tenonnx.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(tenonnx.ModelLoadCanceled):
        tenonnx.InferenceSession(product(), options)
    options.set_load_cancellation_flag(False)
    tenonnx.InferenceSession(product(), options)


def test_providers_may_be_added_to_the_options() -> None:
    options = tenonnx.SessionOptions()
    assert not options.has_providers()
    options.add_provider("CPUExecutionProvider", {})
    assert options.has_providers()
    assert tenonnx.InferenceSession(product(), options).get_providers() == ["CPUExecutionProvider"]
    options = tenonnx.SessionOptions()
    (device, *_) = [d for d in tenonnx.get_ep_devices() if d.device.type.name == "CPU"]
    options.add_provider_for_devices([device], {})
    assert tenonnx.InferenceSession(product(), options).get_providers() == [device.ep_name]


def test_providers_of_onnxruntime_that_nobody_installed_give_way() -> None:
    with pytest.warns(UserWarning, match="CoreMLExecutionProvider: no plug-in brings it"):
        session = tenonnx.InferenceSession(
            product(), providers=["CoreMLExecutionProvider", "CPUExecutionProvider"]
        )
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(tenonnx.EPFail, match="CoreMLExecutionProvider: no plug-in brings it"):
        tenonnx.InferenceSession(product(), providers=["CoreMLExecutionProvider"])


def test_unknown_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="provider_option"):
        tenonnx.InferenceSession(product(), provider_option=[])  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "call",
    [
        lambda o: o.register_custom_ops_library(__file__),
        lambda o: o.set_provider_selection_policy(3),
        lambda o: o.set_provider_selection_policy_delegate(print),
        lambda o: o.set_ep_context_data_read_func(print),
    ],
)
def test_methods_that_refuse_say_what_to_do(call: Any) -> None:
    with pytest.raises(tenonnx.NotSupported) as caught:
        call(tenonnx.SessionOptions())
    assert len(str(caught.value)) > 40


def test_a_library_of_operators_that_is_not_there() -> None:
    with pytest.raises(tenonnx.NoSuchFile, match=r"the library gone\.so does not exist"):
        tenonnx.SessionOptions().register_custom_ops_library("gone.so")


def test_a_session_logs_nothing_of_importance(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for source in (product(), product().SerializeToString()):
        tenonnx.InferenceSession(source).run(None, {"x": X})
    assert not caplog.records


def test_set_providers_builds_anew_while_others_run() -> None:
    session = tenonnx.InferenceSession(product().SerializeToString())
    weights = session.weights
    stop = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        while not stop.is_set():
            try:
                np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)
            except Exception as error:
                failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for _ in range(5):
        session.set_providers(["cpu"])
    stop.set()
    thread.join()
    assert not failures
    assert session.weights == weights


def test_a_proto_is_not_kept_for_building_anew() -> None:
    session = tenonnx.InferenceSession(product())
    with pytest.raises(tenonnx.InvalidArgument, match="ModelProto, which it does not keep"):
        session.set_providers(["cpu"])
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)
