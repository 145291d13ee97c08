"""gRPC requests that repeat an earlier one, but for the bytes of their tensors.

A client writes the fields of ``ModelInferRequest`` in the order of their numbers, so the tensors'
bytes come last, and most of its requests begin with the same bytes, the head. If the head is known,
and each tensor's length stands where the earlier request had it, then protobuf would find what it
found before. Such a message is not parsed, and its answer has a known head, too.

Requests with an id, parameters or tensors in shared memory are not known, nor are long ones.
"""

from __future__ import annotations

import weakref
from typing import Any, Final

from tritonclient.grpc import service_pb2 as messages

from tenonnx_serve import grpc_infer
from tenonnx_serve.batching import Queue
from tenonnx_serve.core import LARGE, Core
from tenonnx_serve.errors import ServeError
from tenonnx_serve.model import Model
from tenonnx_serve.requests import NOTHING, Array, Output, Request
from tenonnx_serve.shared_memory import Regions
from tenonnx_serve.tensors import TensorSpec, from_bytes, to_bytes

CONTENTS: Final = b"\x3a"
"""The tag of ``raw_input_contents``: field 7, of bytes."""

ANSWERED: Final = b"\x32"
"""The tag of ``raw_output_contents``: field 6, of bytes."""

MOST: Final = 256
"""The most forms to remember, because clients choose them; likewise of an answer's shapes."""

LONGEST: Final = 1 << 12
"""The most bytes of a head."""


class Form:
    """The parts that requests have in common.

    Attributes:
        head: The bytes before the first tensor's tag.
        name: The model.
        version: Its version; empty for the latest.
        queue: That model's queue when the form was learned.
        tensors: For each input: the bytes before its tensor, where the tensor begins and ends, its
            spec and its shape.
        outputs: The requested outputs.
        answers: Heads of answers by the outputs' shapes.
    """

    __slots__ = ("answers", "head", "name", "outputs", "queue", "tensors", "version")

    def __init__(self, head: bytes, message: Any, queue: Queue) -> None:
        self.head, self.name, self.version = head, message.model_name, message.model_version
        self.queue, model = weakref.ref(queue), queue.model
        self.tensors: list[tuple[bytes, int, int, TensorSpec, tuple[int, ...]]] = []
        end = len(head)
        for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
            before = CONTENTS + varint(len(raw))
            start, end = end + len(before), end + len(before) + len(raw)
            self.tensors.append((before, start, end, model.input(tensor.name), tuple(tensor.shape)))
        self.outputs = tuple(Output(output.name, NOTHING) for output in message.outputs)
        self.answers: dict[tuple[tuple[int, ...], ...], bytes] = {}

    def fits(self, data: bytes) -> bool:
        """Says whether a message of the same length has this form."""
        return data.startswith(self.head) and all(
            data.startswith(before, start - len(before)) for before, start, *_ in self.tensors
        )

    def decode(self, data: bytes) -> Request:
        """Returns the request in a message that fits.

        Raises:
            BadRequest: A tensor does not suit the model's input.
        """
        inputs = {
            spec.name: from_bytes(spec, shape, data[start:end])
            for _, start, end, spec, shape in self.tensors
        }
        return Request(inputs, self.outputs, "", NOTHING)

    def encode(
        self, model: Model, request: Request, arrays: list[Array], regions: Regions
    ) -> bytes:
        """Returns the answer, as ``grpc_infer.encode`` makes it."""
        shapes = tuple([array.shape for array in arrays])
        head = self.answers.get(shapes)
        if head is None:
            message = grpc_infer.encode(model, request, arrays, regions)
            del message.raw_output_contents[:]
            head = message.SerializeToString()
            if len(self.answers) < MOST:
                self.answers[shapes] = head
        parts = [head]
        for array in arrays:
            data = to_bytes(array)
            parts += (ANSWERED, varint(len(data)), data)
        return b"".join(parts)


class Repeated:
    """Answers messages of known forms at once.

    Args:
        core: The server's core.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._forms: dict[int, list[Form]] = {}
        self._count = 0

    def answer(self, data: bytes) -> bytes | None:
        """Returns the answer to a message; ``None`` if the usual way must be gone."""
        for form in self._forms.get(len(data), ()):
            if form.fits(data):
                return self._answer(form, data)
        return None

    def _answer(self, form: Form, data: bytes) -> bytes | None:
        try:
            queue = self._core.repository.find(form.name, form.version)
        except ServeError:
            return None
        if form.queue() is not queue:  # loaded again
            self._forget()
            return None
        model, regions = queue.model, self._core.regions
        return self._core.at_once(
            queue,
            lambda: form.decode(data),
            lambda request, arrays: form.encode(model, request, arrays, regions),
        )

    def learn(self, data: bytes, message: Any) -> None:
        """Remembers the form of a message that was answered."""
        try:
            queue = self._core.repository.find(message.model_name, message.model_version)
        except ServeError:
            return
        if len(data) >= LARGE or not (queue.has_short_runs and _is_plain(message)):
            return
        head = _head(message)
        if len(head) > LONGEST or (form := Form(head, message, queue)).tensors[-1][2] != len(data):
            return
        known = self._forms.get(len(data), ())
        if not form.fits(data) or any(one.fits(data) for one in known):
            return
        if self._count == MOST:
            self._forget()
        self._forms.setdefault(len(data), []).append(form)
        self._count += 1

    def _forget(self) -> None:
        self._forms.clear()
        self._count = 0


def _is_plain(message: Any) -> bool:
    """Says whether a message consists of a head and its tensors alone."""
    return bool(
        message.inputs
        and len(message.raw_input_contents) == len(message.inputs)
        and not (message.id or message.parameters)
        and not any(part.parameters for part in (*message.inputs, *message.outputs))
    )


def _head(message: Any) -> bytes:
    head = messages.ModelInferRequest()
    head.CopyFrom(message)
    del head.raw_input_contents[:]
    return bytes(head.SerializeToString())


def varint(number: int) -> bytes:
    """Returns protobuf's form of a number that is not negative."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
