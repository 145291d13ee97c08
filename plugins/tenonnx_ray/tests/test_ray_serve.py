"""Ray Serve runs models: handles, HTTP, batches, and many models in few replicas."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("ray.serve", reason="ray is not installed; tox -e ray")

from ray import serve

from tenonnx_ray import OnnxDeployment, OnnxRepository

pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray about itself are many

X = np.arange(24, dtype=np.float32).reshape(6, 4)
PORT = 18093


@pytest.fixture(scope="module", autouse=True)
def serving(cluster: Any) -> Iterator[None]:
    assert cluster.is_initialized()
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    yield
    serve.shutdown()


def posted(route: str, body: object, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    address = f"http://127.0.0.1:{PORT}/{route}"
    request = urllib.request.Request(address, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_one_model(path: Path, weight: Any) -> None:
    """Handle and HTTP give the same, alone and together; what is wrong is wrong alone."""
    app = OnnxDeployment.options(num_replicas=2).bind(
        str(path), max_batch_size=4, batch_wait_timeout_s=0.05
    )
    handle = serve.run(app, name="one", route_prefix="/one")
    waiting = [handle.remote({"x": X[i : i + 1]}) for i in range(6)]
    wrong = handle.remote({"x": X[:, :2]})
    for i, answer in enumerate(waiting):
        np.testing.assert_allclose(answer.result()["y"], X[i : i + 1] @ weight, rtol=1e-6)
    with pytest.raises(Exception, match="input 'x'"):
        wrong.result()
    status, answer = posted("one", {"inputs": {"x": X.tolist()}})
    assert status == 200
    np.testing.assert_allclose(answer["outputs"]["y"], X @ weight, rtol=1e-5)
    for body, said in (
        (b"{", "Expecting"),
        ([], "inputs"),
        ({"inputs": {"x": [["a"]]}}, "expected a list of numbers"),
        ({"inputs": {"x": [[1], [1, 2]]}}, "inhomogeneous"),
        ({"inputs": {"z": [1]}}, "'z'"),
        ({"inputs": {"x": [[1, 2]]}}, "input 'x'"),
    ):
        status, answer = posted("one", body)
        assert status == 400, answer
        assert said in answer["error"], body
    serve.delete("one")


def test_many_models_share_replicas(tmp_path: Path) -> None:
    for name, factor in (("double", 2), ("triple", 3), ("half", 0.5)):
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 21]>
            g (float[n] x) => (float[n] y) {{
                f = Constant <value = float {{ {factor} }}> ()  y = Mul(x, f) }}"""
        )
        onnx.save(model, tmp_path / f"{name}.onnx")
    app = OnnxRepository.bind(
        str(tmp_path), max_models=2, max_batch_size=4, batch_wait_timeout_s=0.02
    )
    handle = serve.run(app, name="many", route_prefix="/many")
    one = np.ones(2, np.float32)
    factors = {"double": 2, "triple": 3, "half": 0.5}
    names = [*factors] * 3
    waiting = [handle.options(multiplexed_model_id=n).remote({"x": one}) for n in names]
    for name, answer in zip(names, waiting, strict=True):
        np.testing.assert_array_equal(answer.result()["y"], one * factors[name])
    body = {"inputs": {"x": [1, 2]}}
    assert posted("many", body, serve_multiplexed_model_id="half") == (
        200,
        {"outputs": {"y": [0.5, 1]}},
    )
    for name in ("none", "../half"):
        status, answer = posted("many", body, serve_multiplexed_model_id=name)
        assert status == 404
        assert "no model" in answer["error"]
    serve.delete("many")
