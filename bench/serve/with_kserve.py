"""The same model under KServe, whose model is a method of numpy's: what the server alone takes.

``PYTHON bench/serve/with_kserve.py`` runs in an environment that has kserve, and nothing of this.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import kserve
from kserve import InferOutput, InferResponse


class Doubling(kserve.Model):
    """Adds its input to itself."""

    def __init__(self) -> None:
        super().__init__("m")
        self.ready = True

    async def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
        """Return the output."""
        x = payload.inputs[0].as_numpy()
        output = InferOutput("y", list(x.shape), "FP32")
        output.set_data_from_numpy(x + x, binary_data=True)
        return InferResponse(payload.id or "0", "m", [output])


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    ports = free_port(), free_port()
    print(*ports, flush=True)
    server = kserve.ModelServer(
        http_port=ports[0], grpc_port=ports[1], workers=1, enable_latency_logging=False
    )
    server.start([Doubling()])
