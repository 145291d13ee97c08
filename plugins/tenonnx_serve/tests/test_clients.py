"""tritonclient's calls, over HTTP and gRPC, on every type that the protocol has."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from servers import Running, double, save, serving
from tenonnx_serve.access import Access
from tenonnx_serve.settings import Settings

DATATYPES = {
    "BOOL": ("bool", np.bool_),
    **{f"INT{bits}": (f"int{bits}", np.dtype(f"int{bits}")) for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": (f"uint{bits}", np.dtype(f"uint{bits}")) for bits in (8, 16, 32, 64)},
    "FP16": ("float16", np.float16),
    "FP32": ("float", np.float32),
    "FP64": ("double", np.float64),
    "BF16": ("bfloat16", ml_dtypes.bfloat16),
    "BYTES": ("string", np.object_),
}


def repository(root: Path) -> Path:
    double(root / "double" / "1" / "model.onnx")
    double(root / "double" / "3" / "model.onnx")
    for name, (kind, _) in DATATYPES.items():
        text = f"g ({kind}[n,m] x) => ({kind}[n,m] y) {{ y = Identity(x) }}"
        save(root / name.lower() / "1" / "model.onnx", text)
    (root / "double" / "config.pbtxt").write_text("max_batch_size: 8 version_policy { all {} }")
    return root


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = repository(tmp_path_factory.mktemp("models"))
    with serving(Settings(str(root), port=0, grpc_port=0, access=Access(control=True))) as found:
        yield found


@pytest.fixture(params=["http", "grpc"])
def client(running: Running, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "http":
        with tritonclient.http.InferenceServerClient(running.address) as found:
            yield found
    else:
        with tritonclient.grpc.InferenceServerClient(running.grpc_address) as found:
            yield found


def library(client: Any) -> Any:
    is_http = isinstance(client, tritonclient.http.InferenceServerClient)
    return tritonclient.http if is_http else tritonclient.grpc


def value(datatype: str) -> np.ndarray[Any, Any]:
    if datatype == "BYTES":
        return np.array([["a", ""], ["ä" * 300, "\x00"]], object)
    return np.array([[0, 1], [1, 0]]).astype(DATATYPES[datatype][1])


def tensor(client: Any, array: np.ndarray[Any, Any], datatype: str, **how: Any) -> Any:
    found = library(client).InferInput("x", array.shape, datatype)
    found.set_data_from_numpy(array, **how)
    return found


def as_text(array: np.ndarray[Any, Any]) -> Any:
    return [x.decode() if isinstance(x, bytes) else x for x in array.ravel()]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_type_comes_back(client: Any, datatype: str) -> None:
    array = value(datatype)
    result = client.infer(datatype.lower(), [tensor(client, array, datatype)], request_id="a")
    found = result.as_numpy("y")
    assert found.shape == array.shape
    assert as_text(found) == as_text(array)
    said = result.get_response()
    assert (said["id"] if isinstance(said, dict) else said.id) == "a"


@pytest.mark.parametrize("datatype", sorted(DATATYPES.keys() - {"BF16", "FP16"}))
def test_every_type_comes_back_in_json(running: Running, datatype: str) -> None:
    array = value(datatype)
    with tritonclient.http.InferenceServerClient(running.address) as client:
        asked = tritonclient.http.InferRequestedOutput("y", binary_data=False)
        given = tensor(client, array, datatype, binary_data=False)
        found = client.infer(datatype.lower(), [given], outputs=[asked]).as_numpy("y")
    assert as_text(found) == as_text(array)


def test_facts(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("double", "1")
    assert not client.is_model_ready("double", "2")
    assert not client.is_model_ready("nothing")
    plain = isinstance(client, tritonclient.http.InferenceServerClient)
    how = {} if plain else {"as_json": True}
    assert client.get_server_metadata(**how)["name"] == "tenonnx"
    assert client.get_model_metadata("double", **how)["versions"] == ["1", "3"]
    config = client.get_model_config("double", **how)
    config = config if plain else config["config"]
    assert config["max_batch_size"] == 8
    assert config["input"][0]["data_type"] == "TYPE_FP32"
    assert list(map(int, config["input"][0]["dims"])) == [4]
    names = client.get_model_repository_index(**how)
    names = names if plain else names["models"]
    assert {"name": "double", "version": "3", "state": "READY"} in names


def test_statistics_count(client: Any) -> None:
    x = np.ones((2, 4), np.float32)
    plain = isinstance(client, tritonclient.http.InferenceServerClient)
    how = {} if plain else {"as_json": True}

    def counts() -> tuple[int, int]:
        (stats,) = client.get_inference_statistics("double", "1", **how)["model_stats"]
        success = stats["inference_stats"]["success"]
        return int(stats.get("inference_count", 0)), int(success.get("count", 0))

    before = counts()
    client.infer("double", [tensor(client, x, "FP32")], model_version="1")
    assert counts() == (before[0] + 2, before[1] + 1)
    assert len(client.get_inference_statistics(**how)["model_stats"]) == len(DATATYPES) + 2


def test_loading_and_unloading(client: Any) -> None:
    x = np.ones((2, 4), np.float32)
    client.unload_model("double")
    assert not client.is_model_ready("double")
    with pytest.raises(InferenceServerException, match="not loaded"):
        client.infer("double", [tensor(client, x, "FP32")])
    client.load_model("double")
    client.load_model("double")
    assert client.is_model_ready("double")
    with pytest.raises(InferenceServerException, match=r"no (path|model) '.*\.\./double"):
        client.load_model("../double")


def test_requests_without_waiting(client: Any) -> None:
    x = np.ones((2, 4), np.float32)
    if library(client) is tritonclient.http:
        asked = [client.async_infer("double", [tensor(client, x, "FP32")]) for _ in range(3)]
        found = [one.get_result() for one in asked]
    else:
        ended: queue.Queue[Any] = queue.Queue()
        for _ in range(3):
            client.async_infer(
                "double",
                [tensor(client, x, "FP32")],
                lambda result, error: ended.put(error or result),
            )
        found = [ended.get(timeout=30) for _ in range(3)]
    assert all(np.array_equal(one.as_numpy("y"), x + x) for one in found)


def test_a_stream_answers_in_order(running: Running) -> None:
    ended: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(running.grpc_address) as client:
        client.start_stream(lambda result, error: ended.put(error or result))
        for number in range(40):
            x = np.full((1, 4), number, np.float32)
            name = "double" if number != 7 else "nothing"
            client.async_stream_infer(
                name,
                [tensor(client, x, "FP32")],
                request_id=str(number),
                enable_empty_final_response=number == 3,
            )
        for number in range(40):
            found = ended.get(timeout=30)
            if number == 7:
                assert "there is no model" in str(found)
            else:
                assert found.get_response().id == str(number)
                assert found.as_numpy("y")[0, 0] == 2 * number
                said = found.get_response().parameters
                assert ("triton_final_response" in said) == (number == 3)
        client.stop_stream()


def test_too_many_rows_for_its_configuration(client: Any) -> None:
    x = np.ones((9, 4), np.float32)
    with pytest.raises(InferenceServerException, match="9 rows"):
        client.infer("double", [tensor(client, x, "FP32")])
