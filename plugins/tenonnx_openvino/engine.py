"""A segment in OpenVINO, which each process compiles from its ONNX model.

What OpenVINO has compiled is not kept: its CPU device takes longer to import an exported model of
12 layers (1.7 s, 74 MB, OpenVINO 2026.4) than to compile it (1.4 s).
"""

from __future__ import annotations

import functools
import importlib
import json
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from tenonnx.segments import Executable

if TYPE_CHECKING:
    from tenonnx.segments.delegate import SegmentModel, Type

NDArray = np.ndarray[Any, Any]


@functools.cache
def core() -> Any:
    """Return OpenVINO's core, one for the process."""
    return importlib.import_module("openvino").Core()


def packed(given: SegmentModel, fixed: Sequence[int], device: str, threads: int) -> bytes:
    """Return the bytes that an ``Engine`` reads.

    Args:
        given: The segment's model.
        fixed: Positions of the segment's inputs that are the same in every run.
        device: OpenVINO's name of the device.
        threads: Threads of a run; 0 lets OpenVINO choose.
    """
    facts = {"fixed": fixed, "weights": list(given.weights), "device": device, "threads": threads}
    proto: bytes = given.proto.SerializeToString(deterministic=True)
    return json.dumps(facts).encode() + b"\n" + proto


class OpenVINOExecutable(Executable):
    """A segment's call; any number of threads may make it at once."""

    def load(self, binary: memoryview) -> Engine:
        """Return what compiles and runs the segment."""
        facts, _, proto = bytes(binary).partition(b"\n")
        return Engine(self.weight.key, proto, **json.loads(facts))

    def run(self, loaded: Engine, inputs: Sequence[Any], outs: Sequence[Any]) -> Sequence[Any]:
        """Run once."""
        del outs  # OpenVINO's outputs are new arrays
        return loaded.run(inputs)


class Compiled:
    """OpenVINO's compiled model, its idle requests, and the weights that it refers to."""

    def __init__(self, model: Any, weights: object, device: str, config: dict[str, str]) -> None:
        self.weights = weights
        self.model = core().compile_model(model, device, config)
        self.idle: deque[Any] = deque()


# By the segment and its types: sessions of one model share it, with OpenVINO's own weights.
_compiled: WeakValueDictionary[Any, Compiled] = WeakValueDictionary()
_lock = threading.Lock()


class Engine:
    """A segment, compiled for each set of types that it is called with.

    Args:
        key: Names the segment with all that it depends on, its constants as well.
        proto: Its ONNX model, whose inputs are called ``v`` and their positions.
        fixed: Positions of the inputs that are the same in every run.
        weights: Names of those that are not inside the model.
        device: OpenVINO's name of the device.
        threads: Threads of a run; 0 lets OpenVINO choose.
    """

    def __init__(
        self,
        key: str,
        proto: bytes,
        fixed: list[int],
        weights: list[str],
        device: str,
        threads: int,
    ) -> None:
        self._key, self._proto = key, proto
        self._fixed, self._weights = frozenset(fixed), weights
        self._device, self._threads = device, threads
        self._known: dict[tuple[Type, ...], Compiled] = {}

    def run(self, inputs: Sequence[NDArray]) -> tuple[NDArray, ...]:
        """Run once; inputs are used in place, outputs are the caller's."""
        arrays = [array for n, array in enumerate(inputs) if n not in self._fixed]
        compiled = self.compiled(tuple((a.dtype.name, a.ndim) for a in arrays), inputs)
        try:
            request = compiled.idle.pop()
        except IndexError:
            request = compiled.model.create_infer_request()
        try:
            given = [np.require(a, requirements=("C", "W")) for a in arrays]
            # ``infer`` returns empty arrays where a thread alone meets shapes that do not fit.
            request.start_async(given, share_inputs=True)
            request.wait()
            count = len(compiled.model.outputs)
            return tuple(np.array(request.get_output_tensor(n).data) for n in range(count))
        finally:
            compiled.idle.append(request)

    def compiled(self, types: tuple[Type, ...], inputs: Sequence[Any]) -> Compiled:
        """Return the model that is compiled for the types of what differs from run to run.

        Args:
            types: Of these inputs.
            inputs: All; of the others, the arrays.
        """
        if (known := self._known.get(types)) is not None:
            return known
        with _lock:
            found = _compiled.get((self._key, types))
            if found is None:
                found = _compiled[self._key, types] = self._compile(types, inputs)
            self._known[types] = found
        return found

    def _compile(self, types: tuple[Type, ...], inputs: Sequence[Any]) -> Compiled:
        from tenonnx_openvino.hand_over import model_of  # only if OpenVINO is installed

        weights = {name: np.asarray(inputs[int(name[1:])]) for name in self._weights}
        names = (f"v{n}" for n in range(len(inputs)) if n not in self._fixed)
        model = model_of(self._proto, weights, dict(zip(names, types, strict=True)))
        config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        if self._threads:
            config["INFERENCE_NUM_THREADS"] = str(self._threads)
        return Compiled(model, weights, self._device, config)
