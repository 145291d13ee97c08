"""A session's facts, by onnxruntime's names."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tenonnx.by_name import cacheable
from tenonnx.errors import NotSupported, TenonnxError
from tenonnx.interface.signature import NodeArg, Signature, describe
from tenonnx.options import SessionOptions

if TYPE_CHECKING:
    import onnx_ir as ir

    from tenonnx.interface.assigned import OrtEpAssignedSubgraph
    from tenonnx.interface.devices import OrtEpDevice, OrtMemoryInfo
    from tenonnx.interface.metadata import ModelMetadata
    from tenonnx.interface.ort_value import OrtValue
    from tenonnx.interface.profiling import Profiler
    from tenonnx.planning.placement import Placement
    from tenonnx.planning.plan import Plan
    from tenonnx.planning.program import Program
    from tenonnx.process.later import Later
    from tenonnx.provider import Device, KernelState, Provider
    from tenonnx.transforms import TransformReport
    from tenonnx.weights.registry import Weight, WeightRegistry


# The stages of building a session, in order.
BUILD_STAGES = ("read", "transform", "place", "compile")

# The stage that replaces them for a plan that was cached.
LOADED_STAGES = ("open",)


@cacheable
class SessionParts(NamedTuple):
    """The parts of a session, compiled or loaded; providers first: they have kernels.

    Attributes:
        providers: In order of preference.
        program: The model's steps.
        signature: The model's inputs and outputs.
        typed: Of each output, whether the model says all of its type.
        name: The graph's.
        placement: The ``Placement``.
        metadata: The ``ModelMetadata``.
        reports: A list of each transform's report.
        weights: A tuple of those that the model refers to.
    """

    providers: list[Provider]
    program: Program
    signature: Signature
    typed: tuple[bool, ...]
    name: str
    placement: Later
    metadata: Later
    reports: Later
    weights: Later


class LoadTimes(dict[str, float]):
    """The seconds of each stage of building a session.

    Attributes:
        uncached: Why its plan is not cached for later processes; ``""`` if it is.
    """

    uncached = ""


class Session:
    """A session's facts; ``InferenceSession`` adds what it does."""

    _moments: tuple[int, ...]
    _options: SessionOptions
    _parts: SessionParts
    _plan: Plan
    _registry: WeightRegistry
    _recipe: tuple[Any, ...]
    _fallback: bool
    _profiler: Profiler | None
    _uncached: str
    _model: Later
    """The model as it runs; read again when it is asked for, where the session was loaded."""

    @property
    def _providers(self) -> list[Provider]:
        return self._parts.providers

    @property
    def _signature(self) -> Signature:
        return self._parts.signature

    @property
    def placement(self) -> Placement:
        """The provider of each node, and the reasons."""
        return self._plan.placement

    @property
    def transforms(self) -> list[TransformReport]:
        """A report of each transform, as it was when the plan was compiled."""
        found: list[TransformReport] = self._parts.reports.open()
        return found

    @property
    def _model_path(self) -> str | None:
        """The path it was built from, if any: optimum reads it from onnxruntime's session."""
        source = self._recipe[0]
        return os.fspath(source) if isinstance(source, str | os.PathLike) else None

    def get_inputs(self) -> list[NodeArg]:
        """Return name, type and shape of the inputs that a caller must pass, in order."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Return name, type and shape of the outputs, in order.

        A type or shape that the model leaves open is inferred when it is first read.
        """
        typed = self._parts.typed
        pairs = list(zip(self._signature.outputs, typed, strict=True))
        if all(typed):
            return [arg for arg, _ in pairs]
        from tenonnx.interface.inferred import Inferred

        return [arg if said else Inferred(arg, lambda: self._inferred) for arg, said in pairs]

    @functools.cached_property
    def _inferred(self) -> dict[str, NodeArg]:
        return {arg.name: arg for arg in self._infer_outputs()}

    def _infer_outputs(self) -> list[NodeArg]:
        """Return the outputs with what inference finds of those that the model leaves open.

        They are inferred of the model as it was, for transforms leave operators that ONNX has not;
        of the model as it runs, if the other is not there any more.
        """
        from tenonnx import session_builder
        from tenonnx.graph.inference import infer_types

        plugins = session_builder.surroundings(self._options)[0]
        try:
            model = session_builder.read_model(
                self._recipe[0], self._registry, self._options, plugins
            )
        except (TenonnxError, OSError):
            model = self._model.open().clone()
        infer_types(model)
        found = {arg.name: arg for arg in map(describe, model.graph.outputs)}
        return [found.get(arg.name, arg) for arg in self._signature.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have a value already, which a caller may override."""
        return list(self._signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Return what the model says of itself."""
        told: ModelMetadata = self._parts.metadata.open()
        return replace(told, custom_metadata_map=dict(told.custom_metadata_map))

    def get_providers(self) -> list[str]:
        """Return the names of the providers in use, in order of preference."""
        return [provider.name for provider in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of the providers in use, as strings."""
        import dataclasses

        return {
            provider.name: {
                field.name: str(getattr(provider.options, field.name))
                for field in (dataclasses.fields(provider.options) if provider.options else ())
            }
            for provider in self._providers
        }

    def get_session_options(self) -> SessionOptions:
        """Return a copy of the options the session was built with."""
        return self._options.copy()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Return which provider runs which nodes; ``placement`` says why, too."""
        from tenonnx.interface.assigned import assigned

        return assigned(self.placement)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each input is expected: on the host."""
        from tenonnx.interface.devices import HOST_MEMORY

        return [HOST_MEMORY for _ in self._signature.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return where each output appears: on the host."""
        from tenonnx.interface.devices import HOST_MEMORY

        return [HOST_MEMORY for _ in self._signature.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """Return the preferred provider's device for each input; ``None`` if it has no name."""
        from tenonnx.interface.devices import ep_devices
        from tenonnx.plugins.choosing import plugins_of

        devices = ep_devices(plugins_of(self._options))
        preferred = self._providers[0].name
        device = next((found for found in devices if found.ep_name == preferred), None)
        return [device for _ in self._signature.inputs]

    @property
    def device(self) -> Device:
        """The preferred provider's memory, if it lends its arrays; else the host's.

        A run neither copies nor moves inputs and outputs that are bound there, such as caches.
        """
        from tenonnx.planning.device_arrays import exposes_arrays
        from tenonnx.provider import HOST

        device = self._providers[0].device
        return device if exposes_arrays(device) else HOST

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a tensor of zeros; see ``OrtValue.ortvalue_from_shape_and_type``."""
        from tenonnx.interface.ort_value import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    def enable_fallback(self) -> None:
        """Note that fallback is wanted, without effect: ``providers`` lists what may run."""
        self._fallback = True

    def disable_fallback(self) -> None:
        """Note that no fallback is wanted, without effect: ``providers`` lists what may run."""
        self._fallback = False

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Do nothing: a provider's captures are freed with the session."""

    def get_tuning_results(self) -> list[Any]:
        """Return no tuning results: nothing is tuned ahead."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Do nothing: nothing is tuned ahead."""

    def get_profiling_start_time_ns(self) -> int:
        """Return when profiling started, in nanoseconds; 0 without profiling."""
        return self._profiler.start_ns if self._profiler else 0

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Refuse options for a provider that runs already.

        Raises:
            NotSupported: There are any.
        """
        if options:
            raise NotSupported(
                f"providers take no options once they run: {', '.join(options)}",
                hint="call set_providers with the new options",
            )

    @property
    def load_times(self) -> LoadTimes:
        """The seconds that each stage of building the session took; ``transforms`` has more.

        ``open`` is the only stage where an earlier session cached the plan. The attribute
        ``uncached`` says why the plan is not cached for later processes, if it is not.
        """
        spans = list(zip(self._moments, self._moments[1:], strict=False))
        stages = LOADED_STAGES if len(spans) == 1 else BUILD_STAGES
        times = ((end - start) / 1e9 for start, end in spans)
        found = LoadTimes(zip(stages, times, strict=True))
        found.uncached = self._uncached
        return found

    @property
    def kernels(self) -> dict[str, KernelState]:
        """The kernels that the session's nodes asked for, by name, and how far each is now."""
        return {name: k for each in self._providers for name, k in each.kernels().items()}

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights that the model as it runs refers to, each once."""
        found: tuple[Weight, ...] = self._parts.weights.open()
        return found

    @property
    def registry(self) -> WeightRegistry:
        """The registry that holds the weights."""
        return self._registry

    @property
    def plan(self) -> Plan:
        """The compiled model."""
        return self._plan

    @property
    def model(self) -> Any:
        """The ``onnx_ir.Model`` as it runs, after transforms; not to be changed."""
        from tenonnx.session_builder import keep_weights

        keep_weights(model := self._model.open())
        return model


def is_typed(value: ir.Value) -> bool:
    """Return whether a model says an output's type, and if it is a tensor its rank and sizes."""
    import onnx_ir as ir

    if not isinstance(value.type, ir.TensorType):
        return value.type is not None
    if value.shape is None or value.dtype == ir.DataType.UNDEFINED:
        return False
    return all(isinstance(dim, int) or dim.value is not None for dim in value.shape.dims)
