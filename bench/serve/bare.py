"""A server that checks nothing: what uvicorn and grpcio leave for a server to use.

``python -m bench.serve.bare MODEL`` prints its two ports and serves until it is killed.
"""

from __future__ import annotations

import json
import socket
import sys
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import uvicorn
import uvloop
from tritonclient.grpc import service_pb2, service_pb2_grpc

import tenonnx

LENGTH = b"inference-header-content-length"


class Bare:
    """Runs a model whose input is ``x`` and whose output is ``y``, both of float32."""

    def __init__(self, path: str) -> None:
        self._session = tenonnx.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(self, data: Any, shape: Any, offset: int = 0) -> Any:
        """Return the output for an input's bytes."""
        x = np.frombuffer(data, np.float32, offset=offset).reshape(shape)
        return self._session.run(None, {"x": x})[0]

    async def http(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request of HTTP."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        length = int(dict(scope["headers"])[LENGTH])
        said = json.loads(body[:length])["inputs"][0]
        y = self.run(body, said["shape"], length)
        told = {"name": "y", "datatype": "FP32", "shape": y.shape}
        told["parameters"] = {"binary_data_size": y.nbytes}
        head = json.dumps({"model_name": "m", "outputs": [told]}).encode()
        whole = head + y.tobytes()
        headers = [(LENGTH, b"%d" % len(head)), (b"content-length", b"%d" % len(whole))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": whole})

    async def grpc(self, request: Any, context: Any) -> Any:
        """Answer a request of gRPC."""
        del context
        y = self.run(request.raw_input_contents[0], request.inputs[0].shape)
        answer = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=[y.tobytes()])
        answer.outputs.add(name="y", datatype="FP32", shape=y.shape)
        return answer


async def serve(path: str) -> None:
    bare = Bare(path)
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(1024)
    server = grpc.aio.server()
    names = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    methods = SimpleNamespace(**dict.fromkeys(names, bare.grpc))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(methods, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(sock.getsockname()[1], port, flush=True)
    quiet = {"log_config": None, "access_log": False}
    config = uvicorn.Config(bare.http, interface="asgi3", lifespan="off", ws="none", **quiet)
    await uvicorn.Server(config).serve([sock])


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
