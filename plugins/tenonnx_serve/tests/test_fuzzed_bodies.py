"""Bodies that strangers may send: each is answered, as a mistake or with outputs, and no more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, seed, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

import tenonnx
from servers import double
from tenonnx_serve import config, grpc_infer, rest_infer
from tenonnx_serve.errors import ServeError
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Request
from tenonnx_serve.settings import Batching, Limits
from tenonnx_serve.shared_memory import Regions

LIMITS = Limits(body=1 << 16, elements=1 << 12)

SCALARS = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(max_size=5),
    st.integers(-(1 << 70), 1 << 70), st.sampled_from([0, 1, 4, 8, 16, 1 << 40]),
)  # fmt: skip
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
SHAPES = st.one_of(ANYTHING, st.lists(st.sampled_from([0, 1, 2, 4, -1, 1 << 40]), max_size=3))
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["x", "y"]) | ANYTHING,
        "datatype": st.sampled_from(["FP32", "BYTES", "INT4"]) | ANYTHING,
        "shape": SHAPES,
        "data": ANYTHING | st.lists(st.floats(), min_size=4, max_size=4),
        "parameters": ANYTHING
        | st.fixed_dictionaries(
            {},
            optional={
                "binary_data_size": SCALARS,
                "binary_data": SCALARS,
                "classification": SCALARS,
                "shared_memory_region": SCALARS,
                "shared_memory_byte_size": SCALARS,
            },
        ),
    },
)
REQUESTS = st.fixed_dictionaries(
    {},
    optional={
        "id": SCALARS,
        "inputs": st.lists(TENSORS, max_size=2) | ANYTHING,
        "outputs": st.lists(TENSORS, max_size=2) | ANYTHING,
        "parameters": ANYTHING | st.fixed_dictionaries({}, optional={"timeout": SCALARS}),
    },
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    path = double(tmp_path_factory.mktemp("fuzzed") / "model.onnx")
    session = tenonnx.InferenceSession(str(path), providers=["cpu"])
    return Model("m", "1", session, config.empty(), Batching())


def told(model: Model, request: Request) -> list[Any]:
    assert all(array.size <= LIMITS.elements for array in request.inputs.values())
    assert request.timeout > 0
    try:
        return model.session.run(request.names or None, request.inputs)
    except tenonnx.InvalidArgument:  # an input is missing
        return []


def expect_mistake(error: ServeError) -> None:
    assert error.status in (400, 404, 413)
    assert len(str(error)) < 1000


def ask(model: Model, body: bytes, header: bytes | None) -> None:
    try:
        request = rest_infer.decode(model, body, header, LIMITS, Regions())
        if outputs := told(model, request):
            pieces, length = rest_infer.encode(model, request, outputs, Regions())
            head = pieces[0]
            assert len(head) == (length or len(head))
            assert json.loads(head)["outputs"]
    except ServeError as error:
        expect_mistake(error)


@seed(0)
@settings(max_examples=60)
@given(REQUESTS, st.binary(max_size=20), st.none() | st.integers(-5, 200))
def test_json_of_any_form(model: Model, said: Any, behind: bytes, cut: int | None) -> None:
    text = json.dumps(said).encode()
    ask(model, text, None)
    length = len(text) if cut is None else cut
    ask(model, text + behind, b"%d" % length)


@seed(0)
@settings(max_examples=60)
@given(st.binary(max_size=200), st.none() | st.binary(max_size=8))
def test_bytes_of_any_form(model: Model, body: bytes, header: bytes | None) -> None:
    ask(model, body, header)


def valid() -> bytes:
    message = service_pb2.ModelInferRequest(model_name="m", id="7")
    message.raw_input_contents.append(np.ones(4, np.float32).tobytes())
    message.inputs.add(name="x", datatype="FP32", shape=[1, 4])
    message.outputs.add(name="y").parameters["classification"].int64_param = 2
    message.parameters["timeout"].int64_param = 5
    return bytes(message.SerializeToString())


VALID = valid()


@seed(0)
@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)), max_size=4))
def test_messages_with_bytes_changed(model: Model, changes: list[tuple[int, int]]) -> None:
    data = bytearray(VALID)
    for place, byte in changes:
        data[place] = byte
    try:
        message = service_pb2.ModelInferRequest.FromString(bytes(data))
    except DecodeError:
        return
    try:
        request = grpc_infer.decode(model, message, LIMITS, Regions())
        if outputs := told(model, request):
            grpc_infer.encode(model, request, outputs, Regions())
    except ServeError as error:
        expect_mistake(error)
