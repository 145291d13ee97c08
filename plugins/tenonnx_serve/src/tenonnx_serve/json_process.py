"""Large JSON of inference requests is read by a process of its own.

A parser keeps the interpreter from all other requests while it runs: 80 ms for 16 MiB of numbers.
The process turns the JSON's tensors into binary ones. It knows nothing of the model, so the server
checks what it returns like any client's request.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import msgspec

from tenonnx_serve import json_tensors
from tenonnx_serve.datatypes import DTYPES
from tenonnx_serve.errors import BadRequest, RunFailed, TimedOut
from tenonnx_serve.requests import Parameters
from tenonnx_serve.shared_memory import REGION
from tenonnx_serve.tensors import Buffer, TensorSpec, split, to_bytes

# Bytes of JSON from which on a process reads it: parsing them takes 20 ms, starting it 300.
MIN_BYTES: Final = 4 << 20

# The exit status of a process whose output is the reason for which the request is wrong.
REFUSED: Final = 3


def as_binary(body: Buffer, length: int, seconds: float) -> tuple[bytes, int]:
    """Return a request with binary tensors in place of those in JSON, and its JSON's length.

    Args:
        body: JSON, then the bytes of binary tensors.
        length: The number of bytes of JSON.
        seconds: The time limit.

    Raises:
        BadRequest: The JSON violates the protocol.
        TimedOut: It takes longer.
        RunFailed: The process failed.
    """
    command = [sys.executable, "-P", "-m", "tenonnx_serve.json_process", str(length)]
    with _memory() as given, _memory() as found:
        given.write(body)
        given.seek(0)
        try:
            status = subprocess.run(
                command, stdin=given, stdout=found, timeout=seconds, env=_environment(), check=False
            ).returncode
        except subprocess.TimeoutExpired:
            raise TimedOut(f"the request took longer than {seconds:g} s") from None
        found.seek(0)
        if status == REFUSED:
            raise BadRequest(found.read().decode())
        if status:
            raise RunFailed(f"reading the request's JSON failed with status {status}")
        length = int(found.readline())
        return found.read(), length


def _memory() -> BinaryIO:
    """Return a file in memory."""
    return os.fdopen(os.memfd_create("tenonnx-json"), "w+b", buffering=0)


def _environment() -> Mapping[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    return os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}


def converted(body: Buffer, length: int) -> tuple[bytes, list[Buffer]]:
    """Return the JSON of a request with binary tensors alone, and the pieces of their bytes.

    Raises:
        BadRequest: The JSON violates the protocol.
    """
    view = memoryview(body)
    said, binary = json_tensors.parsed(view[:length]), view[length:]
    inputs, pieces = list[Parameters](), list[Buffer]()
    for tensor in said.inputs:
        parameters = json_tensors.parameters_of(tensor.parameters)
        shape = json_tensors.shape_of(tensor.name, tensor.shape)
        if REGION in parameters:
            pass
        elif (size := parameters.get("binary_data_size")) is not None:
            data, binary = split(tensor.name, size, binary)
            pieces.append(data)
        elif tensor.datatype in DTYPES:  # the server refuses others
            pieces.append(_bytes_of(tensor, shape))
            parameters = {**parameters, "binary_data_size": len(pieces[-1])}
        inputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": shape,
                "parameters": parameters,
            }
        )
    head: dict[str, Any] = {
        "id": said.id,
        "parameters": json_tensors.parameters_of(said.parameters),
        "inputs": inputs,
        "outputs": [
            {"name": one.name, "parameters": json_tensors.parameters_of(one.parameters)}
            for one in said.outputs
        ],
    }
    return msgspec.json.encode(head), [*pieces, binary]


def _bytes_of(tensor: json_tensors.Tensor, shape: list[int]) -> Buffer:
    spec = TensorSpec(tensor.name, tensor.datatype, tuple(shape), DTYPES[tensor.datatype])
    return to_bytes(json_tensors.array_of(spec, spec.shape, tensor.data))


def main() -> None:
    """Convert the request of the standard input; its JSON's length is the first argument."""
    gc.disable()  # the process ends before it would matter
    output = sys.stdout.buffer
    try:
        head, pieces = converted(sys.stdin.buffer.read(), int(sys.argv[1]))
    except BadRequest as error:
        output.write(str(error).encode(errors="replace"))
        output.flush()
        sys.exit(REFUSED)
    output.writelines([b"%d\n" % len(head), head, *pieces])


if __name__ == "__main__":
    main()
