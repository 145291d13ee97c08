"""A vendor's provider, as ``tenonnx new compiler`` writes it: buffers, groups, cached segments."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from vendor import NAME, installed

import tenonnx
from child import child
from hooks import Providers
from tenonnx import OrtValue

X = np.array([[-1, 2]], np.float32)
MODEL = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[n, 2] x) => (float[n, 2] y, float[n, 2] z) <float[2, 2] w = {1, 2, 3, 4}> {
        h = MatMul(x, w)  y = Relu(h)  z = Sub(x, h)
    }
""")
ALIAS = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[n, 2] x) => (float[n, 2] y, float[n, 2] x2) { y = Relu(x)  x2 = Identity(x) }
""")

COMPILES = """
import json, os, sys
import numpy as np
import tenonnx, tenonnx_vec.provider as own

given = json.loads(os.environ["GIVEN"])
compiled, build = [], own.VecExecutionProvider.build
def counting(self, segment):
    compiled.append(len(segment.nodes))
    return build(self, segment)
own.VecExecutionProvider.build, own.DRIVER = counting, given["driver"]
options = tenonnx.SessionOptions()
options.trust_compiled_plan = given["trusted"]
providers = [("vec", {"min_nodes": given["min_nodes"]})]
session = tenonnx.InferenceSession(given["model"], options, providers=providers)
total = float(session.run(None, {"x": np.ones((2, 256), np.float32)})[0].sum())
one_device = all(step.device is session.device is own.DEVICE for step in session.plan.steps)
uploaded = session.registry.report().device
facts = session.load_times.uncached, one_device, total, uploaded, "onnx_ir" in sys.modules
print(json.dumps([compiled, *facts]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("vendor"))


@pytest.fixture(scope="module")
def vec(site: Path) -> Iterator[ModuleType]:
    """The provider's package, imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        found = importlib.import_module("tenonnx_vec.provider")
    yield found
    for name in [name for name in sys.modules if name.startswith("tenonnx_vec")]:
        del sys.modules[name]


def opened(vec: ModuleType, model: onnx.ModelProto = MODEL) -> tenonnx.InferenceSession:
    plugins = tenonnx.PluginSet()
    plugins.register(Providers(vec.VecExecutionProvider))
    options = tenonnx.SessionOptions(plugins=plugins)
    return tenonnx.InferenceSession(model, options, providers=[NAME, "cpu"])


def on_device(session: tenonnx.InferenceSession, array: Any) -> OrtValue:
    return OrtValue(session.device.upload(array), session.device)


def test_outputs_stay_on_the_device_and_feed_the_next_run(
    vec: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(vec)
    binding, value = session.io_binding(), on_device(session, X)
    for name in ("y", "z"):
        binding.bind_output(name, session.device)
    session.run_with_iobinding(bound(binding, value))  # the weight is uploaded
    moved = []
    monkeypatch.setattr(vec.VecExecutionProvider.device, "upload", moved.append)
    monkeypatch.setattr(vec.VecExecutionProvider.device, "download", moved.append)
    for _ in range(3):
        session.run_with_iobinding(bound(binding, value))
        value, _ = binding.get_outputs()
        assert value.device_name() == NAME
    monkeypatch.undo()
    assert not moved
    expected = X
    for _ in range(3):
        expected = np.maximum(expected @ np.array([[1, 2], [3, 4]], np.float32), 0)
    np.testing.assert_array_equal(value.numpy(), expected)


@pytest.mark.parametrize("where", ["device", "host"])
def test_an_output_that_is_not_bound_is_not_moved(
    where: str, vec: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(vec)
    binding = bound(session.io_binding(), on_device(session, X))
    binding.bind_output("z", session.device if where == "device" else "cpu")
    device, downloaded = vec.VecExecutionProvider.device, []
    plain = type(device).download
    monkeypatch.setattr(
        device, "download", lambda array: downloaded.append(array) or plain(device, array)
    )
    session.run_with_iobinding(binding)
    (z,) = binding.get_outputs()
    assert len(downloaded) == (where == "host")
    monkeypatch.undo()
    np.testing.assert_array_equal(z.numpy(), session.run(["z"], {"x": X})[0])


def bound(binding: tenonnx.IOBinding, x: OrtValue) -> tenonnx.IOBinding:
    binding.bind_ortvalue_input("x", x)
    return binding


def test_outputs_are_written_into_bound_buffers(vec: ModuleType) -> None:
    session = opened(vec)
    binding, there = session.io_binding(), on_device(session, np.zeros_like(X))
    buffer = there.value
    binding.bind_ortvalue_output("z", there)
    session.run_with_iobinding(bound(binding, on_device(session, X)))
    assert there.value is buffer
    (expected,) = session.run(["z"], {"x": X})
    np.testing.assert_array_equal(there.numpy(), expected)
    small = on_device(session, np.zeros((1, 1), np.float32))
    binding.bind_ortvalue_output("z", small)
    with pytest.raises(tenonnx.InvalidArgument, match=r"expected float32\[1, 1\] to write in pl"):
        session.run_with_iobinding(binding)


def test_a_bound_buffer_may_be_an_input(vec: ModuleType) -> None:
    session = opened(vec)
    binding, there = session.io_binding(), on_device(session, X)
    binding.bind_ortvalue_output("z", there)
    session.run_with_iobinding(bound(binding, there))
    np.testing.assert_array_equal(there.numpy(), session.run(["z"], {"x": X})[0])


def test_an_output_that_is_an_input_is_copied(vec: ModuleType) -> None:
    session = opened(vec, ALIAS)
    binding, there = session.io_binding(), on_device(session, X)
    for name in ("y", "x2"):
        binding.bind_output(name, session.device)
    session.run_with_iobinding(bound(binding, there))
    _, x2 = binding.get_outputs()
    assert x2.value is not there.value
    x2.update_inplace(np.zeros_like(X))
    np.testing.assert_array_equal(there.numpy(), X)


def test_values_on_the_device(vec: ModuleType) -> None:
    session = opened(vec)
    value = on_device(session, X)
    assert (value.shape(), value.data_type(), value.tensor_size_in_bytes()) == (
        [1, 2], "tensor(float)", 8,
    )  # fmt: skip
    value.update_inplace(X + 1)
    np.testing.assert_array_equal(value.numpy(), X + 1)
    for names, options in ((None, None), (["z", "y"], None), (["z"], tenonnx.RunOptions())):
        made = session.run_with_ort_values(names, {"x": value}, options)
        assert {each.device_name() for each in made} == {NAME}
        expected = session.run(names, {"x": X + 1})
        for found, right in zip(made, expected, strict=True):
            np.testing.assert_array_equal(found.numpy(), right)
    with pytest.raises(tenonnx.NotSupported, match="of vec has no addresses"):
        value.data_ptr()


def test_arrays_of_other_libraries(vec: ModuleType) -> None:
    session = opened(vec)
    given = X.copy()
    value = OrtValue.from_dlpack(given, session.device)
    given.fill(0)  # the device has memory of its own
    assert value.device_name() == NAME
    np.testing.assert_array_equal(np.from_dlpack(value), X)

    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    with pytest.raises(tenonnx.NotSupported, match="takes no memory of other devices"):
        OrtValue.from_dlpack(Elsewhere(), session.device)


def test_reports_have_the_memory_of_the_device(vec: ModuleType) -> None:
    session = opened(vec)
    session.run(None, {"x": X})
    report = session.registry.report()
    (row,) = [row for row in report.devices if row.id == NAME]
    assert row.size == 1 << 30
    assert 16 <= row.used < 1 << 20
    assert "vec     1.0 GiB" in str(report)


def test_names_of_devices_that_plug_ins_bring(site: Path) -> None:
    found = child("""
import json
import numpy as np, tenonnx
value = tenonnx.OrtValue.ortvalue_from_numpy(np.ones(2, np.float32), "vec", 0)
other = tenonnx.OrtValue.ortvalue_from_numpy(np.ones(2), tenonnx.OrtDevice.make("vec", 0))
zeros = tenonnx.OrtValue.ortvalue_from_shape_and_type([2], np.float32, "vec")
wrong = []
for name, number in (("vek", 0), ("vec", 1)):
    try: tenonnx.OrtValue.ortvalue_from_numpy(np.ones(2), name, number)
    except tenonnx.InvalidArgument as error: wrong.append(str(error))
names = [each.device_name() for each in (value, other, zeros)]
print(json.dumps([names, zeros.numpy().tolist(), wrong]))
""", site)  # fmt: skip
    names, zeros, wrong = found
    assert names == [NAME] * 3
    assert zeros == [0, 0]
    assert "no device type 'vek'; did you mean 'vec'?" in wrong[0]
    assert "has no option 'device_id'" in wrong[1]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 256] x) => (float[n, 256] y) { h = MatMul(x, w)  y = Relu(h) }
    """)
    weight = np.full((256, 256), 0.5, np.float32)
    made.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def compiles(site: Path, model: Path, **change: Any) -> tuple[list[int], str]:
    """Open a model in a process; return the sizes of what was compiled, and why nothing kept."""
    given = {"driver": "1.0", "min_nodes": 1, "trusted": False, "model": str(model), **change}
    where = model.parent / "cache"
    found = child(COMPILES, site, GIVEN=json.dumps(given), TENONNX_CACHE_DIR=where)
    compiled, uncached, one_device, total, uploaded, reads_models = found
    assert reads_models == bool(compiled), "a plan is opened without the library of models"
    assert one_device
    assert total == 2 * 256 * 128
    assert uploaded == 256 * 256 * 4
    return compiled, uncached


