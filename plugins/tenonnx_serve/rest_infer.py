"""REST's requests and answers: a JSON object, then the bytes of binary tensors."""

from __future__ import annotations

import functools
import json
import math
from typing import Any, Final

from tenonnx_serve.classification import presented
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import NOTHING, Array, Output, Parameters, Request, shown
from tenonnx_serve.rest import loaded
from tenonnx_serve.settings import Limits
from tenonnx_serve.shared_memory import REGION as SHARED
from tenonnx_serve.shared_memory import Regions
from tenonnx_serve.tensors import (
    TensorSpec,
    checked_shape,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)

NO_TENSORS: Final[list[Parameters]] = []
HEADER_LENGTH: Final = b"inference-header-content-length"


def decode(
    model: Model, body: bytes | bytearray, header: bytes | None, limits: Limits, regions: Regions
) -> Request:
    """Returns the request in a body.

    Args:
        model: The model.
        body: The whole body.
        header: The number of its bytes that are JSON, from the client's header.
        limits: The limits of a request.
        regions: Shared memory.

    Raises:
        BadRequest: It violates the protocol, or does not fit the model.
        TooLarge: It exceeds the limits.
    """
    if header == b"0":
        return Request(_whole(model, body, limits), parameters={"binary_data_output": True})
    said, binary = _split(body, header)
    inputs: dict[str, Array] = {}
    for tensor in _listed(said, "inputs"):
        spec = model.input(tensor.get("name"))
        if spec.name in inputs:
            raise BadRequest(f"input '{spec.name}' is given twice")
        inputs[spec.name], binary = _input(spec, tensor, binary, limits, regions)
    if len(binary):
        raise BadRequest(f"{len(binary)} bytes follow the last binary tensor; expected none")
    outputs = tuple(
        Output(model.output(tensor.get("name")).name, _parameters(tensor))
        for tensor in _listed(said, "outputs")
    )
    said_id = said.get("id", "")
    if not isinstance(said_id, str):
        raise BadRequest(f"id is {shown(said_id)}; expected a string")
    return Request(inputs, outputs, said_id, _parameters(said))


def _whole(model: Model, body: bytes | bytearray, limits: Limits) -> dict[str, Array]:
    """Returns a model's only input from a body without JSON, which is all its data.

    One of its sizes may be open: the body's length tells it.
    """
    if len(model.inputs) != 1:
        raise BadRequest(
            f"model '{model.name}' has {len(model.inputs)} inputs: send JSON before the data"
        )
    (spec,) = model.inputs.values()
    row = math.prod(size for size in spec.shape if size > 0) * spec.dtype.itemsize
    if spec.datatype == "BYTES" or spec.shape.count(-1) > 1 or not row:
        raise BadRequest(f"input '{spec.name}': data alone do not tell its shape; send JSON before")
    shape = [len(body) // row if size == -1 else size for size in spec.shape]
    return {
        spec.name: from_bytes(
            spec, checked_shape(spec, spec.datatype, shape, limits.elements), body
        )
    }


def _split(body: bytes | bytearray, header: bytes | None) -> tuple[Parameters, memoryview]:
    """Returns the JSON object and the bytes after it."""
    if header is None:
        end = len(body)
    elif header.isdigit() and int(header[:20]) <= len(body):
        end = int(header)
    else:
        raise BadRequest(
            f"Inference-Header-Content-Length is {shown(header)}; expected at most {len(body)}"
        )
    view = memoryview(body)
    return loaded(bytes(view[:end]) if end != len(body) else body), view[end:]


def _parameters(said: Parameters) -> Parameters:
    parameters = said.get("parameters", NOTHING)
    if not isinstance(parameters, dict):
        raise BadRequest(f"parameters are {shown(parameters)}; expected an object")
    return parameters


def _listed(said: Parameters, key: str) -> list[Parameters]:
    tensors = said.get(key, NO_TENSORS)
    if not isinstance(tensors, list):
        raise BadRequest(f"{key} are {shown(tensors)}; expected a list of objects")
    for tensor in tensors:
        if not isinstance(tensor, dict):
            raise BadRequest(f"{key} have {shown(tensor)}; expected objects")
    return tensors


def _input(
    spec: TensorSpec, tensor: Parameters, binary: memoryview, limits: Limits, regions: Regions
) -> tuple[Array, memoryview]:
    """Returns an input, and the rest of the binary data."""
    shape = checked_shape(spec, tensor.get("datatype"), tensor.get("shape"), limits.elements)
    parameters = _parameters(tensor)
    if (shared := regions.read(parameters, spec.datatype)) is not None:
        return from_bytes(spec, shape, shared), binary
    if (size := parameters.get("binary_data_size")) is None:
        return from_json(spec, shape, tensor.get("data")), binary
    if type(size) is not int or not 0 <= size <= len(binary):
        raise BadRequest(
            f"input '{spec.name}' has binary_data_size {shown(size)}, where {len(binary)} bytes "
            "are left"
        )
    return from_bytes(spec, shape, binary[:size]), binary[size:]


def encode(
    model: Model, request: Request, arrays: list[Array], regions: Regions
) -> tuple[list[Any], int]:
    """Returns the pieces of an answer's body, and the number of its bytes that are JSON.

    That number is 0 if there are no binary tensors: then all of it is JSON.
    """
    outputs = request.outputs or [Output(name, NOTHING) for name in model.outputs]
    binary = request.parameters.get("binary_data_output") is True
    described, pieces = [], []
    for output, computed in zip(outputs, arrays, strict=True):
        datatype, array = presented(output, model, computed)
        if SHARED in output.parameters:
            how = f'"parameters": {json.dumps(regions.write(output.parameters, to_bytes(array)))}'
        elif output.parameters.get("binary_data", binary) is True:
            data = to_bytes(array)
            how = f'"parameters": {{"binary_data_size": {len(data)}}}'
            pieces.append(data)
        else:
            how = f'"data": {json.dumps(to_json(array))}'
        name, shape = _quoted(output.name), list(array.shape)
        described.append(f'{{"name": {name}, "datatype": "{datatype}", "shape": {shape}, {how}}}')
    # Written by hand, because json.dumps takes longer than all the rest of this.
    named = f', "id": {json.dumps(request.id)}' if request.id else ""
    head = (
        f'{{"model_name": {_quoted(model.name)}, "model_version": "{model.version}"{named}, '
        f'"outputs": [{", ".join(described)}]}}'
    ).encode()
    return [head, *pieces], len(head) if pieces else 0


@functools.lru_cache(maxsize=1024)
def _quoted(name: str) -> str:
    return json.dumps(name)
