"""gRPC messages that repeat others: their answers are those of messages that protobuf parses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from hypothesis import example, given, seed, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as messages

from serve.servers import save
from tenonnx_serve.core import Core
from tenonnx_serve.grpc_repeated import MOST, Repeated
from tenonnx_serve.grpc_service import model_infer
from tenonnx_serve.settings import Settings

TWO = """g (float[n,2] x, int64[n,2] k, string[n] s) => (float[n,2] y, string[n] t, int64[n,2] z) {
    d = Cast<to=1>(k)  y = Add(x, d)  t = Identity(s)  z = Add(k, k) }"""


pytestmark = pytest.mark.usefixtures("short_runs")


class Served:
    """A core whose runs are known to be short."""

    def __init__(self, root: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.core = self.loop.run_until_complete(self._start(root))
        self.known = learned(self, message())

    async def _start(self, root: Path) -> Core:
        core = Core(Settings(str(root), port=0))
        await core.repository.start()
        return core

    def ask(self, said: Any) -> Any:
        return self.loop.run_until_complete(model_infer(self.core, said))


@pytest.fixture(scope="module", name="served")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("models")
    save(root / "m" / "1" / "model.onnx", TWO)
    found = Served(root)
    yield found
    found.loop.run_until_complete(found.core.close())
    found.loop.close()


def message(rows: int = 1, words: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> Any:
    said = messages.ModelInferRequest(model_name="m")
    data = {
        "x": np.arange(2 * rows, dtype=np.float32).tobytes(),
        "k": np.arange(2 * rows, dtype=np.int64).tobytes(),
        "s": b"".join(
            len(word).to_bytes(4, "little") + word.encode() for word in words or ("word",) * rows
        ),
    }
    for (name, raw), kind in zip(data.items(), ("FP32", "INT64", "BYTES"), strict=True):
        said.inputs.add(name=name, datatype=kind, shape=[rows] if name == "s" else [rows, 2])
        said.raw_input_contents.append(raw)
    for name in outputs:
        said.outputs.add(name=name)
    return said


def learned(served: Served, *those: Any) -> Repeated:
    """Returns what has learned messages whose runs are known to be short."""
    repeated = Repeated(served.core)
    for said in those:
        data = said.SerializeToString()
        until = time.monotonic() + 20
        while repeated.answer(data) is None and time.monotonic() < until:
            served.ask(said)
            repeated.learn(data, said)
            time.sleep(0.001)  # the time of a run is noted after its answer
    return repeated


def parsed(data: bytes | None) -> Any:
    assert data is not None
    return messages.ModelInferResponse.FromString(data)


def test_what_repeats_is_answered_alike(served: Served) -> None:
    some = [message(), message(3), message(1, outputs=("z", "y")), message(1, ("wo", ""))]
    some[3].model_version = "1"
    some[3].raw_input_contents[2] = b"\2\0\0\0wo"
    repeated = learned(served, *some)
    for said in some:
        assert parsed(repeated.answer(said.SerializeToString())) == served.ask(said)
    other = message()
    other.raw_input_contents[0] = np.array([7, -8], np.float32).tobytes()
    found = parsed(repeated.answer(other.SerializeToString()))
    assert found == served.ask(other)
    assert np.frombuffer(found.raw_output_contents[0], np.float32).tolist() == [7, -7]


def test_what_has_more_is_not_learned(served: Served) -> None:
    plain = message()
    numbered, timed, ranked, typed = (message() for _ in range(4))
    numbered.id = "7"
    timed.parameters["timeout"].int64_param = 10**7
    ranked.outputs.add(name="y").parameters["classification"].int64_param = 1
    del typed.raw_input_contents[:]
    for tensor, values in zip(typed.inputs, ([1, 2], [3, 4], [b"word"]), strict=True):
        field = {"FP32": "fp32", "INT64": "int64", "BYTES": "bytes"}[tensor.datatype]
        getattr(tensor.contents, f"{field}_contents").extend(values)
    for said in (numbered, timed, ranked, typed):
        repeated = Repeated(served.core)
        repeated.learn(said.SerializeToString(), said)
        assert not repeated._forms
    reordered = plain.SerializeToString()
    raw = b"\x3a\x08" + plain.raw_input_contents[0]
    reordered = raw + reordered.replace(raw, b"")
    same = messages.ModelInferRequest.FromString(reordered)
    assert same == plain
    repeated = Repeated(served.core)
    repeated.learn(reordered, same)
    assert not repeated._forms


def test_forms_are_few_and_end_with_their_model(served: Served) -> None:
    repeated = learned(served, message())
    for words in range(2 * MOST):
        said = message(1, ("w" * words,))
        repeated.learn(said.SerializeToString(), said)
    assert sum(map(len, repeated._forms.values())) <= MOST
    repeated = learned(served, message())
    served.loop.run_until_complete(served.core.repository.load("m"))
    assert repeated.answer(message().SerializeToString()) is None
    assert not repeated._forms
    served.known = learned(served, message())


PLAIN = message().SerializeToString()


@seed(0)
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(PLAIN) - 1), st.integers(0, 255)), max_size=3))
@example([(PLAIN.index(b"\x3a\x08") + 1, 9)])
@example([(PLAIN.index(b"\x3a\x08"), 0x32)])
def test_bytes_changed(served: Served, changes: list[tuple[int, int]]) -> None:
    data = bytearray(PLAIN)
    for place, byte in changes:
        data[place] = byte
    answer = served.known.answer(bytes(data))
    if answer is not None:
        said = messages.ModelInferRequest.FromString(bytes(data))
        assert parsed(answer) == served.ask(said)
