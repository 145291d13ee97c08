"""The CUDA provider where there is no GPU: what it says, what it takes, where nodes go."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import emulated
import numpy as np
import onnx
import pytest

import tenonnx
from hooks import RELU, X
from models import model, node, value
from tenonnx.plugins.choosing import make_options
from tenonnx.provider import why_unusable
from tenonnx_cuda.cupy_stream import raise_lost
from tenonnx_cuda.machine import Machine, visible
from tenonnx_cuda.options import UNLIMITED, CudaOptions
from tenonnx_cuda.provider import CUDAExecutionProvider

GOOD = Machine(
    driver=(13, 0),
    devices=((9, 0),),
    cupy={"cupy-cuda13x": "14.2.0"},
    libraries=frozenset({"nvrtc.13", "cublas.13"}),
)


def without(**changes: object) -> str:
    missing = dataclasses.replace(GOOD, **changes).missing()  # type: ignore[arg-type]  # tests
    assert missing is not None
    return missing


def test_a_whole_machine_misses_nothing() -> None:
    assert GOOD.missing() is None
    built_here = dataclasses.replace(GOOD, cupy={"cupy": "14.1.0"}, libraries=frozenset())
    assert built_here.missing() is None


@pytest.mark.parametrize(
    ("changes", "wrong", "mend"),
    [
        ({"driver": None}, "no NVIDIA driver", "--gpus all"),
        ({"driver": (11, 8)}, "for CUDA 11.8, expected 12.0", "update the driver"),
        ({"devices": ()}, "sees no device", "nvidia-smi"),
        ({"devices": (), "hidden": "-1"}, "CUDA_VISIBLE_DEVICES=-1", "unset"),
        ({"devices": ((6, 1),)}, "compute capability 6.1, expected 7.0", "another GPU"),
        ({"cupy": {}}, "cupy is not installed", "pip install 'tenonnx[cuda]'"),
        ({"cupy": {}, "driver": (12, 4)}, "not installed", "pip install 'cupy-cuda12x[ctk]'"),
        (
            {"cupy": {"cupy-cuda12x": "14.0", "cupy-cuda13x": "14.0"}},
            "cupy-cuda12x and cupy-cuda13x",
            "pip uninstall cupy-cuda12x",
        ),
        ({"cupy": {"cupy-cuda13x": "13.6.0"}}, "13.6.0, expected 14.0", "install -U cupy-cuda13x"),
        ({"driver": (12, 8)}, "needs a driver for CUDA 13", "pip uninstall cupy-cuda13x"),
        ({"libraries": frozenset()}, "libnvrtc.so.13, libcublas.so.13", "'cupy-cuda13x[ctk]'"),
        ({"libraries": frozenset({"nvrtc.13"})}, "libcublas.so.13 of", "'cupy-cuda13x[ctk]'"),
    ],
)
def test_what_is_missing_and_how_to_mend_it(
    changes: dict[str, object], wrong: str, mend: str
) -> None:
    said = without(**changes)
    assert wrong in said
    assert mend in said


@pytest.mark.parametrize(
    ("listed", "count"), [("0", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,7,1", 1), ("GPU-1f,0", 2)]
)
def test_visible_devices(listed: str, count: int) -> None:
    assert visible(listed, 2) == count


def test_listing_providers_imports_no_cupy() -> None:
    code = (
        "import sys, tenonnx, tenonnx_cuda.provider; tenonnx.get_available_providers();"
        "tenonnx_cuda.provider.CUDAExecutionProvider.check();"
        "assert not {'cupy', 'cupyx', 'cupy_backends'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_listing_it_imports_only_what_it_is_listed_by() -> None:
    code = (
        "import sys, tenonnx_cuda.provider as it; it.CUDAExecutionProvider.check();"
        "it.CUDAExecutionProvider.Options();"
        "print(*sorted(n[13:] for n in sys.modules if n.startswith('tenonnx_cuda.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["device", "machine", "options", "provider"]


def test_options_as_onnxruntime_passes_them() -> None:
    given = {
        "device_id": "1",
        "gpu_mem_limit": "2147483648",
        "use_tf32": "0",
        "enable_cuda_graph": "1",
        "arena_extend_strategy": "kSameAsRequested",
        "cudnn_conv_algo_search": "HEURISTIC",
        "do_copy_in_default_stream": "True",
    }
    options = make_options(CudaOptions, given, "CUDAExecutionProvider")
    assert options == CudaOptions(
        device_id=1,
        gpu_mem_limit=2 << 30,
        use_tf32=False,
        enable_cuda_graph=True,
        arena_extend_strategy="kSameAsRequested",
        cudnn_conv_algo_search="HEURISTIC",
    )
    assert CudaOptions().gpu_mem_limit == UNLIMITED


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"device_id": -1}, "device_id is -1; expected 0 or more"),
        ({"weights": "host"}, "weights is 'host'; expected device or mapped"),
        ({"cudnn_conv_algo_search": "FAST"}, "'FAST'; expected EXHAUSTIVE or HEURISTIC or DEFAULT"),
        ({"device": 0}, "has no option 'device'; did you mean 'device_id'"),
        ({"device_id": "first"}, "'device_id' is 'first'; expected int"),
    ],
)
def test_options_that_do_not_fit(given: dict[str, object], said: str) -> None:
    with pytest.raises(tenonnx.InvalidArgument, match=said):
        make_options(CudaOptions, given, "CUDAExecutionProvider")


def no_gpu() -> str:
    reason = why_unusable(CUDAExecutionProvider)
    if reason is None:
        pytest.skip("there is a GPU")
    return reason


def test_without_a_gpu_the_next_provider_runs_and_one_warning_says_so() -> None:
    reason = no_gpu()
    with pytest.warns(UserWarning, match="running on CPUExecutionProvider; not usable") as said:
        session = tenonnx.InferenceSession(RELU, providers=["CUDAExecutionProvider", "cpu"])
    assert len(said) == 1
    assert reason in str(said[0].message)
    assert session.run(None, {"x": X})[0].tolist() == [0, 2]


def test_without_a_gpu_and_a_next_provider_it_is_an_error() -> None:
    reason = no_gpu()
    with pytest.raises(tenonnx.EPFail, match="none of the providers") as raised:
        tenonnx.InferenceSession(RELU, providers=[("cuda", {"device_id": "0"})])
    assert reason in str(raised.value)


def strings(dtype: int = onnx.TensorProto.STRING) -> onnx.ModelProto:
    """Numbers beside strings, whose types the model does not tell in between."""
    return model(
        [
            node("Relu", "x", "y"),
            node("Identity", "s", "t"),
            node("StringConcat", "t s", "u"),
            node("Neg", "y", "z"),
        ],
        [value("x"), value("s", dtype)],
        [value("z"), value("u", dtype)],
    )


def test_strings_go_to_the_cpu_and_numbers_do_not() -> None:
    session = emulated.session(strings(), graph_optimization_level=0)
    placed = {a.node.op_type: (a.provider, a.reasons) for a in session.placement}
    assert placed["Relu"] == placed["Neg"] == ("EmulatedProvider", {})
    assert placed["Identity"] == (
        "CPUExecutionProvider",
        {"EmulatedProvider": "cupy has no elements of string"},
    )
    assert "runs on the host" in placed["StringConcat"][1]["EmulatedProvider"]
    z, u = session.run(None, {"x": X, "s": np.array(["a"], object)})
    assert (z.tolist(), u.tolist()) == ([0, -2], ["aa"])


def test_transfers_happen_at_the_borders_and_once() -> None:
    chain = model(
        [node("Exp", "x", "a"), node("Add", "a x", "b"), node("Tanh", "b", "y")],
        [value("x")],
        [value("y"), value("b")],
    )
    session = emulated.session(chain)
    emulated.settle()
    log = emulated.EmulatedProvider.where.log
    log.clear()
    y, b = session.run(None, {"x": X})
    assert [what for what, *_ in log] == ["to_device", "to_host", "to_host"]
    np.testing.assert_allclose(b, np.exp(X) + X, rtol=1e-6)
    np.testing.assert_allclose(y, np.tanh(np.exp(X) + X), rtol=1e-6)
    assert [len(step.nodes) for step in session.plan.steps] == [2, 1]


def test_control_flow_reads_outer_values_on_the_device() -> None:
    body = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        test (float[n] x, bool c) => (float[n] y) {
            h = Exp(x)
            y = If(c) <then_branch = t () => (float[n] p) { p = Add(h, h) },
                       else_branch = e () => (float[n] q) { q = Neg(h) }>
        }
    """)
    session = emulated.session(body)
    for flag, answer in ((True, 2 * np.exp(X)), (False, -np.exp(X))):
        (y,) = session.run(None, {"x": X, "c": np.array(flag)})
        np.testing.assert_allclose(y, answer, rtol=1e-6)


