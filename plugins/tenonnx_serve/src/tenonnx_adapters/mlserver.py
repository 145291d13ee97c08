"""An ``mlserver.MLModel``; a server's workers map the same model."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx import InferenceSession, SessionOptions, TenonnxError
from tenonnx_adapters import described, needed
from tenonnx_serve.tensors import TensorSpec

mlserver = needed("mlserver")
codecs = needed("mlserver.codecs")
errors = needed("mlserver.errors")
types = needed("mlserver.types")
utils = needed("mlserver.utils")
Model: Any = mlserver.MLModel


class OnnxModel(Model):
    """Serves the model that ``parameters.uri`` of the settings names.

    The settings' ``implementation`` is ``tenonnx_adapters.mlserver.OnnxModel``;
    ``parameters.extra`` may have ``providers`` and ``intra_op_num_threads``.
    """

    async def load(self) -> bool:
        """Open the model.

        Raises:
            TenonnxError: As for a session.
        """
        path = await utils.get_model_uri(self._settings, wellknown_filenames=["model.onnx"])
        extra = (self._settings.parameters and self._settings.parameters.extra) or {}
        options = SessionOptions(intra_op_num_threads=extra.get("intra_op_num_threads", 0))
        self._session = InferenceSession(path, options, providers=extra.get("providers"))
        self._specs = described(self._session.get_inputs())
        self._makes = described(self._session.get_outputs())
        self.inputs = list(map(_metadata, self._specs.values()))
        self.outputs = list(map(_metadata, self._makes.values()))
        return True

    async def predict(self, payload: Any) -> Any:
        """Answer a request, in a thread; cancelling it cancels the run.

        Raises:
            InferenceError: The request does not fit the model, or the model failed.
        """
        names = [each.name for each in payload.outputs or ()] or [*self._makes]
        try:
            feeds = {each.name: _array(self._specs.get(each.name), each) for each in payload.inputs}
            arrays = await self._session.run_async(names, feeds)
        except (TenonnxError, ValueError, TypeError) as error:
            raise errors.InferenceError(str(error)) from error
        return types.InferenceResponse(
            id=payload.id,
            model_name=self.name,
            model_version=self.version,
            outputs=[
                _output(self._makes[name], array) for name, array in zip(names, arrays, strict=True)
            ],
        )

    async def unload(self) -> bool:
        """Close the model."""
        del self._session
        return True


def _metadata(spec: TensorSpec) -> Any:
    return types.MetadataTensor(name=spec.name, datatype=spec.datatype, shape=list(spec.shape))


def _array(spec: TensorSpec | None, given: Any) -> Any:
    """Return an input's array; the session reports unknown names."""
    if spec is not None and given.datatype != spec.datatype:
        raise ValueError(
            f"input {given.name!r} has datatype {given.datatype}; expected {spec.datatype}"
        )
    if given.datatype == "BYTES":
        words = codecs.StringCodec.decode_input(given)
        return np.array(words, object).reshape(given.shape)
    return codecs.NumpyCodec.decode_input(given)


def _output(spec: TensorSpec, array: Any) -> Any:
    # NumpyCodec would make a column of every vector, whatever the model's shapes are.
    return types.ResponseOutput(
        name=spec.name, datatype=spec.datatype, shape=list(array.shape), data=array.ravel().tolist()
    )
