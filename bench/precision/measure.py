"""Running cases, and how far from exact the answers are."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tenonnx
from bench.precision.case import DTYPES, LARGEST, Array, Case, rounded, widened

DOUBLE = np.dtype(np.float64)
RUNS = 3
"""A kernel's third run is a replay of what the first two recorded."""

Run = Callable[[Sequence["Array | None"]], Array]
Opener = Callable[[onnx.ModelProto], Run]


@dataclass(frozen=True)
class Errors:
    """In units in the last place: the largest, and the mean."""

    largest: float
    mean: float


@dataclass(frozen=True)
class Row:
    """What an engine's errors are on a case, by kinds of inputs; ``None`` where it does not run."""

    case: str
    dtype: str
    engine: str
    errors: dict[str, Errors]
    note: str = ""

    @classmethod
    def of(cls, saved: dict[str, Any]) -> Row:
        """Returns a row of what ``asdict`` made of it."""
        errors = {kind: Errors(**each) for kind, each in saved["errors"].items()}
        return cls(**saved | {"errors": errors})

    def rounded(self) -> dict[str, Any]:
        """Returns what ``of`` takes, with four digits."""
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


def model_of(case: Case, inputs: Sequence[Array | None], *, wide: bool = False) -> onnx.ModelProto:
    """Returns a model of the case's node; ``wide`` casts its bfloat16 result to float32."""
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
    """Has sessions wait for kernels, or do without."""
    before = os.environ.get("TENONNX_JIT")
    os.environ["TENONNX_JIT"] = mode
    try:
        yield
    finally:
        os.environ.pop("TENONNX_JIT")
        if before is not None:
            os.environ["TENONNX_JIT"] = before


def ours(mode: str, case: Case, inputs: Sequence[Array | None]) -> Array:
    """Returns what tenonnx makes of inputs, by kernels or by numpy."""
    with kernels(mode):
        session = tenonnx.InferenceSession(
            model_of(case, inputs), providers=["CPUExecutionProvider"]
        )
        feeds = {f"x{i}": x for i, x in enumerate(inputs[: case.fed])}
        for _ in range(RUNS):
            (y,) = session.run(None, feeds)
    return np.asarray(y)


def theirs(case: Case, inputs: Sequence[Array | None]) -> Array:
    """Returns what onnxruntime makes of inputs."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    brain = any(x is not None and x.dtype == ml_dtypes.bfloat16 for x in inputs)
    model = model_of(case, inputs, wide=brain)
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": _value(x) for i, x in enumerate(inputs[: case.fed]) if x is not None}
    (y,) = session.run_with_ort_values(None, feeds)
    return np.asarray(y.numpy())


def _value(x: Array) -> Any:
    """Returns an array as onnxruntime's tensor."""
    import onnxruntime as ort

    x = np.ascontiguousarray(x).reshape(x.shape)
    if x.dtype != ml_dtypes.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy(x)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), TensorProto.BFLOAT16)


ENGINES: dict[str, Callable[[Case, Sequence[Array | None]], Array]] = {
    "numpy": functools.partial(ours, "0"),
    "kernels": functools.partial(ours, "wait"),
    "onnxruntime": theirs,
}


@functools.cache
def exact_of(case: Case, kind: str, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Returns the exact answer to inputs of a dtype, and what its ulps are of."""
    sample = case.samples[kind]
    wide = widened(sample, rounded(sample, dtype))
    function = case.exact or (lambda *inputs: ours("0", case, inputs))
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
    """Returns errors in units in the last place of what ``size`` is in a dtype.

    What overflows in the dtype does not count.
    """
    info = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call] # its stubs have none
    fits = np.isfinite(exact) & (np.abs(exact) <= float(info.max))
    size = np.maximum(np.abs(exact), size)[fits]
    _, exponent = np.frexp(size)
    unit = np.ldexp(1.0, np.maximum(exponent - 1 - info.nmant, info.minexp - info.nmant))
    errors = np.abs(actual.astype(np.float64)[fits] - exact[fits]) / unit
    return np.where(np.isfinite(errors), errors, np.inf)


def errors_of(case: Case, dtype_name: str, engine: str) -> Row:
    """Returns an engine's errors on a case in a dtype.

    Where onnxruntime has no bfloat16, its float32 answer to the same inputs, rounded, stands in.
    """
    dtype = DTYPES[dtype_name]
    found: dict[str, Errors] = {}
    for kind, sample in case.samples.items():
        inputs = rounded(sample, dtype)
        exact, size = exact_of(case, kind, dtype)
        try:
            actual = _answer(case, inputs, dtype, engine)
        except Exception as error:
            if engine != "onnxruntime":
                raise
            return Row(case.title, dtype_name, engine, {}, str(error).splitlines()[0])
        if actual.shape != exact.shape:
            raise ValueError(f"{case.title}: {engine} gives {actual.shape}, not {exact.shape}")
        result = np.dtype(np.float32) if case.domain == "ai.onnx.ml" else dtype
        each = ulps(actual, exact, size, result)
        found[kind] = Errors(float(each.max()), float(each.mean()))
    return Row(case.title, dtype_name, engine, found)


def _answer(case: Case, inputs: list[Array | None], dtype: np.dtype[Any], engine: str) -> Array:
    try:
        return ENGINES[engine](case, inputs)
    except Exception:
        if engine != "onnxruntime" or dtype != DTYPES["bfloat16"]:
            raise
    return theirs(
        case, [x.astype(np.float32) if x is not None and x.dtype == dtype else x for x in inputs]
    ).astype(dtype)
