"""Running cases, and how far from exact the answers are."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tenonnx
from bench.precision.case import DTYPES, LARGEST, Array, Case, Sample, rounded, widened

DOUBLE = np.dtype(np.float64)
# A kernel's third run is a replay of what the first two recorded.
RUNS = 3

# Orders in which the first input's elements are given.
#
# The largest error of one order is chance: where two engines add in different orders, either may be
# ahead by more than an ulp, on others behind. Its mean over orders is not: it tells what largest
# error is to be expected.
DRAWS = 12

Inputs: TypeAlias = Sequence["Array | None"]


@dataclass(frozen=True)
class Errors:
    """In units in the last place: the largest, its mean over the draws, and the mean of all."""

    largest: float
    mean: float


@dataclass(frozen=True)
class Row:
    """An engine's errors on a case, by kinds of inputs; ``None`` where it does not run."""

    case: str
    dtype: str
    engine: str
    errors: dict[str, Errors]
    note: str = ""

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Row:
        """Return a row of what ``asdict`` made of it."""
        errors = {kind: Errors(**each) for kind, each in saved["errors"].items()}
        return cls(**saved | {"errors": errors})

    def rounded(self) -> dict[str, Any]:
        """Return what ``of`` takes, with four digits."""
        errors = {
            kind: {"largest": float(f"{each.largest:.4g}"), "mean": float(f"{each.mean:.4g}")}
            for kind, each in self.errors.items()
        }
        return dataclasses.asdict(self) | {"errors": errors}

    @property
    def largest(self) -> float | None:
        """The largest of all errors."""
        return max((each.largest for each in self.errors.values()), default=None)

    @property
    def mean(self) -> float | None:
        """The mean over kinds of inputs."""
        means = [each.mean for each in self.errors.values()]
        return sum(means) / len(means) if means else None


def model_of(case: Case, inputs: Inputs, *, wide: bool = False) -> onnx.ModelProto:
    """Return a model of the case's node; ``wide`` casts its bfloat16 result to float32."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    fed, constants = [], []
    for i, x in enumerate(inputs):
        if x is not None and i < case.fed:
            kind = helper.np_dtype_to_tensor_dtype(x.dtype)
            fed.append(helper.make_tensor_value_info(names[i], kind, x.shape))
        elif x is not None:
            constants.append(numpy_helper.from_array(x, names[i]))
    nodes = [helper.make_node(case.op, names, ["y"], domain=case.domain, **case.attributes)]
    if wide:
        nodes.append(helper.make_node("Cast", ["y"], ["wide"], to=TensorProto.FLOAT))
    result = onnx.ValueInfoProto(name="wide" if wide else "y")
    graph = helper.make_graph(nodes, "case", fed, [result], constants)
    learned = case.domain == "ai.onnx.ml"
    versions = {"": 18 if learned else case.version}
    if case.domain:
        versions[case.domain] = case.version if learned else 1
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


@contextmanager
def kernels(mode: str) -> Iterator[None]:
    """Have sessions use kernels, or do without any."""
    before = os.environ.get("TENONNX_JIT")
    os.environ["TENONNX_JIT"] = mode
    try:
        yield
    finally:
        os.environ.pop("TENONNX_JIT")
        if before is not None:
            os.environ["TENONNX_JIT"] = before


def ours(mode: str, case: Case, draws: Sequence[Inputs]) -> list[Array]:
    """Return what tenonnx makes of draws of inputs, by kernels or by numpy."""
    made = []
    with kernels(mode):
        session = tenonnx.InferenceSession(
            model_of(case, draws[0]), providers=["CPUExecutionProvider"]
        )
        for inputs in draws:
            feeds = {f"x{i}": x for i, x in enumerate(inputs[: case.fed])}
            for _ in range(RUNS if inputs is draws[0] else 1):
                (y,) = session.run(None, feeds)
            made.append(np.array(y))
    return made


def theirs(case: Case, draws: Sequence[Inputs]) -> list[Array]:
    """Return what onnxruntime makes of draws of inputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    brain = any(x is not None and x.dtype == ml_dtypes.bfloat16 for x in draws[0])
    model = model_of(case, draws[0], wide=brain)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    made = []
    for inputs in draws:
        feeds = {f"x{i}": _value(x) for i, x in enumerate(inputs[: case.fed]) if x is not None}
        (y,) = session.run_with_ort_values(None, feeds)
        made.append(np.array(y.numpy()))
    return made


