"""Outputs of which a model does not say all: the rest is inferred when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from tenonnx.interface.signature import NodeArg

DECLARABLE = frozenset({"type", "shape"})


class Inferred(NodeArg):
    """An output like others; programs that read names alone need not wait for the rest.

    Args:
        said: The declared type, which stays if none is inferred.
        infer: Returns all outputs by name; it is kept until it is asked.
    """

    def __init__(self, said: NodeArg, infer: Callable[[], Mapping[str, NodeArg]]) -> None:
        vars(self).update(name=said.name, _said=said, _infer=infer)

    def __getattr__(self, name: str) -> Any:
        if name not in DECLARABLE:
            raise AttributeError(name)
        return vars(self._settled())[name]

    def __eq__(self, other: object) -> Any:
        return self._settled() == other

    def __hash__(self) -> int:
        return hash(self._settled())

    def __repr__(self) -> str:
        return repr(self._settled())

    def __reduce__(self) -> tuple[Any, ...]:
        settled = vars(self._settled())
        return NodeArg, tuple(settled[field.name] for field in fields(NodeArg))

    def _settled(self) -> Any:
        """Return itself, which is an output like others from now on."""
        state = vars(self)
        said, infer = state.get("_said"), state.get("_infer")
        if said is not None and infer is not None:  # or another thread was faster
            found = infer().get(said.name, said)
            state.update(type=found.type or said.type, shape=found.shape)
            object.__setattr__(self, "__class__", NodeArg)
            state.pop("_said", None)
            state.pop("_infer", None)
        return self
