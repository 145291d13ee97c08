"""The provider: it takes segments that OpenVINO can read and its device can run."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tenonnx.segments import SegmentOptions, SegmentProvider
from tenonnx_openvino.engine import OpenVINOExecutable, core, packed

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import Segment, Step

# Functions import what works on nodes: a process that opens a cached plan does without onnx.

log = logging.getLogger("tenonnx_openvino")

OPENVINO_DTYPES = frozenset(["BOOL", "INT8", "INT32", "INT64", "UINT8", "FLOAT16", "FLOAT"])


@dataclass
class OpenVINOOptions(SegmentOptions):
    """Options of the provider.

    Attributes:
        device_type: OpenVINO's name of the device, under onnxruntime's name of the option.
        num_of_threads: Threads of a run; 0 lets OpenVINO choose.
    """

    device_type: str = "CPU"
    num_of_threads: int = 0


class OpenVINOExecutionProvider(SegmentProvider):
    """A provider of segments on one of OpenVINO's devices."""

    name: ClassVar[str] = "OpenVINOExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("openvino",)
    unasked: ClassVar[bool] = False
    domains: ClassVar[frozenset[str] | None] = frozenset(("",))
    Options: ClassVar[type | None] = OpenVINOOptions
    executable = OpenVINOExecutable

    @classmethod
    def check(cls) -> str | None:
        """Return whether openvino is installed, without importing it."""
        if importlib.util.find_spec("openvino") is not None:
            return None
        return "openvino is not installed: pip install 'tenonnx[openvino]'"

    @classmethod
    def depends_on(cls) -> tuple[Any, ...]:
        """Return the version of OpenVINO: it decides which nodes are on its device."""
        return (("openvino", metadata.version("openvino")),)

    @functools.cached_property
    def _verdicts(self) -> dict[Any, Literal[True] | str]:
        return {}

    def runs(self, node: ir.Node) -> Literal[True] | str:
        """Accept a node that OpenVINO reads and its device runs; it is queried once."""
        if node.domain:
            return f"OpenVINO gets operators of ai.onnx alone, and this is of {node.domain}"
        import onnx_ir as ir

        from tenonnx.segments.delegate import type_of
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
        key += tuple(_constants(node))
        if key not in self._verdicts:
            self._verdicts[key] = self._ask(node)
        return self._verdicts[key]

    def _ask(self, node: ir.Node) -> Literal[True] | str:
        from tenonnx import Segment
        from tenonnx.segments.delegate import segment_model
        from tenonnx_openvino.hand_over import model_of  # only if OpenVINO is installed

        device = self._options.device_type
        try:
            alone = segment_model(Segment((node,), frozenset(node.outputs)))
            model = model_of(alone.proto.SerializeToString(), alone.weights)
            known = core().query_model(model, device)
        except Exception as error:  # OpenVINO's readers raise any class
            lines = [line for line in str(error).splitlines() if line.strip()]
            return f"OpenVINO: {lines[-1] if lines else type(error).__name__}"
        lacking = {
            op.get_type_name() for op in model.get_ops() if op.get_friendly_name() not in known
        }
        return f"{device} does not run {', '.join(lacking)}" if lacking else True

    def build(self, segment: Segment) -> bytes:
        """Return the segment as an ONNX model, and how OpenVINO is to compile it."""
        from tenonnx.segments.delegate import segment_model

        fixed = [n for n, value in enumerate(segment.inputs) if is_fixed(value)]
        return packed(segment_model(segment), fixed, self._options.device_type, self._threads)

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return one step; OpenVINO compiles it now, or at the first run if types are missing.

        A segment that OpenVINO cannot compile becomes two: its compiler runs out of registers for
        some fused nodes.
        """
        from tenonnx.graph import array_of
        from tenonnx.segments.delegate import type_of

        (step,) = super().compile(segment)
        call, values = step.call, segment.inputs
        given = [value for value in values if not is_fixed(value)]
        known = all(value.dtype is not None and value.shape is not None for value in given)
        if known and isinstance(call, OpenVINOExecutable):
            constants = [value.const_value if is_fixed(value) else None for value in values]
            arrays = [None if each is None else array_of(each) for each in constants]
            try:
                call.loaded.compiled(tuple(map(type_of, given)), arrays)
            except RuntimeError as error:
                if len(segment.nodes) == 1:
                    raise
                log.info("a segment of %d nodes is halved: %s", len(segment.nodes), error)
                return [step for half in _halves(segment) for step in self.compile(half)]
        return [step]

    @property
    def _options(self) -> OpenVINOOptions:
        return self.options if isinstance(self.options, OpenVINOOptions) else OpenVINOOptions()

    @property
    def _threads(self) -> int:
        return self._options.num_of_threads


def is_fixed(value: ir.Value) -> bool:
    """Return whether a value is the same in every run."""
    return value.is_initializer() and not value.is_graph_input()


def _constants(node: ir.Node) -> Iterator[Any]:
    """Yield what a verdict may depend on of a node's constants: of large ones, the shape."""
    from tenonnx.graph import array_of
    from tenonnx.segments.delegate import BY_REFERENCE

    for value in node.inputs:
        if value is not None and is_fixed(value) and value.const_value is not None:
            array = array_of(value.const_value)
            small = array.nbytes < BY_REFERENCE
            yield array.shape, array.dtype.str, array.tobytes() if small else None


def _halves(segment: Segment) -> tuple[Segment, Segment]:
    from tenonnx import Segment
    from tenonnx.graph import inputs

    middle = len(segment.nodes) // 2
    first, second = segment.nodes[:middle], segment.nodes[middle:]
    read = {value for node in second for value in inputs(node)}
    made = (value for node in first for value in node.outputs)
    between = frozenset(v for v in made if v in read or v in segment.escaping)
    return Segment(first, between), Segment(second, segment.escaping)
