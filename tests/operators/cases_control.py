"""Control flow at every version; what the bodies compute is the same in all of them."""

from __future__ import annotations

import numpy as np
import onnx
from case import Case

from models import BOOL, INT64, graph, node, value

X = np.array([[1, -2], [3, 4], [0.5, 8]], np.float32)
START = np.array([10, 20], np.float32)
COUNT = np.array(3)

DOUBLE = graph([node("Add", "one one", "two")], [], [value("two")], {"one": X})
NEGATIVE = graph([node("Neg", "one", "other")], [], [value("other")], {"one": X})
DOUBLING = graph(
    [node("Add", "a a", "b"), node("Neg", "b", "c"), node("Identity", "on", "go")],
    [value("i", INT64, []), value("on", BOOL, []), value("a", shape=[2])],
    [value("go", BOOL, []), value("b", shape=[2]), value("c", shape=[2])],
)
RUNNING_SUM = graph(
    [node("Add", "a x", "b"), node("Identity", "b", "c")],
    [value("a", shape=[2]), value("x", shape=[2])],
    [value("b", shape=[2]), value("c", shape=[2])],
)
SQUARE = graph([node("Mul", "x x", "y")], [value("x")], [value("y")])


def versions(op: str) -> list[int]:
    schemas = onnx.defs.get_all_schemas_with_history()
    return [s.since_version for s in schemas if s.name == op and not s.domain]


SUMS = START + np.cumsum(X, axis=0, dtype=np.float32)

CASES = [
    *(
        Case("If", version, [np.array(condition)], answer, branches, name=str(condition))
        for branches in [{"then_branch": DOUBLE, "else_branch": NEGATIVE}]
        for version in versions("If")
        for condition, answer in [(True, 2 * X), (False, -X)]
    ),
    *(
        Case(
            "Loop",
            version,
            [COUNT, np.array(True), START],
            (8 * START, np.stack([-2 * START, -4 * START, -8 * START])),
            {"body": DOUBLING},
        )
        for version in versions("Loop")
    ),
    Case(
        "Scan",
        8,
        [None, START[None], X[None]],
        (SUMS[-1:], SUMS[None]),
        {"body": RUNNING_SUM, "num_scan_inputs": 1},
    ),
    *(
        Case(
            "Scan",
            version,
            [START, X.T],
            (SUMS[-1], SUMS[::-1]),
            {
                "body": RUNNING_SUM,
                "num_scan_inputs": 1,
                "scan_input_axes": [-1],
                "scan_output_directions": [1],
            },
        )
        for version in versions("Scan")
        if version > 9
    ),
    Case(
        "SequenceMap",
        17,
        [[X, START]],
        [X**2, START**2],
        {"body": SQUARE},
    ),
]
