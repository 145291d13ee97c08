"""An ``mlserver.MLModel`` in MLServer, asked by Triton's clients."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from held import LARGE, settled
from programs import free_port, posted, running

if importlib.util.find_spec("mlserver") is None:  # whose messages are not to be defined twice
    pytest.skip("mlserver is not installed; tox -e mlserver", allow_module_level=True)

import tritonclient.grpc
import tritonclient.http

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the clients about themselves

X = np.arange(24, dtype=np.float32).reshape(6, 4)
EMPTY = """
import mlserver, mlserver.types

class Empty(mlserver.MLModel):
    async def load(self):
        return True

    async def predict(self, payload):
        return mlserver.types.InferenceResponse(model_name=self.name, outputs=[])
"""


class Folder:
    """A folder with the settings of a server and of its model."""

    def __init__(self, folder: Path, workers: int = 0) -> None:
        self.folder = folder
        self.http, self.grpc = free_port(), free_port()
        self.address = f"http://127.0.0.1:{self.http}/v2/models/m"
        ports = {"http_port": self.http, "grpc_port": self.grpc, "metrics_port": free_port()}
        settings = ports | {"host": "127.0.0.1", "parallel_workers": workers}
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "empty.py").write_text(EMPTY)

    def model(self, implementation: str, path: object) -> Any:
        said = {"name": "m", "implementation": implementation, "parameters": {"uri": str(path)}}
        (self.folder / "model-settings.json").write_text(json.dumps(said))
        command = ["-m", "mlserver.cli.main", "start", "."]
        return running(command, self.folder, f"{self.address}/ready")


@pytest.fixture
def server(path: Path, tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    with folder.model("tenonnx_adapters.mlserver.OnnxModel", path):
        yield folder


def asked(library: Any, address: str, **how: Any) -> Any:
    given = library.InferInput("x", [6, 4], "FP32")
    given.set_data_from_numpy(X, **how)
    client = library.InferenceServerClient(address)
    wanted = [library.InferRequestedOutput("y", **how)]
    try:
        return client.infer("m", [given], outputs=wanted).as_numpy("y")
    finally:
        client.close()


def test_clients_get_answers(server: Folder, weight: Any) -> None:
    found = [
        asked(tritonclient.http, f"127.0.0.1:{server.http}", binary_data=False),
        asked(tritonclient.grpc, f"127.0.0.1:{server.grpc}"),
    ]
    for each in found:
        np.testing.assert_allclose(each, X @ weight, rtol=1e-5)
    for wrong in (
        {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]},
        {"name": "x", "shape": [1, 4], "datatype": "INT32", "data": [1, 2, 3, 4]},
        {"name": "z", "shape": [1], "datatype": "FP32", "data": [1]},
    ):
        status, said = posted(f"{server.address}/infer", {"inputs": [wrong]})
        assert status == 400
        assert b"input" in said


def test_strings(words: Path, tmp_path: Path) -> None:
    given = tritonclient.grpc.InferInput("x", [2], "BYTES")
    given.set_data_from_numpy(np.array([b"a", "ä€".encode()], object))
    folder = Folder(tmp_path)
    with folder.model("tenonnx_adapters.mlserver.OnnxModel", words):
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{folder.grpc}")
        assert client.infer("m", [given]).as_numpy("y").tolist() == [b"a", "ä€".encode()]
        client.close()
        body = {"inputs": [{"name": "x", "shape": [2], "datatype": "BYTES", "data": ["a", "ä€"]}]}
        status, answer = posted(f"{folder.address}/infer", body)
        assert (status, answer["outputs"][0]["data"]) == (200, ["a", "ä€"])


def test_a_worker_holds_little_of_a_large_model(tmp_path: Path, large: Path) -> None:
    body = {"inputs": [{"name": "x", "shape": [1, LARGE], "datatype": "FP32", "data": [1] * LARGE}]}
    held = []
    folder = Folder(tmp_path, workers=2)
    for name in ("empty.Empty", "tenonnx_adapters.mlserver.OnnxModel"):
        with folder.model(name, large) as pid:
            for _ in range(16):
                assert posted(f"{folder.address}/infer", body)[0] == 200
            held.append(settled(pid, 2))
    print(f"empty {held[0]} MiB, with the model {held[1]}")
    assert max(held[1]) - max(held[0]) <= 15
