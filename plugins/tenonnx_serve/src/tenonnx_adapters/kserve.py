"""A ``kserve.Model``; a server's workers map the same model."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import InferenceSession, SessionOptions, TenonnxError
from tenonnx_adapters import described, needed
from tenonnx_serve.tensors import TensorSpec

kserve = needed("kserve")
errors = needed("kserve.errors")
Model: Any = kserve.Model


class OnnxModel(Model):
    """Serves a model over the protocols v1 and v2; spawned workers get a recipe of it.

    Args:
        name: The model's name for clients.
        path: The model's path.
        options: As for a session.
        providers: As for a session.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str],
        options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(name)
        self._how = (path, options, providers)
        self.session: InferenceSession | None = None

    def load(self) -> bool:
        """Open the model."""
        self.session = InferenceSession(*self._how)
        self._inputs = described(self.session.get_inputs())
        self._outputs = described(self.session.get_outputs())
        self.ready = True
        return True

    def stop(self) -> None:
        """Close the model."""
        super().stop()
        self.session = None

    def get_input_types(self) -> list[dict[str, Any]]:
        """Return the model's inputs, for clients."""
        return list(map(_metadata, self._inputs.values()))

    def get_output_types(self) -> list[dict[str, Any]]:
        """Return the model's outputs, for clients."""
        return list(map(_metadata, self._outputs.values()))

    async def predict(self, payload: Any, *_: Any) -> Any:
        """Answer a request of either protocol, in a thread; cancelling it cancels the run.

        Raises:
            InvalidInput: The request does not fit the model.
            ModelNotReady: The model is not loaded.
        """
        if self.session is None:
            raise errors.ModelNotReady(self.name)
        if isinstance(payload, bytes):
            payload = _parsed(payload)
        if isinstance(payload, Mapping):
            (name, spec), *others = self._inputs.items()
            if others:
                raise errors.InvalidInput(f"v1 takes one input; {self.name} has {[*self._inputs]}")
            first = await self._run({name: _array(spec, payload.get("instances"))}, None)
            return {"predictions": first[0].tolist()}
        try:
            feeds = {each.name: _words(each.as_numpy()) for each in payload.inputs}
        except (ValueError, TypeError) as error:
            raise errors.InvalidInput(str(error)) from error
        wanted = [each.name for each in payload.request_outputs or ()] or [*self._outputs]
        return self._answer(payload, wanted, await self._run(feeds, wanted))

    async def _run(self, feeds: Mapping[str, Any], wanted: list[str] | None) -> list[Any]:
        assert self.session is not None
        try:
            return await self.session.run_async(wanted, feeds)
        except ValueError as error:
            raise errors.InvalidInput(str(error)) from error
        except TenonnxError as error:
            raise errors.InferenceError(str(error)) from error

    def _answer(self, request: Any, names: list[str], arrays: list[Any]) -> Any:
        outputs = []
        for name, array in zip(names, arrays, strict=True):
            output = kserve.InferOutput(name, list(array.shape), self._outputs[name].datatype)
            output.set_data_from_numpy(array, binary_data=True)
            outputs.append(output)
        return kserve.InferResponse(
            response_id=request.id or str(uuid.uuid4()),  # JSON answers need one
            model_name=self.name,
            infer_outputs=outputs,
            from_grpc=request.from_grpc,
            use_binary_outputs=request.use_binary_outputs,
            requested_outputs=request.request_outputs,
        )


def _metadata(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _parsed(body: bytes) -> Any:
    """Return the JSON of a body of v1, which kserve leaves alone if its header states no JSON."""
    try:
        found = json.loads(body)
    except ValueError as error:
        raise errors.InvalidInput(f"the body is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise errors.InvalidInput('the body is no JSON object; expected {"instances": [...]}')
    return found


def _array(spec: TensorSpec, instances: Any) -> Any:
    try:
        return np.array(instances, spec.dtype)
    except (ValueError, TypeError) as error:
        raise errors.InvalidInput(f"instances are not {spec.datatype}: {error}") from error


def _words(array: Any) -> Any:
    """Return an array; bytes, which kserve makes of strings, become strings."""
    if array.dtype.kind != "O":
        return array
    words = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    return np.array(words, object).reshape(array.shape)
