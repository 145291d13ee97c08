"""The session: from a model file to answers."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tenonnx import functions
from tenonnx import graph as graphs
from tenonnx.errors import EPFail, InvalidArgument, TenonnxError
from tenonnx.formats import load_model
from tenonnx.operators import OperatorTable
from tenonnx.options import SessionOptions, make_options
from tenonnx.placement import Placement, place
from tenonnx.plan import Observer, Plan
from tenonnx.plugins import PluginSet, default_plugins
from tenonnx.provider import HOST, Provider, why_unusable
from tenonnx.signature import NodeArg, Signature
from tenonnx.tensors import WeightTensor
from tenonnx.transforms import (
    TransformContext,
    TransformReport,
    host_providers,
    run_transforms,
    select,
)
from tenonnx.weights import Weight, WeightRegistry, default_registry

ProviderRequest: TypeAlias = "str | tuple[str, Mapping[str, Any]] | Provider"

log = logging.getLogger("tenonnx")


class InferenceSession:
    """Runs a model. Safe to use from any number of threads.

    Args:
        path_or_bytes: A path, a buffer, an ``onnx.ModelProto`` or an ``onnx_ir.Model``. Weights
            are used where they are: in the file, mapped read-only, or in the buffer.
        sess_options: Options; defaults if ``None``.
        providers: Provider names, ``(name, options)`` pairs or instances, in order of
            preference; every registered provider that is usable here if ``None``.
        provider_options: Options per provider, beside a list of plain names.

    Raises:
        NoSuchFile, InvalidProtobuf, InvalidGraph: The model cannot be read.
        InvalidArgument: An unknown provider or option.
        NotSupported: The model has an operator that no provider runs.
        EPFail: A provider cannot be used here and no other can take its place.
    """

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[ProviderRequest] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        options = sess_options or SessionOptions()
        plugins = options.plugins or default_plugins()
        registry = options.weights or default_registry()
        self._options = dataclasses.replace(options)
        self._registry = registry
        self._providers = choose_providers(plugins, providers, provider_options, self._options)

        formats = tuple(plugins.formats.values())
        model = load_model(path_or_bytes, registry, formats, options.allowed_roots)
        graphs.resolve_versions(model)
        graphs.check_and_sort(model.graph)
        functions.inline_functions(model)
        self._overridable = _take_overridable(model)
        hosts = host_providers(plugins)
        context = TransformContext(registry, hosts, self._providers)
        self.transforms: list[TransformReport] = run_transforms(
            model,
            select(
                plugins.transforms.values(),
                options.graph_optimization_level,
                options.disabled_transforms,
            ),
            context,
        )
        self._model = model
        self.placement: Placement = place(model, self._providers, context.hosts)
        self._plan = Plan(self.placement)
        self._signature = Signature(model.graph, self._overridable)
        self._observers: list[Observer] = plugins.create_observers(self._plan)
        self._weights = tuple(_weights_of(model))
        registry.attach(self, options.logid or str(model.graph.name or "session"), self._weights)

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
    ) -> list[Any]:
        """Computes outputs.

        Args:
            output_names: Which outputs, in which order; all if ``None`` or empty.
            input_feed: Inputs by name: numpy arrays, or what ``numpy.asarray`` takes.
            run_options: Accepted for onnxruntime's sake.

        Returns:
            One entry per output: an array, a list for a sequence, ``None`` for an absent
            optional. Outputs that are weights are read-only views of them.

        Raises:
            InvalidArgument: An input or output name, dtype or shape is wrong.
            RuntimeException: A node failed; the message names it.
        """
        del run_options
        positions = self._signature.positions(output_names) if output_names else None
        arguments = self._signature.arguments(input_feed)
        if self._observers:
            outputs = self._plan.run_observed(arguments, self._observers)
        else:
            outputs = self._plan.run(arguments)
        return outputs if positions is None else [outputs[i] for i in positions]

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs a caller must pass."""
        return list(self._signature.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs."""
        return list(self._signature.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the inputs that have a value already, which a caller may override."""
        return list(self._signature.overridable)

    def get_providers(self) -> list[str]:
        """Returns the names of the providers in use, in order of preference."""
        return [provider.name for provider in self._providers]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of the providers in use, as strings."""
        return {
            provider.name: {
                field.name: str(getattr(provider.options, field.name))
                for field in (dataclasses.fields(provider.options) if provider.options else ())
            }
            for provider in self._providers
        }

    def get_session_options(self) -> SessionOptions:
        """Returns a copy of the options the session was built with."""
        return dataclasses.replace(self._options)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The weights that the model as it runs refers to, each once."""
        return self._weights

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
        return self._model


def choose_providers(
    plugins: PluginSet,
    requests: Sequence[ProviderRequest] | None,
    options: Sequence[Mapping[str, Any]] | None = None,
    session_options: SessionOptions | None = None,
) -> list[Provider]:
    """Instantiates the providers a caller asked for.

    A provider that is not usable here is left out with a warning if one after it is; that is
    the fallback the caller typed.

    Raises:
        InvalidArgument: An unknown provider or option, or a request that is none.
        EPFail: None of the providers asked for is usable; the message says why.
    """
    chosen: list[Provider] = []
    unusable: list[str] = []
    for request, given in _normalise(plugins, requests, options):
        if isinstance(request, Provider):
            chosen.append(request)
            continue
        provider = plugins.provider(request)
        made = make_options(provider.Options, given, provider.name)
        if any(provider.name == other.name for other in chosen):
            continue
        if (missing := why_unusable(provider)) is None:
            operators = plugins.operators_for(provider)
            chosen.append(_start(provider, made, operators, session_options))
        else:
            unusable.append(f"{provider.name}: {missing}")
    if not chosen:
        raise EPFail(
            "none of the providers asked for can be used here: " + "; ".join(unusable),
            hint="name another after them, for example providers=[..., 'CPUExecutionProvider']",
        )
    if unusable:
        names = ", ".join(provider.name for provider in chosen)
        warnings.warn(f"running on {names}; not usable: {'; '.join(unusable)}", stacklevel=3)
    return chosen


def _start(
    provider: type[Provider],
    options: Any,
    operators: OperatorTable,
    session_options: SessionOptions | None,
) -> Provider:
    try:
        return provider(options, operators, session_options)
    except TenonnxError:
        raise
    except Exception as error:
        raise EPFail(
            f"{provider.name} failed to start: {type(error).__name__}: {error}",
            hint="its check() said that it is usable here; tell its authors",
        ) from error


def _normalise(
    plugins: PluginSet,
    requests: Sequence[ProviderRequest] | None,
    options: Sequence[Mapping[str, Any]] | None,
) -> Iterable[tuple[str | Provider, Mapping[str, Any] | None]]:
    if isinstance(requests, str):
        raise InvalidArgument(f"providers is a string; pass a list: providers=[{requests!r}]")
    if not requests:
        usable = [name for name, p in plugins.providers.items() if why_unusable(p) is None]
        requests = usable
        if not usable:
            raise EPFail("no provider is registered", hint="see `tenonnx plugins`")
    if options is not None and len(options) != len(requests):
        raise InvalidArgument(
            f"provider_options has {len(options)} entries for {len(requests)} providers"
        )
    for position, request in enumerate(requests):
        given = options[position] if options else None
        match request:
            case str() | Provider():
                yield request, given
            case (str() as name, own):
                yield name, {**(own or {}), **(given or {})}
            case _:
                raise InvalidArgument(
                    f"providers[{position}] is {request!r}; expected a name, (name, options) or "
                    "a Provider"
                )


def _take_overridable(model: Any) -> dict[str, Any]:
    """Returns the values of inputs that are initializers too, by name.

    Before IR version 4 every initializer had to be an input as well; there it is no sign that
    callers may override it, and it stops being an input.
    """
    graph = model.graph
    both = [value for value in graph.inputs if value.is_initializer()]
    if model.ir_version < 4:
        for value in both:
            graph.inputs.remove(value)
        return {}
    defaults = {}
    for value in both:
        tensor = value.const_value
        is_weight = isinstance(tensor, WeightTensor)
        defaults[value.name] = tensor.weight.on(HOST) if is_weight else graphs.array_of(tensor)
    return defaults


def _weights_of(model: Any) -> Iterable[Weight]:
    seen: set[Weight] = set()
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, WeightTensor) and tensor.weight not in seen:
                seen.add(tensor.weight)
                yield tensor.weight


def get_available_providers() -> list[str]:
    """Returns the names of the registered providers that are usable here."""
    return [name for name, p in default_plugins().providers.items() if why_unusable(p) is None]


def get_all_providers() -> list[str]:
    """Returns the names of the registered providers, usable or not."""
    return list(default_plugins().providers)
