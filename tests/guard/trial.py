"""A model and what it is fed, as the guards run it, and what a stranger might make of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tenonnx_cpu.precision import FAST_PRODUCTS

Arrays = dict[str, np.ndarray[Any, Any]]

HOSTILE = [-1, 0, 1000, 2**31 - 1, 2**31, -(2**31), 2**32 + 1, -(2**32), 2**63 - 1, -(2**63)]
"""Replacements of indices, lengths, counts and attributes, as far as their type has them."""


@dataclass(frozen=True)
class Trial:
    """A model of which some inputs are fed and others constants.

    Attributes:
        name: Of the test.
        proto: The model, without the constants' values.
        feeds: What is fed.
        constants: The initializers by name.
        later: Feeds of the shapes that a session has seen before; each must end well, or refused.
        settings: Entries of the session's configuration.
        near: How far results may be from numpy's, as a share of the greatest.
    """

    name: str
    proto: onnx.ModelProto
    feeds: Arrays
    constants: Arrays = field(default_factory=dict)
    later: Sequence[Arrays] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    near: float = 1e-3

    def model(self) -> onnx.ModelProto:
        """Return the model with its constants, and with no shapes declared."""
        proto = copy.deepcopy(self.proto)
        for value in proto.graph.input:
            for place, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.Clear()
                dim.dim_param = f"{value.name}_{place}"
        del proto.graph.value_info[:]
        proto.graph.initializer.extend(
            numpy_helper.from_array(array, name) for name, array in self.constants.items()
        )
        return proto

    def with_constants(self, names: Sequence[str]) -> Trial:
        """Return this with some of what is fed as constants."""
        proto = copy.deepcopy(self.proto)
        kept = [value for value in proto.graph.input if value.name not in names]
        del proto.graph.input[:]
        proto.graph.input.extend(kept)
        return replace(
            self,
            name=f"{self.name} const",
            proto=proto,
            feeds={name: array for name, array in self.feeds.items() if name not in names},
            constants=self.constants | {name: self.feeds[name] for name in names},
        )


def narrow(trial: Trial) -> Trial:
    """Return a trial whose factors may be rounded to bfloat16."""
    return replace(trial, settings={FAST_PRODUCTS: "1"}, near=2e-2)


def unpacked(trial: Trial) -> Trial:
    """Return a trial whose weights have no packed copies."""
    return replace(trial, settings={"session.disable_prepacking": "1"})


def of_model(name: str, proto: onnx.ModelProto, feeds: Arrays) -> Trial:
    """Return a trial of a model, whose initializers are taken out of it."""
    proto = copy.deepcopy(proto)
    constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    del proto.graph.initializer[:]
    return Trial(name, proto, dict(feeds), constants)


def one(
    name: str,
    op: str,
    inputs: Sequence[Any],
    outputs: int = 1,
    *,
    domain: str = "",
    constants: Container[int] = (),
    opset: int = 21,
    **attributes: Any,
) -> Trial:
    """Return a trial of one node, whose inputs are ``None`` for none.

    Constants are told by position among those that are not.
    """
    count = sum(each is not None for each in inputs)
    fed = [place for place in range(count) if place not in constants]
    return chain(name, [(op, inputs, attributes, domain)], outputs, fed=fed, opset=opset)


def chain(
    name: str,
    steps: Sequence[tuple[Any, ...]],
    outputs: int = 1,
    fed: Sequence[int] = (0,),
    opset: int = 21,
) -> Trial:
    """Return a trial of nodes one after the other, each of which has the last's result first.

    Args:
        name: Of the test.
        steps: Operator, inputs, attributes and perhaps domain of each; ``...`` among the inputs of
            one is the result of the one before.
        outputs: How many the last one has.
        fed: The arrays that are fed, counted through all nodes; others are constants.
        opset: The version of ONNX's operators.
    """
    nodes, given, last = [], {}, ""
    for number, (op, inputs, attributes, *domain) in enumerate(steps):
        names = []
        for array in inputs:
            if array is ...:
                names.append(last)
            elif array is None:
                names.append("")
            else:
                names.append(f"x{len(given)}")
                given[names[-1]] = np.asarray(array)
        is_last = number == len(steps) - 1
        results = [f"y{number}_{place}" for place in range(outputs if is_last else 1)]
        last = results[0]
        made = helper.make_node(op, names, results, domain=(*domain, "")[0])
        made.attribute.extend(helper.make_attribute(*pair) for pair in attributes.items())
        nodes.append(made)
    inputs = [
        helper.make_tensor_value_info(
            f"x{each}",
            helper.np_dtype_to_tensor_dtype(given[f"x{each}"].dtype),
            given[f"x{each}"].shape,
        )
        for each in fed
    ]
    results = [onnx.ValueInfoProto(name=each) for each in nodes[-1].output]
    versions = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 5 if opset > 20 else 3}
    proto = helper.make_model(
        helper.make_graph(nodes, "guarded", inputs, results),
        opset_imports=[helper.make_opsetid(*item) for item in versions.items()],
        ir_version=10,
    )
    feeds = {f"x{each}": given.pop(f"x{each}") for each in fed}
    return Trial(name, proto, feeds, given)


def hostile(trial: Trial) -> Iterator[Trial]:
    """Return what a stranger might make of a trial: other numbers, other lengths."""
    yield from _other_feeds(trial)
    for name, array in trial.constants.items():
        for what, other in (*_numbers(array), *_lengths(array), *_dtypes(array)):
            changed = trial.constants | {name: other}
            yield replace(trial, name=f"{trial.name} {name} {what}", constants=changed)
    for name, array in trial.feeds.items():
        for what, other in _lengths(array):
            changed = trial.feeds | {name: other}
            yield replace(trial, name=f"{trial.name} {name} {what}", feeds=changed)
    yield from _other_attributes(trial)


FLOATS = [float("nan"), float("inf"), -float("inf"), 0.0, -1.0, 3e38, 1e-38]


UNKNOWN = float("inf")
"""The tolerance of results that nothing specifies: any, but in memory that is theirs."""


def unreal(trial: Trial) -> Iterator[Trial]:
    """Return a trial with other real numbers where there are few: scales, limits, thresholds."""
    for name, array in (trial.feeds | trial.constants).items():
        if array.dtype != np.float32 or not 0 < array.size <= FEW:
            continue
        for number in FLOATS:
            other = array.copy()
            other.reshape(-1)[-1] = number
            changed = {
                part: values | {name: other} if name in values else values
                for part, values in (("feeds", trial.feeds), ("constants", trial.constants))
            }
            yield replace(trial, name=f"{trial.name} {name} {number}", near=UNKNOWN, **changed)
    for number, node in enumerate(trial.proto.graph.node):
        for place, attribute in enumerate(node.attribute):
            if attribute.type == onnx.AttributeProto.FLOAT:
                for other in FLOATS:
                    proto = copy.deepcopy(trial.proto)
                    proto.graph.node[number].attribute[place].f = other
                    name = f"{trial.name} {attribute.name} {other}"
                    yield replace(trial, name=name, near=UNKNOWN, proto=proto)


FEW = 8
"""Numbers up to which an array is one of parameters."""


def strided(trial: Trial) -> Iterator[Trial]:
    """Return a trial with what it is fed lying in memory in other ways."""
    for kind, laid in LAYOUTS.items():
        feeds = {name: laid(array) if array.ndim else array for name, array in trial.feeds.items()}
        yield replace(trial, name=f"{trial.name} {kind}", feeds=feeds)


def _apart(array: Any) -> Any:
    return np.repeat(array, 2, -1)[..., ::2]


def _unaligned(array: Any) -> Any:
    if array.dtype.hasobject:
        return array
    raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
    copy = np.ndarray(array.shape, array.dtype, raw)
    copy[...] = array
    return copy


def _repeated(array: Any) -> Any:
    return np.broadcast_to(array.take([0], 0), array.shape) if array.size else array


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "turned": np.asfortranarray,
    "backwards": lambda array: np.ascontiguousarray(np.flip(array))[
        (slice(None, None, -1),) * array.ndim
    ],
    "apart": _apart,
    "unaligned": _unaligned,
    "repeated": _repeated,
}


def _other_feeds(trial: Trial) -> Iterator[Trial]:
    """Return a trial that, after what it is fed, is fed other numbers of the same shapes."""
    later = [
        trial.feeds | {name: other}
        for name, array in trial.feeds.items()
        for _, other in _numbers(array)
    ]
    if later:
        yield replace(trial, name=f"{trial.name} later", later=later)
        yield replace(trial, name=f"{trial.name} first", feeds=later[0], later=later)


def _numbers(array: Any) -> Iterator[tuple[str, Any]]:
    """Return an array of integers with other numbers in it."""
    if array.dtype.name not in ("int32", "int64") or not array.size:
        return
    limits = np.iinfo(array.dtype)
    for number in HOSTILE:
        if not limits.min <= number <= limits.max:
            continue
        for place in {0, array.size - 1}:
            other = array.copy()
            other.reshape(-1)[place] = number
            yield f"[{place}]={number}", other
        if array.size > 1:
            yield f"={number}", np.full_like(array, number)


def _lengths(array: Any) -> Iterator[tuple[str, Any]]:
    """Return an array with a row less, or one more, or none, along each of its axes."""
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        return
    if array.ndim == 0:
        yield "empty", np.zeros(0, array.dtype)
        yield "twice", np.stack([array, array])
    for axis in range(array.ndim):
        if array.shape[axis]:
            yield f"axis {axis} shorter", np.delete(array, -1, axis)
            yield f"axis {axis} longer", np.concatenate([array, array.take([-1], axis)], axis)
        if array.shape[axis] > 1:
            yield f"axis {axis} single", array.take([0], axis)


def _dtypes(array: Any) -> Iterator[tuple[str, Any]]:
    """Return an array with elements of other types."""
    for dtype in OTHERS.get(array.dtype.name, ()):
        yield dtype, array.astype(dtype)


OTHERS = {
    "float32": ("float64", "float16", "int32"),
    "int64": ("int32",),
    "int32": ("int64", "float32", "int8"),
    "uint8": ("int8", "int32"),
    "int8": ("uint8", "int32"),
}


def _other_attributes(trial: Trial) -> Iterator[Trial]:
    for number, node in enumerate(trial.proto.graph.node):
        for place, attribute in enumerate(node.attribute):
            for what, change in _changes(attribute):
                proto = copy.deepcopy(trial.proto)
                change(proto.graph.node[number].attribute[place])
                name = f"{trial.name} {attribute.name} {what}"
                yield replace(trial, name=name, proto=proto)


def _changes(attribute: onnx.AttributeProto) -> Iterator[tuple[str, Callable[[Any], None]]]:
    if attribute.type == onnx.AttributeProto.INT:
        for number in HOSTILE:
            yield f"={number}", lambda to, number=number: setattr(to, "i", number)
    for kind in ("ints", "floats"):
        numbers = getattr(attribute, kind)
        if numbers:
            yield "shorter", lambda to, kind=kind: getattr(to, kind).pop()
            yield "longer", lambda to, kind=kind: getattr(to, kind).append(getattr(to, kind)[-1])
    for place in (0,) if attribute.ints else ():
        for number in HOSTILE:
            yield (
                f"[{place}]={number}",
                lambda to, number=number, place=place: to.ints.__setitem__(place, number),
            )
