"""The provider: it takes segments that OpenVINO can read and its device can run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakValueDictionary

import numpy as np

from tenonnx import Provider, Segment, Step
from tenonnx import graph as graphs
from tenonnx.segments.delegate import SegmentModel, Type, inputs_of, segment_model, type_of

if TYPE_CHECKING:
    import onnx_ir as ir

log = logging.getLogger("tenonnx_openvino")

OPENVINO_DTYPES = frozenset(["BOOL", "INT8", "INT32", "INT64", "UINT8", "FLOAT16", "FLOAT"])


@dataclass(frozen=True)
class OpenVINOOptions:
    """Options of the provider.

    Attributes:
        device_type: OpenVINO's name of the device, under onnxruntime's name of the option.
        num_of_threads: Threads of a run; 0 lets OpenVINO choose.
    """

    device_type: str = "CPU"
    num_of_threads: int = 0


@functools.cache
def core() -> Any:
    """Return OpenVINO's core, one for the process."""
    return importlib.import_module("openvino").Core()


def _read(given: SegmentModel) -> Any:
    """Return OpenVINO's model of a segment."""
    from tenonnx_openvino.hand_over import model_of  # only if OpenVINO is installed

    return model_of(given)


class OpenVINOExecutionProvider(Provider):
    """A provider of segments on one of OpenVINO's devices."""

    name: ClassVar[str] = "OpenVINOExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("openvino",)
    unasked: ClassVar[bool] = False
    domains: ClassVar[frozenset[str] | None] = frozenset(("",))
    Options: ClassVar[type | None] = OpenVINOOptions

    def __init__(self, options: OpenVINOOptions | None = None, *rest: Any) -> None:
        self.options = options or OpenVINOOptions()
        super().__init__(self.options, *rest)
        self._verdicts: dict[Any, Literal[True] | str] = {}

    @classmethod
    def check(cls) -> str | None:
        """Return whether openvino is installed, without importing it."""
        if importlib.util.find_spec("openvino") is not None:
            return None
        return "openvino is not installed: pip install 'tenonnx[openvino]'"

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node that OpenVINO reads and its device runs; it is queried once."""
        if node.domain:
            return f"OpenVINO gets operators of ai.onnx alone, and this is of {node.domain}"
        import onnx_ir as ir  # only if OpenVINO is installed

        from tenonnx_openvino.declined import declined

        if (reason := declined(node)) is not None:
            return reason
        values = [value for value in (*node.inputs, *node.outputs) if value is not None]
        for value in values:
            if not isinstance(value.type, ir.TensorType | None):
                return f"'{value.name}' is not a tensor"
            if value.dtype is not None and value.dtype.name not in OPENVINO_DTYPES:
                return f"OpenVINO would compute {value.dtype.name} as another type"
        key = (node.op_type, node.version, str(node.attributes), *map(type_of, values))
        key += tuple(v.name for v in node.inputs if v is not None and v.is_initializer())
        if key not in self._verdicts:
            self._verdicts[key] = self._ask(node)
        return self._verdicts[key]

    def claim(self, nodes: Sequence[ir.Node]) -> list[Sequence[ir.Node]]:
        """Claim all nodes at once, for as few segments as there can be."""
        return [nodes]

    def _ask(self, node: ir.Node) -> Literal[True] | str:
        try:
            alone = segment_model(Segment((node,), frozenset(node.outputs)))
            model = _read(alone)
            known = core().query_model(model, self.options.device_type)
        except Exception as error:  # OpenVINO's readers raise any class
            lines = [line for line in str(error).splitlines() if line.strip()]
            return f"OpenVINO: {lines[-1] if lines else type(error).__name__}"
        lacking = {
            op.get_type_name() for op in model.get_ops() if op.get_friendly_name() not in known
        }
        return f"{self.options.device_type} does not run {', '.join(lacking)}" if lacking else True

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return one step; OpenVINO compiles it now, or at the first run if types are missing.

        A segment that OpenVINO cannot compile becomes two: its compiler runs out of registers for
        some fused nodes.
        """
        # Its compiled model is not kept for later processes: OpenVINO 2026.4's CPU device takes
        # longer to import an exported model of 12 layers (1.7 s, 74 MB) than to compile it (1.4 s).
        engine = Engine(segment, self.options)
        if all(value.dtype is not None and value.shape is not None for value in engine.inputs):
            try:
                engine.compiled(tuple(map(type_of, engine.inputs)))
            except RuntimeError as error:
                if len(segment.nodes) == 1:
                    raise
                log.info("a segment of %d nodes is halved: %s", len(segment.nodes), error)
                return [step for half in _halves(segment) for step in self.compile(half)]
        return [Step(engine, engine.inputs, segment.outputs, segment.nodes, multiple=True)]


def _halves(segment: Segment) -> tuple[Segment, Segment]:
    middle = len(segment.nodes) // 2
    first, second = segment.nodes[:middle], segment.nodes[middle:]
    read = {value for node in second for value in graphs.inputs(node)}
    made = (value for node in first for value in node.outputs)
    between = frozenset(v for v in made if v in read or v in segment.escaping)
    return Segment(first, between), Segment(second, segment.escaping)


class Compiled:
    """OpenVINO's compiled model, its idle requests, and the weights that it refers to."""

    def __init__(self, given: SegmentModel, device: str, config: dict[str, str]) -> None:
        self.weights = given.weights
        self.model = core().compile_model(_read(given), device, config)
        self.idle: deque[Any] = deque()


_compiled: WeakValueDictionary[Any, Compiled] = WeakValueDictionary()
"""By everything that it depends on: sessions of one model share it, with OpenVINO's own weights."""
_lock = threading.Lock()


class Engine:
    """A segment in OpenVINO; any number of threads may call it at once."""

    def __init__(self, segment: Segment, options: OpenVINOOptions) -> None:
        self.segment, self.options = segment, options
        self.inputs = inputs_of(segment)
        self.compiled = functools.cache(self._compile)

    def __call__(self, *arrays: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
        """Run once; inputs are used in place, outputs are the caller's."""
        compiled = self.compiled(tuple((a.dtype.name, a.ndim) for a in arrays))
        try:
            request = compiled.idle.pop()
        except IndexError:
            request = compiled.model.create_infer_request()
        try:
            given = [np.require(a, requirements=("C", "W")) for a in arrays]
            results = request.infer(given, share_inputs=True, share_outputs=False)
            return tuple(np.asarray(results[output]) for output in compiled.model.outputs)
        finally:
            compiled.idle.append(request)

    def _compile(self, types: tuple[Type, ...]) -> Compiled:
        given = segment_model(self.segment, dict(zip(self.inputs, types, strict=True)))
        config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if self.options.num_of_threads:
            config["INFERENCE_NUM_THREADS"] = str(self.options.num_of_threads)
        places = tuple((a.ctypes.data, a.shape, a.strides) for a in given.weights.values())
        key = (given.proto.SerializeToString(deterministic=True), places, self.options)
        with _lock:
            found = _compiled.get(key)
            if found is None:
                found = Compiled(given, self.options.device_type, config)
                _compiled[key] = found
        return found
