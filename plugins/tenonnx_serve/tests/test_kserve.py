"""A ``kserve.Model`` in kserve's server, asked by kserve's and Triton's clients."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from held import LARGE, settled
from programs import free_port, posted, running

pytest.importorskip("kserve", reason="kserve is not installed; tox -e kserve")

import tritonclient.http as triton  # its gRPC would define the messages of kserve's again
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

pytestmark = pytest.mark.filterwarnings("ignore")  # those of kserve about itself are many

X = np.arange(24, dtype=np.float32).reshape(6, 4)
PROGRAM = """
import sys
import kserve
from tenonnx_adapters.kserve import OnnxModel

class Empty(kserve.Model):
    async def predict(self, payload, headers=None):
        return {"predictions": []}

if __name__ == "__main__":
    path, port, grpc_port, workers = sys.argv[1:]
    model = Empty("m") if path == "none" else OnnxModel("m", path)
    model.load()
    kserve.ModelServer(
        http_port=int(port), grpc_port=int(grpc_port), workers=int(workers),
        enable_grpc=workers == "1",
    ).start([model])
"""


class Ports:
    """The address of a server."""

    def __init__(self) -> None:
        self.http, self.grpc = free_port(), free_port()
        self.address = f"http://127.0.0.1:{self.http}"

    def command(self, path: object, workers: int = 1) -> list[str]:
        return ["program.py", str(path), str(self.http), str(self.grpc), str(workers)]


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    (tmp_path / "program.py").write_text(PROGRAM)
    return Ports()


@pytest.fixture
def server(ports: Ports, path: Path, tmp_path: Path) -> Iterator[Ports]:
    with running(ports.command(path), tmp_path, f"{ports.address}/v2/health/ready"):
        yield ports


async def of_kserve(server: Ports) -> list[Any]:
    given = InferInput("x", [6, 4], "FP32")
    given.set_data_from_numpy(X, binary_data=True)
    request = InferRequest("m", [given])
    rest = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))
    grpc = InferenceGRPCClient(f"127.0.0.1:{server.grpc}")
    try:
        answers = [
            await rest.infer(server.address, request, model_name="m"),
            await grpc.infer(request),
        ]
        return [answer.outputs[0].as_numpy() for answer in answers]
    finally:
        await rest.close()
        await grpc.close()


def of_triton(address: str) -> Any:
    given = triton.InferInput("x", [6, 4], "FP32")
    given.set_data_from_numpy(X)
    client = triton.InferenceServerClient(address)
    try:
        return client.infer("m", [given]).as_numpy("y")
    finally:
        client.close()


def test_its_clients_and_tritons_get_answers(server: Ports, weight: Any) -> None:
    expected = X @ weight
    found = [
        *asyncio.run(of_kserve(server)),
        of_triton(f"127.0.0.1:{server.http}"),
        posted(f"{server.address}/v1/models/m:predict", {"instances": X.tolist()})[1][
            "predictions"
        ],
    ]
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-5)
    for inputs in ([], [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]):
        assert posted(f"{server.address}/v2/models/m/infer", {"inputs": inputs})[0] in (400, 422)
    assert posted(f"{server.address}/v1/models/m:predict", {"instances": "a"})[0] == 400
    curl = "application/x-www-form-urlencoded"  # as `curl -d` states it
    for body, status in (({"instances": X.tolist()}, 200), ([1], 400), (b"{", 400)):
        assert posted(f"{server.address}/v1/models/m:predict", body, curl)[0] == status
    with urllib.request.urlopen(f"{server.address}/v2/models/m", timeout=30) as answer:
        told = json.load(answer)
    assert told["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]


def test_strings(ports: Ports, words: Path, tmp_path: Path) -> None:
    given = triton.InferInput("x", [2], "BYTES")
    given.set_data_from_numpy(np.array([b"a", "ä€".encode()], object))
    with running(ports.command(words), tmp_path, f"{ports.address}/v2/health/ready"):
        client = triton.InferenceServerClient(f"127.0.0.1:{ports.http}")
        assert client.infer("m", [given]).as_numpy("y").tolist() == [b"a", "ä€".encode()]
        client.close()
        body = {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a", "ä€"]}]}
        status, answer = posted(f"{ports.address}/v2/models/m/infer", body)
        assert status == 200, answer
        assert answer["outputs"][0]["data"] == ["a", "ä€"]


def test_a_worker_holds_little_of_a_large_model(ports: Ports, tmp_path: Path, large: Path) -> None:
    ready = f"{ports.address}/v2/health/ready"
    held = []
    for model, instances in (("none", []), (large, [[1.0] * LARGE])):
        with running(ports.command(model, 2), tmp_path, ready) as pid:
            for _ in range(16):
                body = {"instances": instances}
                assert posted(f"{ports.address}/v1/models/m:predict", body)[0] == 200
            held.append(settled(pid, 2))
    print(f"empty {held[0]} MiB, with the model {held[1]}")
    assert max(held[1]) - max(held[0]) <= 15
