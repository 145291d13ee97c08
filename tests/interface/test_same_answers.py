"""The same calls on onnxruntime and on tenonnx, which answer alike or both refuse."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tenonnx

ort = pytest.importorskip("onnxruntime", reason="compares with the installed onnxruntime")

CPU = ["CPUExecutionProvider"]
X = np.arange(8, dtype=np.float32).reshape(2, 4)
W = onnx.numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "W")


def parsed(text: str, *weights: onnx.TensorProto) -> bytes:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> {text}')
    model.graph.initializer.extend(weights)
    model.producer_name, model.model_version, model.domain = "me", 7, "here"
    model.metadata_props.add(key="note", value="é")
    return model.SerializeToString()


DENSE = parsed(
    "dense (float[batch, 4] x, float b = {2}) => (float[batch, 3] y, float[batch, 3] z)"
    "{ t = MatMul(x, W) y = Relu(t) z = Mul(y, b) }",
    W,
)
KINDS = parsed(
    "kinds (int64[n] i, bool q, string[n] s, float16[n] f) => (int64[n] j, bool r, string[n] t,"
    "float16[n] g) { j = Add(i, i) r = Not(q) t = Identity(s) g = Neg(f) }"
)
LIST = parsed(
    "list (seq(float[n]) s, float[n] x) => (seq(float[n]) r, float[m] c)"
    "{ r = SequenceInsert(s, x) c = ConcatFromSequence <axis = 0> (r) }"
)
MAYBE = parsed("maybe (optional(float[n]) s) => (bool r) { r = OptionalHasElement(s) }")
WORDS = parsed("words (string[a] x) => (string[a] y) { y = Identity(x) }")
COUNT = parsed("count (int64[n] x) => (int64[n] y) { y = Neg(x) }")


def opened(o: Any, model: bytes = DENSE, **options: Any) -> Any:
    chosen = o.SessionOptions()
    for name, value in options.items():
        setattr(chosen, name, value)
    return o.InferenceSession(model, chosen, providers=CPU)


def described(args: Any) -> list[Any]:
    return [(arg.name, arg.type, arg.shape) for arg in args]


def metadata(o: Any) -> list[Any]:
    meta = opened(o).get_modelmeta()
    facts = (meta.producer_name, meta.version, meta.domain, meta.graph_name)
    return [*facts, meta.custom_metadata_map]


def fixed_dimension(o: Any) -> Any:
    options = o.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 5)
    session = o.InferenceSession(DENSE, options, providers=CPU)
    return described([*session.get_inputs(), *session.get_outputs()])


def given_initializer(o: Any) -> Any:
    options = o.SessionOptions()
    value = o.OrtValue.ortvalue_from_numpy(np.ones((4, 3), np.float32))
    options.add_initializer("W", value)
    return o.InferenceSession(DENSE, options, providers=CPU).run(["y"], {"x": X})


def bound(o: Any) -> Any:
    session = opened(o)
    binding = session.io_binding()
    y = np.zeros((2, 3), np.float32)
    held = o.OrtValue.ortvalue_from_numpy(y)
    x = o.OrtValue.ortvalue_from_numpy(X)
    binding.bind_input("x", x.device_name(), 0, np.float32, x.shape(), x.data_ptr())
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], held.data_ptr())
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    return [y, held.numpy(), *binding.copy_outputs_to_cpu()]


def profiled(o: Any) -> Any:
    session = opened(o, enable_profiling=True, profile_file_prefix="trace")
    session.run(None, {"x": X})
    path = Path(session.end_profiling())
    events = json.loads(path.read_text())
    names = {"model_run", "session_initialization"} & {event["name"] for event in events}
    return [path.name.startswith("trace_"), sorted(names), sorted({e["cat"] for e in events})]


def stopped(o: Any) -> Any:
    options = o.RunOptions()
    options.terminate = True
    return opened(o).run(None, {"x": X}, options)


def called_back(o: Any) -> Any:
    answers: list[Any] = []
    done = threading.Event()

    def callback(outputs: Any, user_data: Any, error: str) -> None:
        answers.append((list(outputs), user_data, bool(error)))
        done.set()

    opened(o).run_async(["y"], {"x": X}, callback, "mine")
    assert done.wait(30)
    return answers


def value_facts(o: Any) -> Any:
    value = o.OrtValue.ortvalue_from_numpy(X)
    kinds = (value.is_tensor(), value.is_tensor_sequence(), value.is_sparse_tensor())
    return [value.shape(), value.data_type(), value.element_type(), value.device_name(), kinds,
            value.tensor_size_in_bytes(), value.__dlpack_device__(), value.numpy()]  # fmt: skip


def sparse(o: Any) -> Any:
    device = o.OrtDevice.make("cpu", 0)
    places = np.array([0, 4])
    made = o.SparseTensor.sparse_coo_from_numpy(np.array([3, 3]), X[0, :2], places, device)
    return [made.dense_shape(), made.values(), made.data_type(), made.as_coo_view().indices()]


def adapter(o: Any) -> Any:
    made = o.AdapterFormat()
    made.set_adapter_version(1)
    made.set_model_version(2)
    made.set_parameters({"b": o.OrtValue.ortvalue_from_numpy(np.full(1, 5, np.float32))})
    made.export_adapter("b.adapter")
    o.LoraAdapter().Load("b.adapter")
    read = o.AdapterFormat.read_adapter("b.adapter")
    return [read.get_adapter_version(), read.get_model_version(), list(read.get_parameters())]


class Pickled:
    """A session that pickles as its path, as clients of onnxruntime write it."""

    def __init__(self, o: Any) -> None:
        self.runtime = "tenonnx" if o is tenonnx else "onnxruntime"
        self.session = opened(o)

    def __getstate__(self) -> dict[str, Any]:
        return {"runtime": self.runtime}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(__import__(state["runtime"]))  # type: ignore[misc]


CALLS: dict[str, Callable[[Any], Any]] = {
    "all outputs": lambda o: opened(o).run(None, {"x": X}),
    "no names": lambda o: opened(o).run([], {"x": X}),
    "an order": lambda o: opened(o).run(("z", "y"), {"x": X}),
    "twice one": lambda o: opened(o).run(["y", "y"], {"x": X}),
    "an inner value": lambda o: opened(o).run(["t"], {"x": X}),
    "another input": lambda o: opened(o).run(None, {"x": X, "w": X}),
    "no input": lambda o: opened(o).run(None, {}),
    "another type": lambda o: opened(o).run(None, {"x": X.astype(np.float64)}),
    "another rank": lambda o: opened(o).run(None, {"x": X[0]}),
    "another size": lambda o: opened(o).run(None, {"x": X[:, :3]}),
    "a list": lambda o: opened(o).run(None, {"x": X.tolist()}),
    "Fortran's order": lambda o: opened(o).run(None, {"x": np.asfortranarray(X)}),
    "no rows": lambda o: opened(o).run(None, {"x": X[:0]}),
    "an initializer's value": lambda o: opened(o).run(None, {"x": X, "b": np.array(3, np.float32)}),
    "kinds": lambda o: opened(o, KINDS).run(None, {
        "i": [1, 2], "q": np.array(True), "s": ["a", "é"], "f": np.ones(2, np.float16)}),
    "words": lambda o: opened(o, WORDS).run(None, {"x": np.array(["a", None, 1], object)}),
    "floats for integers": lambda o: opened(o, COUNT).run(None, {"x": np.array([1.5])}),
    "a sequence": lambda o: opened(o, LIST).run(None, {"s": [X[0], X[1]], "x": X[0]}),
    "an empty sequence": lambda o: opened(o, LIST).run(None, {"s": [], "x": X[0]}),
    "nothing": lambda o: opened(o, MAYBE).run(None, {"s": None}),
    "something": lambda o: opened(o, MAYBE).run(None, {"s": X[0]}),
    "inputs": lambda o: [described(opened(o, m).get_inputs()) for m in (DENSE, KINDS, LIST, MAYBE)],
    "outputs": lambda o: [described(opened(o, m).get_outputs()) for m in (DENSE, LIST, MAYBE)],
    "overridable": lambda o: described(opened(o).get_overridable_initializers()),
    "providers": lambda o: opened(o).get_providers(),
    "a provider twice": lambda o: o.InferenceSession(DENSE, providers=CPU * 2).get_providers(),
    "an arena's option": lambda o: o.InferenceSession(
        DENSE, providers=[(CPU[0], {"arena_extend_strategy": "kSameAsRequested"})]).get_providers(),
    "no model": lambda o: o.InferenceSession("nowhere.onnx", providers=CPU),
    "no bytes": lambda o: o.InferenceSession(b"", providers=CPU),
    "words for a model": lambda o: o.InferenceSession(b"words", providers=CPU),
    "an option that is none": lambda o: opened(o, intra_op_threads=3),
    "a number as a string": lambda o: opened(o, intra_op_num_threads="3"),
    "a level that is none": lambda o: opened(o, graph_optimization_level="all"),
    "an entry that is none": lambda o: o.SessionOptions().get_session_config_entry("none"),
    "a severity": lambda o: o.set_default_logger_severity(9),
    "dtypes": lambda o: [o.OrtValue.ortvalue_from_shape_and_type([2, 3], t).data_type() for t in (
        *(np.int8, np.uint16, np.int64, np.float16, np.float64, np.bool_), 16)],
    "pickled": lambda o: pickle.loads(pickle.dumps(Pickled(o))).session.run(None, {"x": X}),
    **{f.__name__: f for f in (metadata, fixed_dimension, given_initializer, bound, profiled,
       stopped, called_back, value_facts, sparse, adapter)},
}  # fmt: skip


def shown(answer: Any) -> Any:
    if isinstance(answer, np.ndarray):
        return str(answer.dtype), answer.shape, answer.tolist()
    if isinstance(answer, list | tuple):
        return [shown(each) for each in answer]
    return answer


def outcome(call: Callable[[Any], Any], o: Any) -> Any:
    try:
        return shown(call(o))
    except Exception:  # of any class: onnxruntime's differ from call to call
        return "an error"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_both_answer_alike(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert outcome(CALLS[name], tenonnx) == outcome(CALLS[name], ort)