def _value(x: Array) -> Any:
    """Return an array as onnxruntime's tensor."""
    import onnxruntime as ort

    x = np.ascontiguousarray(x).reshape(x.shape)
    if x.dtype != ml_dtypes.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy(x)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)


ENGINES: dict[str, Callable[[Case, Sequence[Inputs]], list[Array]]] = {
    "numpy": functools.partial(ours, "0"),
    "kernels": functools.partial(ours, "1"),
    "onnxruntime": theirs,
}


def drawn(sample: Sample, draw: int) -> Sample:
    """Return a sample with its first input in another order, if that is of floats."""
    first = sample[0]
    if not draw or first is None or first.dtype != DOUBLE:
        return sample
    order = np.random.default_rng(draw).permutation(first.size)
    return [first.reshape(-1)[order].reshape(first.shape), *sample[1:]]


@functools.lru_cache(maxsize=8 * DRAWS)
def exact_of(case: Case, kind: str, dtype: np.dtype[Any], draw: int) -> tuple[Array, Array]:
    """Return the exact answer to inputs of a dtype, and what its ulps are of."""
    sample = drawn(case.samples[kind], draw)
    wide = widened(sample, rounded(sample, dtype))
    function = case.exact or (lambda *inputs: ours("0", case, [inputs])[0])
    with np.errstate(all="ignore"):
        exact = np.asarray(function(*wide), np.float64)
        if case.terms is None:
            return exact, np.abs(exact)
        if case.terms == LARGEST:
            return exact, np.full_like(exact, np.abs(exact).max())
        if callable(case.terms):
            return exact, np.broadcast_to(case.terms(*wide), exact.shape)
    positive = [np.abs(x) if x is not None and x.dtype == DOUBLE else x for x in wide]
    return exact, function(*positive)


def ulps(actual: Array, exact: Array, size: Array, dtype: np.dtype[Any]) -> Array:
    """Return errors in units in the last place of what ``size`` is in a dtype.

    What overflows in the dtype does not count.
    """
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call] # its stubs have none
    fits = np.isfinite(exact) & (np.abs(exact) <= float(info.max))
    size = np.maximum(np.abs(exact), size)[fits]
    _, exponent = np.frexp(size)
    unit = np.ldexp(1.0, np.maximum(exponent - 1 - info.nmant, info.minexp - info.nmant))
    errors = np.abs(actual.astype(np.float64)[fits] - exact[fits]) / unit
    return np.where(np.isfinite(errors), errors, np.inf)


def errors_of(case: Case, dtype_name: str, engine: str, draws: int = DRAWS) -> Row:
    """Return an engine's errors on a case in a dtype.

    Where onnxruntime has no bfloat16, its float32 answer to the same inputs, rounded, stands in.
    """
    dtype = DTYPES[dtype_name]
    found: dict[str, Errors] = {}
    for kind, sample in case.samples.items():
        inputs = [rounded(drawn(sample, draw), dtype) for draw in range(draws)]
        try:
            answers = _answers(case, inputs, dtype, engine)
        except Exception as error:
            if engine != "onnxruntime":
                raise
            return Row(case.title, dtype_name, engine, {}, str(error).splitlines()[0])
        result = np.dtype(np.float32) if case.domain == "ai.onnx.ml" else dtype
        each = []
        for draw, actual in enumerate(answers):
            exact, size = exact_of(case, kind, dtype, draw)
            if actual.shape != exact.shape:
                raise ValueError(f"{case.title}: {engine} gives {actual.shape}, not {exact.shape}")
            each.append(ulps(actual, exact, size, result))
        found[kind] = Errors(
            float(np.mean([errors.max() for errors in each])),
            float(np.mean([errors.mean() for errors in each])),
        )
    return Row(case.title, dtype_name, engine, found)


def _answers(
    case: Case, draws: Sequence[list[Array | None]], dtype: np.dtype[Any], engine: str
) -> list[Array]:
    try:
        return ENGINES[engine](case, draws)
    except Exception:
        if engine != "onnxruntime" or dtype != DTYPES["bfloat16"]:
            raise
    wide = [
        [x.astype(np.float32) if x is not None and x.dtype == dtype else x for x in inputs]
        for inputs in draws
    ]
    return [y.astype(dtype) for y in theirs(case, wide)]