def test_without_the_cpu_the_error_says_what_to_add() -> None:
    with pytest.raises(tenonnx.NotSupported, match="add it to providers") as raised:
        tenonnx.InferenceSession(strings(), emulated.options(), ["emulated"])
    assert "runs on the host" in str(raised.value)


def test_arithmetic_on_shapes_is_done_where_shapes_are() -> None:
    """It costs no transfer; rows of a table, chosen by a length, are not taken for a shape's."""
    source = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]>
        test (float[b, n, 8] x) => (float[b, n, 2, 4] y, float[c, 8] z)
        <int64 i = {0}, int64 j = {1}, int64[1] axes = {0}, int64[2] rest = {2, 4},
         int64[1] two = {2}> {
            s = Shape(x)
            b0 = Gather<axis=0>(s, i)   n0 = Gather<axis=0>(s, j)
            b1 = Unsqueeze(b0, axes)    n1 = Unsqueeze(n0, axes)
            half = Div(b1, two)         more = Add(half, axes)
            shape = Concat<axis=0>(b1, n1, rest)
            e = Exp(x)                  y = Reshape(e, shape)
            z = Gather<axis=0>(table, more)
        }
    """)
    table = np.arange(160, dtype=np.float32).reshape(20, 8)
    source.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    session = emulated.session(source)
    emulated.settle()
    log = emulated.EmulatedProvider.where.log
    log.clear()
    x = np.random.default_rng(0).standard_normal((4, 3, 8)).astype(np.float32)
    y, z = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.exp(x).reshape(4, 3, 2, 4), rtol=1e-6)
    np.testing.assert_array_equal(z, table[2:3])
    # x goes there, and the row's number; both outputs come back.
    assert sorted(entry[0] for entry in log) == ["to_device"] * 2 + ["to_host"] * 2


class Failure(RuntimeError):
    """As cupy's, which have CUDA's number."""

    def __init__(self, status: int) -> None:
        super().__init__("cudaErrorIllegalAddress: an illegal memory access was encountered")
        self.status = status


def test_a_lost_device_is_told_from_other_failures() -> None:
    with pytest.raises(tenonnx.DeviceReset, match="this process has lost the device: cudaErrorIll"):
        raise_lost(Failure(700))
    for other in (Failure(1), ValueError("700"), None):
        raise_lost(other)


def test_a_node_on_a_lost_device_says_so() -> None:
    class Losing:
        def active(self) -> None:
            raise tenonnx.DeviceReset("this process has lost the device")

    session = emulated.session(RELU)
    stream = session._providers[0].device.stream
    stream.active = Losing().active
    with pytest.raises(tenonnx.DeviceReset, match=r"Relu.*lost the device"):
        session.run(None, {"x": X})
