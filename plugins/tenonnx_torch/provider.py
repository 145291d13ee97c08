"""The provider: a step per node, or torch.compile's function for each run of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from tenonnx import EPFail, Segment, Step
from tenonnx_array.provider import ArrayDevice, ArrayProvider
from tenonnx_torch.kernels import KERNELS
from tenonnx_torch.layers import REAL_ONLY

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx import Array

ELEMENTS = "BOOL INT8 INT16 INT32 INT64 UINT8 FLOAT16 BFLOAT16 FLOAT DOUBLE"
REALS = frozenset(("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE"))


@dataclass(frozen=True)
class TorchOptions:
    """Options of the provider.

    Attributes:
        device: torch's name of it: ``cpu``, ``cuda:0``.
        compile: Whether ``torch.compile`` makes one function of as many nodes as it can.
        backend: The compiler, for ``compile``.
    """

    device: str = "cpu"
    compile: bool = False
    backend: str = "inductor"


class TorchDevice(ArrayDevice):
    """A device of torch's; on the CPU arrays are used where they are, weights too."""

    def __init__(self, device: str) -> None:
        super().__init__("torch", f"torch:{device}")
        self.device = device
        self._read_only: WeakValueDictionary[int, np.ndarray[Any, Any]] = WeakValueDictionary()

    def upload(self, array: np.ndarray[Any, Any]) -> Array:
        """Returns a tensor: of the same memory on the CPU, of a copy elsewhere."""
        array = np.asarray(array)  # a kernel on the host may leave a scalar
        brain = array.dtype == ml_dtypes.bfloat16
        array = array.view(np.int16) if brain else array
        if min(array.strides, default=0) < 0 or not array.flags.aligned:
            array = array.copy()
        tensor = self.xp.from_dlpack(array)
        if not array.flags.writeable:
            self._read_only[tensor.untyped_storage().data_ptr()] = array
        return (tensor.view(self.xp.bfloat16) if brain else tensor).to(self.device)

    def download(self, array: Array) -> np.ndarray[Any, Any]:
        """Returns a numpy array: of the same memory on the CPU, of a copy elsewhere.

        torch does not know that a weight is read-only; the array of a view of one is.
        """
        tensor = array.detach().cpu()
        brain = tensor.dtype == self.xp.bfloat16
        found = (tensor.view(self.xp.int16) if brain else tensor).numpy()
        if tensor.untyped_storage().data_ptr() in self._read_only:
            found.flags.writeable = False
        return np.asarray(found.view(ml_dtypes.bfloat16) if brain else found)


class TorchExecutionProvider(ArrayProvider):
    """Runs nodes with torch on one of its devices."""

    name: ClassVar[str] = "TorchExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("torch",)
    unasked: ClassVar[bool] = False
    domains: ClassVar[frozenset[str] | None] = frozenset(("",))
    Options: ClassVar[type | None] = TorchOptions
    namespace = "torch"
    install = "'tenonnx[torch]'"
    overrides = KERNELS
    complete = True
    elements = frozenset(ELEMENTS.split())

    def __init__(self, options: TorchOptions | None = None, *rest: Any) -> None:
        self.options = options or TorchOptions()
        super().__init__(self.options, *rest)
        self.device = TorchDevice(self.options.device)
        if self.options.device != "cpu":
            self._try_device()

    def _try_device(self) -> None:
        try:
            self.xp.empty(1, device=self.options.device)
        except (RuntimeError, AssertionError) as error:
            raise EPFail(
                f"torch cannot use device={self.options.device!r}: {error}",
                hint="torch.cuda.is_available() says whether this build of torch has a GPU",
            ) from error

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Accepts a node with a kernel and elements that torch computes it for."""
        verdict = super().supports(node)
        if node.op_type in ("ReduceMax", "ReduceMin") and _is_empty(node.inputs[0]):
            return f"torch has no {node.op_type} of nothing"
        types = {value.dtype.name for value in node.inputs if value is not None and value.dtype}
        if verdict is True and node.op_type in REAL_ONLY and types - REALS - {"INT64", "BOOL"}:
            return f"torch has no {node.op_type} of {', '.join(sorted(types - REALS))}"
        return verdict

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns a step per node; with ``compile`` one for all that follow without the host."""
        steps = super().compile(segment)
        if not self.options.compile:
            return steps
        found: list[Step] = []
        runs = itertools.groupby(steps, key=lambda step: bool(step.host or step.host_output))
        for on_host, run in runs:
            group = list(run)
            found += group if on_host or len(group) == 1 else [self._joined(group, segment, steps)]
        return found

    def _joined(self, group: list[Step], segment: Segment, steps: Sequence[Step]) -> Step:
        """Returns the step of several, as torch.compile makes it from their functions."""
        made = {value for step in group for value in step.outputs}
        read = [v for step in group for v in step.inputs if v is not None and v not in made]
        inside = {id(step) for step in group}
        wanted = {v for step in steps if id(step) not in inside for v in step.inputs}
        inputs = tuple(dict.fromkeys(read))
        outputs = tuple(v for v in made if v in wanted or v in segment.escaping)

        def together(*arrays: Array) -> tuple[Array, ...]:
            values: dict[Any, Array] = {None: None, **dict(zip(inputs, arrays, strict=True))}
            for step in group:
                result = step.call(*(values[value] for value in step.inputs))
                results = result if step.multiple else (result,)
                values.update(zip(step.outputs, results, strict=False))
            return tuple(values[value] for value in outputs)

        call = self.xp.compile(together, backend=self.options.backend, dynamic=None)
        nodes = tuple(node for step in group for node in step.nodes)
        return Step(call, inputs, outputs, nodes, multiple=True, device=self.device)


def _is_empty(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and 0 in value.shape.dims
