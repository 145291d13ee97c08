"""The protocol's classification extension: the classes with the largest values of an output."""

from __future__ import annotations

import numpy as np

from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Output, quoted

PARAMETER = "classification"


def presented(output: Output, model: Model, array: Array) -> tuple[str, Array]:
    """Return an output in the requested form: unchanged, or as its largest values.

    Largest values are strings ``VALUE:INDEX``, largest first; per row if the model takes rows.

    Args:
        output: The requested output.
        model: The model that made it.
        array: The output.

    Raises:
        BadRequest: The number of classes is invalid, or the output's type has no order.
    """
    datatype = model.outputs[output.name].datatype
    if (count := output.parameters.get(PARAMETER)) is None:
        return datatype, array
    if type(count) is not int or count < 1:
        raise BadRequest(
            f"classification is {quoted(count)}; expected a positive number of classes"
        )
    if array.dtype == object or array.dtype == bool:
        raise BadRequest(f"output '{output.name}' is {datatype}; classification needs numbers")
    rows = model.config.max_batch_size > 0
    values = array.reshape(len(array) if rows else 1, -1)
    # Equal values keep their order, as in Triton.
    order = np.argsort(-values.astype(np.float64), axis=1, kind="stable")[:, :count]
    words = [[f"{values[row, at]:f}:{at}" for at in line] for row, line in enumerate(order)]
    found = np.array(words, object).reshape(order.shape)
    return "BYTES", found if rows else found[0]
