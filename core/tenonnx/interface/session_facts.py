"""A session's facts, by onnxruntime's names."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenonnx.errors import NotSupported, TenonnxError
from tenonnx.interface.signature import NodeArg, Signature, describe
from tenonnx.lazy_modules import onnx_ir as ir
from tenonnx.options import SessionOptions
from tenonnx.records import names_of

if TYPE_CHECKING:
    import weakref
    from typing import Protocol

    from tenonnx.interface.assigned import OrtEpAssignedSubgraph
    from tenonnx.interface.devices import OrtEpDevice, OrtMemoryInfo
    from tenonnx.interface.metadata import ModelMetadata
    from tenonnx.interface.ort_value import OrtValue
    from tenonnx.interface.profiling import Profiler
    from tenonnx.later import Later
    from tenonnx.planning.placement import Placement
    from tenonnx.planning.plan import Plan
    from tenonnx.provider import Device, KernelState, Provider
    from tenonnx.transforms import TransformReport
    from tenonnx.weights.registry import Weight, WeightRegistry

    class Reader(Protocol):
        """Reads a session's model when it is asked for the first time."""

        @property
        def session(self) -> Session:
            """The session that did."""


STAGES = ("read", "transform", "place", "compile")
"""The stages of building a session, in order."""

KEPT_STAGES = ("open",)
"""The stage that replaces them for a plan that was kept."""


