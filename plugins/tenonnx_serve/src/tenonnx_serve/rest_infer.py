"""REST's requests and answers: a JSON object, then the bytes of binary tensors."""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import msgspec

from tenonnx_serve import json_process, json_tensors
from tenonnx_serve.classification import presented
from tenonnx_serve.errors import BadRequest, TooLarge
from tenonnx_serve.json_tensors import array_of, parameters_of, shape_of, text_of
from tenonnx_serve.model import Model
from tenonnx_serve.requests import NO_PARAMETERS, Array, Output, Request, quoted
from tenonnx_serve.settings import Limits
from tenonnx_serve.shared_memory import REGION as SHARED
from tenonnx_serve.shared_memory import Regions
from tenonnx_serve.tensors import (
    TensorSpec,
    checked_shape,
    from_bytes,
    split,
    to_bytes,
)

HEADER_LENGTH: Final = b"inference-header-content-length"


def decode(
    model: Model, body: bytes | bytearray, header: bytes | None, limits: Limits, regions: Regions
) -> Request:
    """Return the request in a body.

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
    length = _length(body, header, limits.json)
    # Parsing that much JSON here would hold the interpreter's lock, and with it the event loop.
    if length >= json_process.MIN_BYTES:
        body, length = json_process.as_binary(body, length, limits.seconds)
    view = memoryview(body)
    said, binary = json_tensors.parsed(view[:length]), view[length:]
    inputs: dict[str, Array] = {}
    for tensor in said.inputs:
        spec = model.input(tensor.name)
        if spec.name in inputs:
            raise BadRequest(f"input '{spec.name}' is given twice")
        inputs[spec.name], binary = _input(spec, tensor, binary, limits, regions)
    if len(binary):
        raise BadRequest(f"{len(binary)} bytes follow the last binary tensor; expected none")
    outputs = tuple(
        Output(model.output(tensor.name).name, parameters_of(tensor.parameters))
        for tensor in said.outputs
    )
    return Request(inputs, outputs, said.id, parameters_of(said.parameters))


def _whole(model: Model, body: bytes | bytearray, limits: Limits) -> dict[str, Array]:
    """Return a model's only input from a body without JSON, which is all its data.

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


def _length(body: bytes | bytearray, header: bytes | None, most: int) -> int:
    """Return the number of a body's bytes that are JSON, at most so many."""
    if header is None:
        end = len(body)
    elif header.isdigit() and int(header[:20]) <= len(body):
        end = int(header)
    else:
        raise BadRequest(
            f"Inference-Header-Content-Length is {quoted(header)}; expected at most {len(body)}"
        )
    if end > most:
        raise TooLarge(
            f"the request has {end} bytes of JSON, more than the limit of {most}; send tensors as "
            "binary data"
        )
    return end


def _input(
    spec: TensorSpec,
    tensor: json_tensors.Tensor,
    binary: memoryview,
    limits: Limits,
    regions: Regions,
) -> tuple[Array, memoryview]:
    """Return an input, and the rest of the binary data."""
    shape = checked_shape(spec, tensor.datatype, shape_of(spec.name, tensor.shape), limits.elements)
    parameters = parameters_of(tensor.parameters)
    if (shared := regions.read(parameters)) is not None:
        return from_bytes(spec, shape, shared), binary
    if (size := parameters.get("binary_data_size")) is None:
        return array_of(spec, shape, tensor.data), binary
    data, rest = split(spec.name, size, binary)
    return from_bytes(spec, shape, data), rest


def encode(
    model: Model, request: Request, arrays: list[Array], regions: Regions
) -> tuple[list[Any], int]:
    """Return the pieces of an answer's body, and the number of its bytes that are JSON.

    That number is 0 if there are no binary tensors: then all of it is JSON.
    """
    outputs = request.outputs or [Output(name, NO_PARAMETERS) for name in model.outputs]
    binary = request.parameters.get("binary_data_output") is True
    named = b',"id":%b' % msgspec.json.encode(request.id) if request.id else b""
    head = b'{"model_name":%b,"model_version":"%b"%b,"outputs":['
    told = [head % (_quoted(model.name), model.version.encode(), named)]
    pieces, comma = [], b""
    for output, computed in zip(outputs, arrays, strict=True):
        datatype, array = presented(output, model, computed)
        shape = msgspec.json.encode(array.shape)
        head = b'%b{"name":%b,"datatype":"%b","shape":%b,'
        told.append(head % (comma, _quoted(output.name), datatype.encode(), shape))
        comma = b","
        if SHARED in output.parameters:
            place = regions.write(output.parameters, to_bytes(array))
            told.append(b'"parameters":%b}' % msgspec.json.encode(place))
        elif output.parameters.get("binary_data", binary) is True:
            data = to_bytes(array)
            told.append(b'"parameters":{"binary_data_size":%d}}' % len(data))
            pieces.append(data)
        else:
            told += (b'"data":', *text_of(array), b"}")
    whole = b"".join([*told, b"]}"])
    return [whole, *pieces], len(whole) if pieces else 0


@functools.lru_cache(maxsize=1024)
def _quoted(name: str) -> bytes:
    quoted: bytes = msgspec.json.encode(name)
    return quoted
