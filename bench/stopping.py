"""``python -m bench stopping``: how long every operator works without looking whether to stop.

Each row is one step on large inputs; ``Op/3`` has three outputs. A run under a limit that notes
when it is asked shows the longest time between two looks: so late a ``time_limit``, a ``terminate``
or a signal acts at worst. It is the thread's own time on the processor, which other programs do not
lengthen.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import tenonnx
from bench import stopping_others, stopping_rows
from bench.options import one_of
from bench.stopping_rows import Thunk
from tenonnx import interruption

BOUND = 0.1
"""Seconds within which a run stops."""

KINDS = {**stopping_rows.KINDS, **stopping_others.KINDS}

VERSIONS = {"com.microsoft": 1, "ai.onnx.ml": 5, "ai.onnx.preview.training": 1}
NEW = ("SwiGLU",)
"""Operators that only the newest version has."""

INDIVISIBLE = {
    "Det": "LAPACK factors one matrix in one call",
    "com.microsoft::Inverse": "LAPACK inverts one matrix in one call",
}
"""Operators of which a step may be late, with the reason."""


class Noting:
    """A limit that stops nothing, and notes when it was asked."""

    def __init__(self) -> None:
        self.times = [time.thread_time()]

    def check(self) -> None:
        """Notes the time."""
        self.times.append(time.thread_time())

    def longest(self) -> float:
        """Returns the seconds of the longest time between two looks."""
        return float(np.diff([*self.times, time.thread_time()]).max())


def tensors(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns attributes as a node has them."""
    return {
        name: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        for name, value in attributes.items()
    }


def session(op: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = {name: np.asarray(x) for name, x in zip(names, inputs, strict=True) if name}
    op, _, outputs = op.partition("/")
    domain, _, op = op.rpartition("::")
    made = [f"y{i}" for i in range(int(outputs or 1))]
    node = helper.make_node(op, names, made, domain=domain, **tensors(attributes))
    ends = [
        helper.make_tensor_value_info(
            name, 8 if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype),
            [None] * x.ndim,
        )
        for name, x in given.items()
    ]  # fmt: skip
    wanted = [helper.make_empty_tensor_value_info(name) for name in made]
    graph = helper.make_graph([node], "g", ends, wanted)
    imports = {domain: VERSIONS.get(domain, 1), "": 28 if op in NEW else 26}
    ids = [helper.make_opsetid(*each) for each in imports.items()]
    model = helper.make_model(graph, opset_imports=ids, ir_version=13)
    return tenonnx.InferenceSession(model), given


def measure(op: str, thunk: Thunk, attributes: Mapping[str, Any], rounds: int) -> tuple[float, ...]:
    """Returns the seconds of a run, and the longest time of it between two looks."""
    made, given = session(op, thunk(), attributes)
    found = []
    for _ in range(rounds):
        noting = Noting()
        with interruption.limited(noting):
            made.run(None, given)
        found.append((noting.longest(), time.thread_time() - noting.times[0]))
    return min(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if every operator looks often enough."""
    rows = [(kind, *row) for kind, listed in KINDS.items() for row in listed()]
    known = [*KINDS, *dict.fromkeys(op for _, op, *_ in rows)]
    parser = argparse.ArgumentParser(prog="python -m bench stopping", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        type=one_of(known),
        help=f"operators, or {', '.join(KINDS)}; all by default",
    )
    parser.add_argument("--rounds", type=int, default=2)
    parsed = parser.parse_args(arguments)
    print("   whole  longest")
    late = 0
    for kind, op, thunk, attributes in rows:
        if parsed.names and not {op, kind} & set(parsed.names):
            continue
        longest, seconds = measure(op, thunk, attributes, parsed.rounds)
        is_late = longest > BOUND
        late += is_late and op not in INDIVISIBLE
        told = " ".join(f"{name}={value}" for name, value in attributes.items())[:60]
        mark = "LATE" if is_late else ""
        why = f": {INDIVISIBLE[op]}" if is_late and op in INDIVISIBLE else ""
        print(f"{seconds * 1e3:8.0f} {longest * 1e3:8.0f} ms {mark:4} {op} {told}{why}", flush=True)
    print(f"{late} act later than {BOUND * 1e3:.0f} ms")
    return int(late > 0)


if __name__ == "__main__":
    raise SystemExit(main())
