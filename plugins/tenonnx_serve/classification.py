"""Outputs as the classes that have the largest values: the protocol's classification extension."""

from __future__ import annotations

import numpy as np

from tenonnx_serve.errors import BadRequest
from tenonnx_serve.model import Model
from tenonnx_serve.requests import Array, Output, shown

PARAMETER = "classification"


def presented(output: Output, model: Model, array: Array) -> tuple[str, Array]:
    """Returns an output as its client wants it: as it is, or its largest values.

    Those are strings ``VALUE:INDEX``, largest first; of a model that takes rows, those of each.

    Args:
        output: What the client wants.
        model: Whose output it is.
        array: The output.

    Raises:
        BadRequest: The number of classes is none, or the output has none.
    """
    datatype = model.outputs[output.name].datatype
    if (count := output.parameters.get(PARAMETER)) is None:
        return datatype, array
    if type(count) is not int or count < 1:
        raise BadRequest(f"classification is {shown(count)}; expected how many classes")
    if array.dtype == object or array.dtype == bool:
        raise BadRequest(f"output '{output.name}' is {datatype}, which has no largest values")
    rows = model.config.max_batch_size > 0
    values = array.reshape(len(array) if rows else 1, -1)
    # Equal values in their order, as Triton has them.
    order = np.argsort(-values.astype(np.float64), axis=1, kind="stable")[:, :count]
    words = [[f"{values[row, at]:f}:{at}" for at in line] for row, line in enumerate(order)]
    found = np.array(words, object).reshape(order.shape)
    return "BYTES", found if rows else found[0]
