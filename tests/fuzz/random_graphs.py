"""``python -m fuzz.random_graphs``: valid graphs of a number, at both levels and with moved tails.

A graph must give the same on all ways: node after node on numpy, with kernels as it stands, and
with all transforms; so must what ``bodies`` makes of it. Where values of 16 bits are normalized,
rounding after each node may leave nothing right: answers that differ must be nearer to float64's.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tenonnx
from fusing import Plain
from fuzz.bodies import tail_moved
from fuzz.corpus import Feeds
from fuzz.random_nodes import BLOCKS, Growing

Answers = list[np.ndarray[Any, Any]]

DTYPES = (np.float32, np.float32, np.float32, np.float16, "bfloat16")
NEAR = {onnx.TensorProto.FLOAT16: 2e-2, onnx.TensorProto.BFLOAT16: 1e-1}
"""The distance of answers, as a share of the greatest, if a graph has values of such a type:
transforms have them rounded elsewhere. Of others it is ``NEAR_FLOAT``."""

NEAR_FLOAT = 2e-4

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)

BOTH = (0, 99)
RUNS = 4
"""A step is captured in its third run, and replayed in the fourth."""


def random_graph(number: int) -> tuple[onnx.ModelProto, Feeds]:
    """Return the model of a number, all of whose values have types and shapes, and its feeds."""
    draw = random.Random(f"graph {number}")
    growing = Growing(draw, draw.choice(DTYPES))
    for _ in range(draw.randint(2, 14)):
        draw.choices(list(BLOCKS), list(BLOCKS.values()))[0](growing)
    return growing.model(), growing.feeds


def variants(
    number: int, proto: onnx.ModelProto, feeds: Feeds
) -> Iterator[tuple[str, onnx.ModelProto, Feeds]]:
    """Yield a model, and what becomes of it with its tail in a body."""
    yield "as it is", proto, feeds
    moved = tail_moved(proto, feeds, random.Random(f"tail {number}"))
    if moved is not None:
        made, fed, kind = moved
        yield f"tail in {kind}", made, fed
        again = tail_moved(made, fed, random.Random(f"again {number}"), "If")
        if again is not None and "If" not in kind:
            yield f"tail in If, {kind} within", again[0], again[1]


def examine(
    number: int, proto: onnx.ModelProto, feeds: Feeds, levels: tuple[int, ...] = BOTH
) -> list[str]:
    """Return what is wrong with a model, at these levels, as it is and with its tail moved."""
    wrong: list[str] = []
    near = max(NEAR.get(kind, NEAR_FLOAT) for kind in types_of(proto))
    try:
        expected = answers(proto, feeds, 0, plain=True)
    except tenonnx.TenonnxError as error:
        return [f"on numpy: {error}"]
    exact = functools.cache(lambda: answers(*widened(proto, feeds), 0, plain=True))
    for name, made, fed in variants(number, proto, feeds):
        for level in levels:
            try:
                for found in _runs(made, fed, level):
                    said = differ(found, expected, near)
                    if said is not None and not is_nearer(found, expected, exact(), near):
                        wrong.append(f"{name}, level {level}: {said}")
                        break
            except Exception as error:
                wrong.append(f"{name}, level {level}: {type(error).__name__}: {error!s:.600}")
    return wrong


def widened(proto: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    """Return a model and feeds whose floats are all of 64 bits."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    constants = [a for node in made.graph.node for a in node.attribute]
    for tensor in (*made.graph.initializer, *(a.t for a in constants if a.HasField("t"))):
        if tensor.data_type in FLOATS:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for attribute in constants:
        if attribute.name == "to" and attribute.i in FLOATS:
            attribute.i = onnx.TensorProto.DOUBLE
    for value in (*made.graph.input, *made.graph.value_info, *made.graph.output):
        if value.type.tensor_type.elem_type in FLOATS:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    floats = {
        name: x if x.dtype.kind in "biuO" else x.astype(np.float64) for name, x in feeds.items()
    }
    return made, floats


def is_nearer(found: Answers, other: Answers, exact: Answers, near: float) -> bool:
    """Return whether answers that differ from others are nearer to the exact ones than those."""

    def distance(answer: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
        difference = np.abs(answer.astype(np.float64) - right.astype(np.float64))
        return float(difference.max(initial=0))  # a NaN is nearer than nothing

    return all(
        differ([a], [b], near) is None
        or ((a.dtype, a.shape) == (b.dtype, b.shape) and distance(a, e) < distance(b, e))
        for a, b, e in zip(found, other, exact, strict=True)
    )


def types_of(proto: onnx.ModelProto) -> set[int]:
    """Return the element types of a model's values."""
    known = (*proto.graph.input, *proto.graph.value_info, *proto.graph.output)
    return {value.type.tensor_type.elem_type for value in known}


def answers(proto: onnx.ModelProto, feeds: Feeds, level: int, *, plain: bool = False) -> Answers:
    return next(_runs(proto, feeds, level, plain=plain))


def _runs(
    proto: onnx.ModelProto, feeds: Feeds, level: int, *, plain: bool = False
) -> Iterator[Answers]:
    options = tenonnx.SessionOptions(graph_optimization_level=tenonnx.GraphOptimizationLevel(level))
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if plain:
        options.plugins = tenonnx.PluginSet()
        options.plugins.register(Plain())
    session = tenonnx.InferenceSession(
        proto.SerializeToString(), options, providers=["plain" if plain else "cpu"]
    )
    for _ in range(1 if plain else RUNS):
        yield session.run(None, feeds)


def differ(found: Answers, expected: Answers, near: float) -> str | None:
    """Return how answers differ, if they do: in types, shapes or values."""
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"output {place} is {one.dtype}{one.shape}, not {other.dtype}{other.shape}"
        if other.dtype.kind in "biuO":
            is_near = np.array_equal(one, other)
        else:
            a, b = one.astype(np.float64), other.astype(np.float64)
            scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
            is_near = np.allclose(a, b, rtol=0, atol=near * scale, equal_nan=True)
        if not is_near:
            return f"output {place}: {one.reshape(-1)[:4]} for {other.reshape(-1)[:4]}"
    return None


def main() -> int:
    """Run graphs of some numbers; return 1 if any is wrong."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.random_graphs", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first number")
    parser.add_argument("--save", help="a file for the model of --seed, which is not run then")
    options = parser.parse_args()
    if options.save:
        onnx.save(random_graph(options.seed)[0], options.save)
        return 0
    warnings.simplefilter("ignore")
    wrong, kinds = 0, Counter[str]()
    for number in range(options.seed, options.seed + options.cases):
        proto, feeds = random_graph(number)
        kinds.update(node.op_type for node in proto.graph.node)
        found = examine(number, proto, feeds)
        wrong += bool(found)
        for line in found:
            print(f"{number}: {line}", flush=True)
        if number % 100 == 99:
            print(f"{number + 1 - options.seed} graphs, {wrong} wrong", flush=True)
    print(f"{options.cases} graphs, {wrong} wrong; nodes: {dict(kinds.most_common())}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
