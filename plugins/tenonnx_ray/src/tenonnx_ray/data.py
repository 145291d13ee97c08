"""A class for ``Dataset.map_batches``: columns of a batch are a model's inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenonnx import InvalidArgument, SessionOptions
from tenonnx_ray.opening import Source, opened

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Mapping[str, Array]


class Predictor:
    """A model that runs on batches in an actor of Ray Data.

    ``dataset.map_batches(Predictor, fn_constructor_args=("model.onnx",), batch_size=64,
    compute=ActorPoolStrategy(size=2))`` opens it once per actor; actors of one node map the
    same weights.

    Args:
        source: A path that all nodes have, an address in object storage, which each node fetches
            once, or a small model's bytes.
        columns: By input, the name of its column if that differs.
        outputs: Outputs to compute, or by output the name of its column; all of them, under their
            own names, if ``None``.
        keep: Columns to pass on unchanged.
        options: As for a session; a session gets as many threads as Ray gives its actor CPUs.
        providers: As for a session.

    Raises:
        InvalidArgument: An input or output does not exist, or two columns get one name.
        TenonnxError: As for a session.
    """

    def __init__(
        self,
        source: Source,
        *,
        columns: Mapping[str, str] | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
    ) -> None:
        self.session = opened(source, options, providers)
        inputs = [arg.name for arg in self.session.get_inputs()]
        made = [arg.name for arg in self.session.get_outputs()]
        columns = columns or {}
        _check("input", columns, inputs)
        self._columns = {name: columns.get(name, name) for name in inputs}
        wanted = made if outputs is None else outputs
        _check("output", wanted, made)
        named = wanted if isinstance(wanted, Mapping) else {name: name for name in wanted}
        self._names = list(named)
        self._makes = list(named.values())
        self._keep = tuple(keep)
        together = [*self._makes, *self._keep]
        if twice := {name for name in together if together.count(name) > 1}:
            raise InvalidArgument(
                f"columns {sorted(twice)} are made or kept twice",
                hint="choose other names for outputs' columns: outputs={'output': 'column'}",
            )

    def __call__(self, batch: Batch) -> dict[str, Array]:
        """Return the outputs of a batch as columns.

        Raises:
            InvalidArgument: A column is missing or does not fit its input, or an output has
                another number of rows.
        """
        feeds = {name: _column(batch, column) for name, column in self._columns.items()}
        results = self.session.run(self._names, feeds)
        rows = len(next(iter(feeds.values()), ()))
        for name, result in zip(self._names, results, strict=True):
            if not (np.ndim(result) and len(result) == rows):
                raise InvalidArgument(
                    f"output {name!r} has shape {list(np.shape(result))}; expected {rows} rows, "
                    "as this batch has",
                    hint="leave this output out: outputs=[...]",
                )
        kept = {name: _column(batch, name) for name in self._keep}
        return kept | dict(zip(self._makes, results, strict=True))


def _check(kind: str, named: Sequence[str] | Mapping[str, str], known: list[str]) -> None:
    if isinstance(named, str):
        raise InvalidArgument(f"{kind}s are {named!r}; expected a list, or a dict of columns")
    if strange := [name for name in named if name not in known]:
        raise InvalidArgument(f"the model has no {kind} {strange[0]!r}; it has {known}")


def _column(batch: Batch, name: str) -> Array:
    if not isinstance(batch, Mapping):
        raise InvalidArgument(
            f"a batch is a {type(batch).__name__}; expected a dict of arrays",
            hint='call map_batches with batch_format="numpy"',
        )
    if name not in batch:
        raise InvalidArgument(
            f"a batch has no column {name!r}; it has {list(batch)}",
            hint="name the column of an input: columns={'input': 'column'}",
        )
    column = batch[name]
    if column.dtype == object and len({np.shape(row) for row in column}) > 1:
        raise InvalidArgument(f"rows of column {name!r} have different shapes; pad them first")
    return column