def test_compiled_segments_are_cached(site: Path, model: Path) -> None:
    assert compiles(site, model) == ([2], "")
    assert compiles(site, model) == ([], "")
    assert compiles(site, model, driver="2.0") == ([2], "")
    assert compiles(site, model, min_nodes=2) == ([2], "")


def test_compiled_segments_are_shipped(site: Path, model: Path) -> None:
    target = model.with_suffix(".tenonnx")
    child(f"""
from tenonnx.plan_cache.compiling import compile_model
compile_model({str(model)!r}, {str(target)!r}, providers=[("vec", {{"min_nodes": 1}})])
print(0)
""", site, TENONNX_CACHE_DIR=model.parent / "first")  # fmt: skip
    assert compiles(site, target, trusted=True) == ([], "")


def test_a_segment_is_cached_by_its_content(site: Path, model: Path) -> None:
    """A session with another plan has the segment all the same; another constant is another one."""
    assert compiles(site, model) == ([2], "")
    found = child(ANOTHER_PLAN, site, MODEL=model, TENONNX_CACHE_DIR=model.parent / "cache")
    assert found == [[], 0.0]
    again = onnx.load(model)
    again.graph.initializer[0].raw_data = np.full((256, 256), 2, np.float32).tobytes()
    onnx.save(again, model.with_name("other.onnx"))
    other = model.with_name("other.onnx")
    found = child(ANOTHER_PLAN, site, MODEL=other, TENONNX_CACHE_DIR=model.parent / "cache")
    assert found == [[2], 0.0]


