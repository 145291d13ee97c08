"""KServe's own clients, and ``tenonnx serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

kserve = pytest.importorskip("kserve", reason="kserve is not installed; tox -e kserve")

from commanded import Served, served  # noqa: E402 - they need what comes with kserve

HEADER = '<ir_version: 10, opset_import: ["": 21]> '

VALUES = {
    "FP32": ("float", np.arange(8, dtype=np.float32).reshape(2, 4)),
    "FP16": ("float16", np.ones((1, 2), np.float16)),
    "INT64": ("int64", np.array([[1, -(1 << 60)]])),
    "BOOL": ("bool", np.array([[True, False]])),
    "BYTES": ("string", np.array([["a", "ü"]], object)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root: Path = tmp_path_factory.mktemp("models")
    for name, (kind, _) in VALUES.items():
        text = f"g ({kind}[n,m] x) => ({kind}[n,m] y) {{ y = Identity(x) }}"
        (root / name / "1").mkdir(parents=True)
        onnx.save(onnx.parser.parse_model(HEADER + text), root / name / "1" / "model.onnx")
    with served(root, "--workers", "2", "--grpc-port", "0") as found:
        yield found


def asked(datatype: str, *, binary: bool) -> Any:
    array = VALUES[datatype][1]
    given = kserve.InferInput("x", list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return kserve.InferRequest(datatype, [given], request_id="mine")


def compared(answer: Any, datatype: str) -> None:
    found = answer.outputs[0].as_numpy().ravel()
    words = [one.decode() if isinstance(one, bytes) else one for one in found]
    assert words == list(VALUES[datatype][1].ravel())
    assert answer.id == "mine"


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", VALUES)
def test_over_http(server: Served, datatype: str, binary: bool) -> None:
    if datatype == "FP16" and not binary:
        pytest.skip("the client refuses it")
    base = f"http://127.0.0.1:{server.port}"

    async def main() -> None:
        client = kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2", retries=1))
        request = asked(datatype, binary=binary)
        compared(await client.infer(base, request, model_name=datatype), datatype)
        assert await client.is_server_live(base)
        assert await client.is_server_ready(base)
        assert await client.is_model_ready(base, datatype)
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("datatype", VALUES)
def test_over_grpc(server: Served, datatype: str) -> None:
    import grpc

    async def main() -> None:
        client = kserve.InferenceGRPCClient(f"127.0.0.1:{server.grpc_port}")
        compared(await client.infer(asked(datatype, binary=True)), datatype)
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready(datatype)
        wrong = asked(datatype, binary=True)
        wrong.model_name = "nothing"
        with pytest.raises(grpc.aio.AioRpcError, match="no model 'nothing'"):
            await client.infer(wrong)
        await client.close()

    asyncio.run(main())
