"""gRPC's requests and answers: from protobuf messages to arrays and back."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from tritonclient.grpc import service_pb2

from tenonnx_serve import strings
from tenonnx_serve.classification import presented
from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import NO_PARAMETERS, Array, Output, Parameters, Request
from tenonnx_serve.settings import Limits
from tenonnx_serve.shared_memory import OFFSET, REGION, SIZE, Regions
from tenonnx_serve.tensors import TensorSpec, checked_shape, from_bytes, to_bytes

# The field of ``InferTensorContents`` by datatype; those of 16 bits have none.
CONTENTS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def decode(model: Model, message: Any, limits: Limits, regions: Regions) -> Request:
    """Return the request in a ``ModelInferRequest``.

    Raises:
        BadRequest: It does not fit the model, or contradicts itself.
        TooLarge: It exceeds the limits.
    """
    raws = iter(message.raw_input_contents)
    inputs: dict[str, Array] = {}
    for tensor in message.inputs:
        spec = model.input(tensor.name)
        if spec.name in inputs:
            raise BadRequest(f"input '{spec.name}' is given twice")
        shape = checked_shape(spec, tensor.datatype, tensor.shape, limits.elements)
        shared = regions.read(parameters_of(tensor.parameters))
        if shared is not None:
            inputs[spec.name] = from_bytes(spec, shape, shared)
        elif not message.raw_input_contents:
            inputs[spec.name] = _from_contents(spec, shape, tensor.contents)
        elif (raw := next(raws, None)) is not None:
            inputs[spec.name] = from_bytes(spec, shape, raw)
        else:
            raise BadRequest(f"input '{spec.name}' has no entry in raw_input_contents")
    if next(raws, None) is not None:
        raise BadRequest("raw_input_contents has more entries than the request has inputs")
    outputs = tuple(
        Output(model.output(output.name).name, parameters_of(output.parameters))
        for output in message.outputs
    )
    return Request(inputs, outputs, message.id, parameters_of(message.parameters))


def parameters_of(said: Any) -> Parameters:
    """Return a message's parameters by name."""
    if not said:
        return NO_PARAMETERS
    chosen = ((key, said[key].WhichOneof("parameter_choice")) for key in said)
    return {key: getattr(said[key], choice) for key, choice in chosen if choice}


def _from_contents(spec: TensorSpec, shape: tuple[int, ...], contents: Any) -> Array:
    field = CONTENTS.get(spec.datatype)
    if field is None:
        raise BadRequest(f"input '{spec.name}': {spec.datatype} needs raw_input_contents")
    items, count = getattr(contents, field), math.prod(shape)
    if len(items) != count:
        raise BadRequest(
            f"input '{spec.name}' has {len(items)} elements in {field}; expected {count}"
        )
    if spec.datatype == "BYTES":
        return strings.of_array(items).reshape(shape)
    try:
        return np.array(items, spec.dtype).reshape(shape)
    except OverflowError:
        raise BadRequest(f"input '{spec.name}' has elements that are not {spec.datatype}") from None


def encode(model: Model, request: Request, arrays: list[Array], regions: Regions) -> Any:
    """Return a ``ModelInferResponse`` with a request's outputs."""
    message = service_pb2.ModelInferResponse(
        model_name=model.name, model_version=model.version, id=request.id
    )
    outputs = request.outputs or [Output(name, NO_PARAMETERS) for name in model.outputs]
    raws = message.raw_output_contents
    for output, computed in zip(outputs, arrays, strict=True):
        datatype, array = presented(output, model, computed)
        told = message.outputs.add(name=output.name, datatype=datatype, shape=array.shape)
        data = to_bytes(array)
        if (where := regions.write(output.parameters, data)) is not None:
            told.parameters[REGION].string_param = where[REGION]
            told.parameters[OFFSET].int64_param = where[OFFSET]
            told.parameters[SIZE].int64_param = where[SIZE]
            data = b""  # raw contents have an entry for each output
        raws.append(data if type(data) is bytes else bytes(data))
    if request.parameters.get("triton_enable_empty_final_response") is True:
        message.parameters["triton_final_response"].bool_param = True
    return message
