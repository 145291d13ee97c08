"""One call of one operator, timed in turns with onnxruntime's."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import tenonnx
from bench.operators.declared import ELEMENTS, Operator, dtype_of
from bench.operators.draw import Array, Constant, Form, Places, Size, numbers
from tenonnx.cli.timing import alternate, seconds

# Operators of numbers above 0.
POSITIVE = frozenset({"Acosh", "Log", "Pow", "ReduceLogSum", "Sqrt"})

# Operators of numbers between -1 and 1.
WITHIN_ONE = frozenset({"Acos", "Asin", "Atanh"})

# Runs before a row is timed: the first runs, the second is captured, the third is replayed.
WARM_RUNS = 4

# Seconds of a run after which a row is not measured.
LONGEST_SECONDS = 0.5

# The most that outputs may be apart, in units of the largest; others are equal, or off by one.
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float": 1e-3, "double": 1e-3}


@dataclass(frozen=True)
class Row:
    """A measured call.

    Attributes:
        operator: The operator's title.
        kind: The element type of its first operand.
        form: The form's name.
        size: The size's name.
        threads: How many; 0 is all.
        theirs, mine: Seconds of the fastest run of onnxruntime and of tenonnx.
        ratio: The median of the turns' ratios.
        processor: The ratio of the CPU time.
        note: What is wrong with the answer, or why there are no figures.
    """

    operator: str
    kind: str
    form: str
    size: str
    threads: int
    theirs: float = 0.0
    mine: float = 0.0
    ratio: float = 0.0
    processor: float = 0.0
    note: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """All that tells it from others."""
        return self.operator, self.kind, self.form, self.size, self.threads

    def as_dict(self) -> dict[str, Any]:
        """Return the row as JSON has it, without what is absent."""
        return {name: value for name, value in asdict(self).items() if value}


def rows_of(
    operator: Operator, form: Form, size: Size, types: dict[str, str], turn: tuple[float, int],
    threads: list[int],
) -> Iterator[Row]:  # fmt: skip
    """Yield a row for each number of threads; none if onnxruntime does not run the form.

    Args:
        operator: The operator.
        form: How it is called.
        size: The form's.
        types: The element types by constraint.
        turn: Seconds of a turn, and how many there are.
        threads: Numbers of threads.
    """
    first = types[operator.operands[0].kind] if operator.operands else ""
    what = operator.title, first, form.name, size.name
    model, feeds = built(operator, form, types)
    for count in threads:
        try:
            theirs = opened(onnxruntime, model, count, feeds)
        except Exception as error:
            yield Row(*what, count, note=f"onnxruntime: {brief(error)}")
            return
        try:
            mine = opened(tenonnx, model, count, feeds)
        except Exception as error:
            yield Row(*what, count, note=f"tenonnx: {brief(error)}")
            return
        note = difference(mine(), theirs())
        budget, least = turn
        pause = 0.002 if count != 1 else 0.0
        his, own = alternate((theirs, mine), budget, least, pause=pause)
        ratios = own.ratios(his)
        yield Row(
            *what, count, his.fastest, own.fastest, statistics.median([ratios["turn"]]),
            ratios["processor"], note,
        )  # fmt: skip


def brief(error: Exception) -> str:
    """Return the first line of an error."""
    return str(error).strip().partition("\n")[0][:160]


def opened(engine: Any, model: bytes, threads: int, feeds: dict[str, Array]) -> Any:
    """Return what runs a model in a session of its own, warm."""
    options = engine.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    session = engine.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    run = functools.partial(session.run, None, feeds)
    for _ in range(WARM_RUNS):
        if (taken := seconds(run)) > LONGEST_SECONDS:
            raise TimeoutError(f"a run takes {taken:.1f} s, more than {LONGEST_SECONDS} s")
    return run


def built(operator: Operator, form: Form, types: dict[str, str]) -> tuple[bytes, dict[str, Array]]:
    """Return the model of one node, and its inputs."""
    feeds: dict[str, Array] = {}
    names, inputs, constants = [], [], []
    for place, given in enumerate(form.operands):
        operand = operator.operands[min(place, len(operator.operands) - 1)]
        if given is None:
            names.append("")
            continue
        kind = types.get(operand.kind) or operand.kind.removeprefix("tensor(").rstrip(")")
        value = drawn(operator, given, kind)
        name = f"x{place}"
        names.append(name)
        if isinstance(given, Constant):
            constants.append(numpy_helper.from_array(value, name))
            continue
        feeds[name] = value
        element = (
            ELEMENTS[kind] if kind in ELEMENTS else helper.np_dtype_to_tensor_dtype(value.dtype)
        )
        inputs.append(helper.make_tensor_value_info(name, element, value.shape))
    outputs = [f"y{n}" for n in range(form.outputs)]
    node = helper.make_node(
        operator.name, names, outputs, domain=operator.domain, **dict(form.attributes)
    )
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], operator.name, inputs, infos, constants)
    versions = {"": onnx.defs.onnx_opset_version(), operator.domain: operator.version}
    if not operator.domain:
        versions = {"": max(operator.version, MODERN)}
    imports = [helper.make_opsetid(*each) for each in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString(), feeds


# The opset of operators that have not changed since: models say one for all.
MODERN = 22


def drawn(operator: Operator, given: Any, kind: str) -> Array:
    """Return the numbers of an operand."""
    if isinstance(given, Places):
        rng = np.random.default_rng(46)
        return rng.integers(0, given.below, given.shape).astype(dtype_of(kind))
    if isinstance(given, Constant):
        if given.kind == "scale":
            return np.full(given.value, 0.02, dtype_of(kind))
        if given.kind == "zero":
            return np.full(given.value, 1, dtype_of(kind))
        if isinstance(given.value, np.ndarray):
            return given.value.astype(dtype_of(kind))
        given = given.value
    values = numbers(given, kind, positive=operator.name in POSITIVE)
    if operator.name in WITHIN_ONE:
        values = np.tanh(values)
    return values + values.dtype.type(1) if operator.name == "Acosh" else values


def difference(mine: list[Any], theirs: list[Any]) -> str:
    """Return how answers differ by more than rounding."""
    for ours, other in zip(mine, theirs, strict=True):
        if not isinstance(other, np.ndarray):
            continue
        if (ours.dtype, ours.shape) != (other.dtype, other.shape):
            return f"{ours.dtype}{list(ours.shape)} for {other.dtype}{list(other.shape)}"
        if other.dtype == object:
            if not np.array_equal(ours, other):
                return "other strings"
            continue
        a, b = ours.astype(np.float64), other.astype(np.float64)
        scale = float(np.nanmax(np.abs(b), initial=0)) or 1.0
        name = str(other.dtype).replace("float32", "float").replace("float64", "double")
        bound = TOLERANCE.get(name, 1.0 / scale if other.dtype.kind in "iu" else 0.0)
        error = float(np.nanmax(np.abs(a - b), initial=0)) / scale
        if error > bound:
            return f"off by {error:.1g} of the largest"
    return ""
