"""Extensions of the protocol: asynchronous clients, compression, classes, the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException

import tenonnx
from servers import Running, double, save, serving
from tenonnx_serve.access import Access
from tenonnx_serve.settings import Settings

ROW = np.array([[3, 1, 4, 1]], np.float32)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("models")
    double(root / "double" / "1" / "model.onnx")
    double(root / "rows" / "1" / "model.onnx")
    (root / "rows" / "config.pbtxt").write_text("max_batch_size: 4")
    with serving(Settings(str(root), port=0, grpc_port=0, access=Access(control=True))) as found:
        yield found


def given(library: Any, array: Any = ROW) -> Any:
    tensor = library.InferInput("x", array.shape, "FP32")
    tensor.set_data_from_numpy(array)
    return tensor


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_asynchronous_clients(running: Running, kind: str) -> None:
    library = getattr(tritonclient, kind).aio
    address = running.address if kind == "http" else running.grpc_address

    async def main() -> None:
        async with library.InferenceServerClient(address) as client:
            assert await client.is_server_ready()
            asked = (client.infer("double", [given(library)]) for _ in range(5))
            for result in await asyncio.gather(*asked):
                assert np.array_equal(result.as_numpy("y"), ROW + ROW)

    asyncio.run(main())


def test_an_asynchronous_stream(running: Running) -> None:
    library = tritonclient.grpc.aio

    async def main() -> None:
        async def requests() -> Any:
            for number in range(3):
                yield {"model_name": "double", "inputs": [given(library, ROW * number)]}

        async with library.InferenceServerClient(running.grpc_address) as client:
            number = 0
            async for result, error in client.stream_infer(requests()):
                assert error is None
                assert np.array_equal(result.as_numpy("y"), ROW * number * 2)
                number += 1
            assert number == 3

    asyncio.run(main())


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(running: Running, algorithm: str) -> None:
    how = {
        "request_compression_algorithm": algorithm,
        "response_compression_algorithm": algorithm,
    }
    with tritonclient.http.InferenceServerClient(running.address) as client:
        result = client.infer("double", [given(tritonclient.http)], **how)
        assert np.array_equal(result.as_numpy("y"), ROW + ROW)
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as other:
        found = other.infer("double", [given(tritonclient.grpc)], compression_algorithm=algorithm)
        assert np.array_equal(found.as_numpy("y"), ROW + ROW)


@pytest.mark.parametrize(("model", "expected"), [("double", [3]), ("rows", [1, 3])])
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_classes(running: Running, kind: str, model: str, expected: list[int]) -> None:
    library = getattr(tritonclient, kind)
    address = running.address if kind == "http" else running.grpc_address
    with library.InferenceServerClient(address) as client:
        wanted = library.InferRequestedOutput("y", class_count=3)
        found = client.infer(model, [given(library)], outputs=[wanted]).as_numpy("y")
    assert list(found.shape) == expected
    assert found.ravel().tolist() == [b"8.000000:2", b"6.000000:0", b"2.000000:1"]


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_the_log_and_traces(running: Running, kind: str) -> None:
    library = getattr(tritonclient, kind)
    address = running.address if kind == "http" else running.grpc_address
    how = {} if kind == "http" else {"as_json": True}
    log = logging.getLogger("tenonnx.serve")
    before = log.level
    try:
        with library.InferenceServerClient(address) as client:
            client.update_log_settings({"log_verbose_level": 1}, **how)
            assert log.level == logging.DEBUG
            client.update_log_settings({"log_verbose_level": 0, "log_info": False}, **how)
            assert log.level == logging.WARNING
            assert client.get_log_settings(**how)
            assert client.get_trace_settings(**how)
            with pytest.raises(InferenceServerException, match="clients cannot change it"):
                client.update_trace_settings(settings={"trace_rate": "5"})
            with pytest.raises(InferenceServerException, match="no log setting"):
                client.update_log_settings({"nothing": 1})
    finally:
        log.setLevel(before)


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_a_load_with_something_else_is_refused(running: Running, kind: str) -> None:
    library = getattr(tritonclient, kind)
    address = running.address if kind == "http" else running.grpc_address
    with library.InferenceServerClient(address) as client:
        with pytest.raises(InferenceServerException, match="parameters of a load"):
            client.load_model("double", config="{}", files={"file:1/model.onnx": b"x"})
        with pytest.raises(InferenceServerException, match="CUDA"):
            client.register_cuda_shared_memory("region", b"aGFuZGxl", 0, 10)


def test_a_body_of_data_alone(running: Running) -> None:
    headers = {"Inference-Header-Content-Length": "0"}
    path = "/v2/models/double/infer"
    status, found, got = running.call("POST", path, np.ones(8, np.float32).tobytes(), headers)
    assert status == 200
    length = int(got["inference-header-content-length"])
    assert np.array_equal(np.frombuffer(found[length:], np.float32), np.full(8, 2, np.float32))
    assert running.call("POST", path, b"123", headers)[0] == 400


@pytest.mark.parametrize("kind", ["int4", "uint4", "float8e4m3fn", "complex64"])
def test_types_without_a_word_are_refused_by_name(tmp_path: Path, kind: str) -> None:
    text = f"g ({kind}[n] x) => (float[n] y) {{ y = Cast<to=1>(x) }}"
    path = save(tmp_path / "model.onnx", text)
    with (
        pytest.raises(tenonnx.NotSupported, match=rf"'x', tensor\({kind}\)"),
        serving(Settings(str(path), port=0, grpc_port=None)),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch_size: x", "not a model's configuration"),
        ('name: "other"', "names 'other'"),
        ('platform: "pytorch_libtorch"', "only ONNX models"),
        ("sequence_batching {}", "sequence_batching"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy"),
        ('default_model_filename: "../model.onnx"', "expected the name of a file"),
        ('input { name: "z" data_type: TYPE_FP32 dims: [4] }', "no input or output 'z'"),
        ('input { name: "x" data_type: TYPE_FP64 dims: [-1, 4] }', "TYPE_FP64"),
        ('input { name: "x" data_type: TYPE_FP32 dims: [-1, 5] }', "shape"),
        ("version_policy { specific { versions: [7] } }", "do not exist"),
    ],
)
def test_configurations_that_are_refused(tmp_path: Path, text: str, words: str) -> None:
    double(tmp_path / "m" / "1" / "model.onnx")
    (tmp_path / "m" / "config.pbtxt").write_text(text)
    with (
        pytest.raises(tenonnx.TenonnxError, match=words),
        serving(Settings(str(tmp_path), port=0, grpc_port=None, access=Access(control=True))),
    ):
        pass


def test_links_that_lead_out_of_the_repository_are_not_followed(tmp_path: Path) -> None:
    outside = double(tmp_path / "outside" / "1" / "model.onnx")
    (tmp_path / "models" / "inside" / "1").mkdir(parents=True)
    (tmp_path / "models" / "away").symlink_to(outside.parents[1])
    (tmp_path / "models" / "inside" / "1" / "model.onnx").symlink_to(outside)
    with (
        pytest.raises(tenonnx.NoSuchFile, match="inside"),
        serving(Settings(str(tmp_path / "models"), port=0, grpc_port=None)),
    ):
        pass