ANOTHER_PLAN = """
import json, os
import numpy as np
import tenonnx, tenonnx_vec.provider as own

compiled, build = [], own.VecExecutionProvider.build
def counting(self, segment):
    compiled.append(len(segment.nodes))
    return build(self, segment)
own.VecExecutionProvider.build = counting
level = tenonnx.GraphOptimizationLevel.ORT_ENABLE_BASIC
options = tenonnx.SessionOptions(graph_optimization_level=level)
session = tenonnx.InferenceSession(os.environ["MODEL"], options, providers=["vec"])
total = float(session.run(None, {"x": np.zeros((2, 256), np.float32)})[0].sum())
print(json.dumps([compiled, total]))
"""

CONTEXTS = """
import json, os
import numpy as np
import tenonnx, tenonnx_vec.provider as own

own.DRIVER = os.environ.get("DRIVER", "1.0")
def refusing(self, segment):
    raise AssertionError("compiled")
if os.environ["TRUSTED"]:
    own.VecExecutionProvider.build = refusing
options = tenonnx.SessionOptions()
if os.environ["TRUSTED"]:
    options.trust_compiled_plan = os.environ["TRUSTED"] == "1"
else:
    options.add_session_config_entry("ep.context_enable", "1")
try:
    session = tenonnx.InferenceSession(os.environ["MODEL"], options, providers=["vec"])
    found = float(session.run(None, {"x": np.ones((2, 256), np.float32)})[0].sum())
except tenonnx.TenonnxError as error:
    found = str(error)
print(json.dumps(found))
"""


def test_compiled_segments_in_a_model(site: Path, model: Path, tmp_path: Path) -> None:
    def opens(path: Path, trusted: str, number: int, **more: str) -> Any:
        where = tmp_path / f"cache{number}"  # what one process has cached is not another one's
        given = {"MODEL": path, "TRUSTED": trusted, "TENONNX_CACHE_DIR": where, **more}
        return child(CONTEXTS, site, **given)

    total = 2 * 256 * 128
    assert opens(model, "", 0) == total
    written = model.with_name("model_ctx.onnx")
    (node,) = onnx.load(written).graph.node
    assert (node.domain, node.op_type) == ("com.microsoft", "EPContext")
    facts = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    assert (facts["source"], facts["main_context"]) == (b"VecExecutionProvider", 1)
    assert opens(written, "1", 1) == total
    assert "trust_compiled_plan=True if you trust it" in opens(written, "0", 2)
    assert "it was compiled for (('driver', '1.0'),)" in opens(written, "1", 3, DRIVER="2.0")
    assert "model_ctx.onnx is there already" in opens(model, "", 4)