class Session:
    """A session's facts; ``InferenceSession`` adds what it does."""

    _moments: tuple[int, ...]
    _options: SessionOptions
    _plan: Plan
    _providers: list[Provider]
    _registry: WeightRegistry
    _signature: Signature
    _weights: Later
    _recipe: tuple[Any, ...]
    _fallback: bool
    _said: tuple[bool, ...]
    _told: tuple[Any, ...] | None
    """The model's facts in a kept plan, in place of the model; ``None`` if it was read."""
    _profiler: Profiler | None
    _placed: Placement
    _counts: Mapping[str, int]
    _reports: list[TransformReport]
    _reported: tuple[tuple[Any, ...], ...]
    _read: ir.Model
    _parting: weakref.finalize[..., Any]

    _reader: Reader | None = None
    """Reads the model for facts that a kept plan lacks."""

    @property
    def _whole(self) -> Session:
        """The session itself; where its plan was kept, one that read the model."""
        return self if self._reader is None else self._reader.session

    @property
    def placement(self) -> Placement:
        """The provider of each node, and the reasons."""
        return self._whole._placed

    @property
    def _node_counts(self) -> dict[str, int]:
        """The number of nodes of each provider, by its name; a kept plan has it without a model."""
        return self._placed.counts() if self._reader is None else dict(self._counts)

    @property
    def transforms(self) -> list[TransformReport]:
        """A report of each transform; of a plan that was kept, as it was when it was made."""
        if self._reader is None:
            return self._reports
        from tenonnx.transforms import TransformReport  # a kept plan is opened without

        return [TransformReport(*fields) for fields in self._reported]

    @property
    def _model(self) -> ir.Model:
        return self._whole._read

    @property
    def _model_path(self) -> str | None:
        """The path it was built from, if any: optimum reads it from onnxruntime's session."""
        source = self._recipe[0]
        return os.fspath(source) if isinstance(source, str | os.PathLike) else None

    def get_inputs(self) -> list[NodeArg]:
        """Returns name, type and shape of the inputs that a caller must pass, in order."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Returns name, type and shape of the outputs, in order.

        A type or shape that the model leaves open is inferred when it is first read.
        """
        pairs = list(zip(self._signature.outputs, self._said, strict=True))
        if all(self._said):
            return [arg for arg, _ in pairs]
        from tenonnx.interface.inferred import Inferred  # for models that leave something open

        return [arg if said else Inferred(arg, lambda: self._inferred) for arg, said in pairs]

    @functools.cached_property
    def _inferred(self) -> dict[str, NodeArg]:
        return {arg.name: arg for arg in self._infer_outputs()}

    def _infer_outputs(self) -> list[NodeArg]:
        """Returns the outputs with what inference finds of those that the model leaves open.

        They are inferred of the model as it was, for transforms leave operators that ONNX has not;
        of the model as it runs, if the other is not there any more.
        """
        from tenonnx import session_builder  # most sessions do without
        from tenonnx.inference import infer_types

        plugins = session_builder.surroundings(self._options)[0]
        try:
            model = session_builder.read_model(
                self._recipe[0], self._registry, self._options, plugins
            )
        except (TenonnxError, OSError):
            model = self._model.clone()
        infer_types(model)
        found = {arg.name: arg for arg in map(describe, model.graph.outputs)}
        return [found.get(arg.name, arg) for arg in self._signature.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the inputs that have a value already, which a caller may override."""
        return list(self._signature.overridable)

    def get_modelmeta(self) -> ModelMetadata:
        """Returns what the model says of itself."""
        from tenonnx.interface.metadata import ModelMetadata, metadata_of

        if self._told is None:
            return metadata_of(self._model)
        told = dict(zip(names_of(ModelMetadata), self._told, strict=True))
        return ModelMetadata(**told | {"custom_metadata_map": dict(told["custom_metadata_map"])})

    def get_providers(self) -> list[str]:
        """Returns the names of the providers in use, in order of preference."""
        return [provider.name for provider in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of the providers in use, as strings."""
        import dataclasses  # few ask

        return {
            provider.name: {
                field.name: str(getattr(provider.options, field.name))
                for field in (dataclasses.fields(provider.options) if provider.options else ())
            }
            for provider in self._providers
        }

    def get_session_options(self) -> SessionOptions:
        """Returns a copy of the options the session was built with."""
        return self._options.copy()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Returns which provider runs which nodes; ``placement`` says why, too."""
        from tenonnx.interface.assigned import assigned

        return assigned(self.placement)

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns where each input is expected: on the host."""
        from tenonnx.interface.devices import HOST_MEMORY

        return [HOST_MEMORY for _ in self._signature.inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns where each output appears: on the host."""
        from tenonnx.interface.devices import HOST_MEMORY

        return [HOST_MEMORY for _ in self._signature.outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice | None]:
        """Returns the preferred provider's device for each input; ``None`` if it has no name."""
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
        from tenonnx.lending import lends
        from tenonnx.provider import HOST

        device = self._providers[0].device
        return device if lends(device) else HOST

    def create_ortvalue_from_shape_and_type(
        self,
        shape: Sequence[int],
        element_type: Any,
        device_type: str,
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Returns a tensor of zeros; see ``OrtValue.ortvalue_from_shape_and_type``."""
        from tenonnx.interface.ort_value import OrtValue

        return OrtValue.ortvalue_from_shape_and_type(
            shape, element_type, device_type, device_id, vendor_id
        )

    def enable_fallback(self) -> None:
        """Notes that fallback is wanted, without effect: ``providers`` lists what may run."""
        self._fallback = True

    def disable_fallback(self) -> None:
        """Notes that no fallback is wanted, without effect: ``providers`` lists what may run."""
        self._fallback = False

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: a provider's captures are freed with the session."""

    def get_tuning_results(self) -> list[Any]:
        """Returns no tuning results: nothing is tuned ahead."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Does nothing: nothing is tuned ahead."""

    def get_profiling_start_time_ns(self) -> int:
        """Returns when profiling started, in nanoseconds; 0 without profiling."""
        return self._profiler.start_ns if self._profiler else 0

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Refuses options for a provider that runs already.

        Raises:
            NotSupported: There are any.
        """
        if options:
            raise NotSupported(
                f"providers take no options once they run: {', '.join(options)}",
                hint="call set_providers with the new options",
            )

    @property
    def load_times(self) -> dict[str, float]:
        """The seconds that each stage of building the session took; ``transforms`` has more.

        ``open`` is the only stage where an earlier session kept the plan, and the last one where
        a model is so large that the session opens what it has kept.
        """
        spans = list(zip(self._moments, self._moments[1:], strict=False))
        stages = KEPT_STAGES if len(spans) == 1 else (*STAGES, *KEPT_STAGES)
        return {
            stage: (end - start) / 1e9 for stage, (start, end) in zip(stages, spans, strict=False)
        }

    @property
    def kernels(self) -> dict[str, KernelState]:
        """The kernels that the session's nodes asked for, by name, and how far each is now."""
        return {name: k for each in self._providers for name, k in each.kernels().items()}

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights that the model as it runs refers to, each once."""
        found: tuple[Weight, ...] = self._weights.open()
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
        self._whole._parting.detach()  # the caller may keep a part of it
        return self._model


def is_said(value: ir.Value) -> bool:
    """Says whether a model says an output's type, and if it is a tensor its rank and sizes."""
    if not isinstance(value.type, ir.TensorType):
        return value.type is not None
    if value.shape is None or value.dtype == ir.DataType.UNDEFINED:
        return False
    return all(isinstance(dim, int) or dim.value is not None for dim in value.shape.dims)
