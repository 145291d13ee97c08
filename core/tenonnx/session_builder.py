"""From a caller's arguments to a model that is ready to be placed."""

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir

from tenonnx import graph as graphs
from tenonnx.errors import Fail, InvalidArgument, NotSupported
from tenonnx.formats import Format, load_model
from tenonnx.formats.declared_shapes import forget_unknown_sizes
from tenonnx.formats.in_memory_data import Supplied
from tenonnx.graph import functions
from tenonnx.graph.element_types import check_types
from tenonnx.graph.validation import check_names
from tenonnx.graph.values import described
from tenonnx.interface import config
from tenonnx.interface.metadata import metadata_of
from tenonnx.interface.session_info import SessionParts, is_typed
from tenonnx.interface.signature import Signature
from tenonnx.options import SessionOptions
from tenonnx.planning.placement import PlacedGraph, Placement, place
from tenonnx.planning.program import Program
from tenonnx.plugins.choosing import host_providers, plugins_of
from tenonnx.plugins.manager import PluginSet
from tenonnx.process import interruption
from tenonnx.process.later import Later
from tenonnx.process.weak import when_gone
from tenonnx.provider import HOST, Provider
from tenonnx.transforms import Transform, TransformContext, TransformReport, run_transforms, select
from tenonnx.weights.registry import WeightRegistry, default_registry
from tenonnx.weights.weight import weight_in

# The key under which a model's main graph has the reference that sees the model go.
RELEASE_KEY = "tenonnx.parting"

# Metadata of models that says with which options to run them, as JSON.
EMBEDDED_OPTIONS_KEY = "ort_config"


def surroundings(options: SessionOptions) -> tuple[PluginSet, WeightRegistry]:
    """Return the plug-ins and the registry that options name; the process's if they name none.

    Raises:
        InvalidArgument: They name something else.
    """
    weights = options.weights
    if weights is not None and not isinstance(weights, WeightRegistry):
        raise InvalidArgument(
            f"SessionOptions.weights is {weights!r}; expected a WeightRegistry, or None"
        )
    return plugins_of(options), weights or default_registry()


def read_model(
    source: Any, registry: WeightRegistry, options: SessionOptions, plugins: PluginSet
) -> ir.Model:
    """Load a model, check it and replace what its functions stand for."""
    interruption.enter("the model was read")
    formats = tuple(plugins.formats.values())
    supplied = Supplied(options._initializers, options._files)
    folder = options.entry(config.DATA_FOLDER)
    roots = (*options.allowed_roots, *([folder] if folder else []))
    model = load_model(source, registry, formats, roots, supplied)
    supplied.refuse_unknown(model.graph.initializers)
    graphs.check_and_sort(model)
    check_names(model.graph)
    limit = options.entry(config.EXPANSION)
    functions.inline_functions(model, None if limit is None else int(limit))
    check_types(model.graph)
    forget_unknown_sizes(model)
    fix_dimensions(model.graph, options)
    return model


class PlacedModel(NamedTuple):
    """A model that is placed.

    Attributes:
        model: As it runs.
        placed: Its graph.
        overridable: The values of inputs that are initializers too, by name.
        reports: Of each transform.
        transformed: When the transforms had run, on the performance counter.
    """

    model: ir.Model
    placed: PlacedGraph
    overridable: Mapping[str, Any]
    reports: list[TransformReport]
    transformed: int


def prepare(
    model: ir.Model,
    providers: Sequence[Provider],
    plugins: PluginSet,
    options: SessionOptions,
    disabled: Iterable[str],
) -> PlacedModel:
    """Transform a model and place its nodes.

    Raises:
        UnknownOperator: No provider runs a node.
    """
    overridable = take_overridable(model)
    registry = options.weights or default_registry()
    context = TransformContext(registry, host_providers(plugins), providers, options)
    reports = transform(model, choose_transforms(plugins, options, disabled), context)
    save_optimized(model, options, plugins.formats)
    transformed = time.perf_counter_ns()
    part_with_weights(model)
    interruption.enter("nodes were placed")
    placed = place(model, providers, context.hosts)
    return PlacedModel(model, placed, overridable, reports, transformed)


def program_of(
    placed: PlacedGraph, plugins: PluginSet, options: SessionOptions
) -> tuple[Program, Placement]:
    """Return what a placed graph is lowered to, with checks if the options say so."""
    from tenonnx.planning.lower import lower

    with described():
        program, placement = lower(placed)
        if options.check:
            from tenonnx.planning.checking import checked

            tolerances = options.check if isinstance(options.check, Mapping) else {}
            program = checked(program, placed, host_providers(plugins), tolerances)
        return program, placement


def save_contexts(made: PlacedModel, options: SessionOptions, source: str | None) -> None:
    """Write the model with its compiled segments, if the options say so."""
    if options.entry(config.CONTEXT) == "1":
        from tenonnx.segments import contexts

        interruption.enter("compiled segments were written")
        contexts.save_contexts(made.model, made.placed, options, source)


def parts_of(
    made: PlacedModel, providers: list[Provider], program: Program, placement: Placement
) -> SessionParts:
    """Return the parts of a session whose model is compiled."""
    graph = made.model.graph
    return SessionParts(
        providers,
        program,
        Signature(graph, made.overridable),
        tuple(map(is_typed, graph.outputs)),
        str(graph.name or ""),
        Later(placement),
        Later(metadata_of(made.model)),
        Later(made.reports),
        weights_of(made.model),
    )


def fix_dimensions(graph: ir.Graph, options: SessionOptions) -> None:
    """Give symbolic dimensions of inputs and outputs the sizes that the options say."""
    for value in (*graph.inputs, *graph.outputs):
        if value.shape is None or not options._sizes:
            continue
        dims = list(value.shape.dims)
        for axis, dim in enumerate(dims):
            denotation = value.shape.get_denotation(axis) or ""
            by_denotation = options._sizes.get(("denotation", denotation), dim)
            name = "" if isinstance(dim, int) else dim.value or ""
            dims[axis] = options._sizes.get(("name", name), by_denotation)
        value.shape = ir.Shape(dims)


def take_embedded_options(model: ir.Model, options: SessionOptions) -> None:
    """Set the options that the model's metadata names.

    Raises:
        InvalidArgument: The metadata is not understood.
    """
    text = model.metadata_props.get(EMBEDDED_OPTIONS_KEY)
    if text is None:
        return
    import json

    try:
        for name, value in json.loads(text).get("session_options", {}).items():
            config.set_attribute(options, f"session.{name}", str(value))
    except (ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"the model's {EMBEDDED_OPTIONS_KEY} is not understood: {error}"
        ) from error


def choose_transforms(
    plugins: PluginSet, options: SessionOptions, disabled: Iterable[str]
) -> list[Transform]:
    """Return the transforms to run.

    Names that the caller takes from onnxruntime's optimizers and that are no transforms here
    disable nothing.
    """
    elsewhere = [*disabled, *(options.entry(config.DISABLED) or "").split(";")]
    off = [name for name in elsewhere if name in plugins.transforms]
    transforms = plugins.transforms.values()
    level = options.graph_optimization_level
    return select(transforms, level, [*options.disabled_transforms, *off])


def transform(
    model: ir.Model, transforms: Iterable[Transform], context: TransformContext
) -> list[TransformReport]:
    """Apply transforms to a model, and return a report for each.

    If a provider needs types and shapes, those that the model leaves open are inferred before, and
    those of values that transforms made after.
    """
    typed = any(provider.needs_types for provider in context.providers)
    if typed:
        _infer_open_types(model)
    reports = run_transforms(model, transforms, context)
    if typed:
        _infer_open_types(model)
    return reports


def _infer_open_types(model: ir.Model) -> None:
    made = (value for node in graphs.nodes(model.graph) for value in node.outputs)
    if any(value.type is None or value.shape is None for value in made):
        from tenonnx.graph.inference import infer_types

        infer_types(model)


def save_optimized(model: ir.Model, options: SessionOptions, formats: Mapping[str, Format]) -> None:
    """Write the model as transforms left it, if the options say where.

    Raises:
        NotSupported: No plug-in writes the requested format, or the format cannot represent the
            model.
        Fail: It cannot be written.
    """
    if not options.optimized_model_filepath:
        return
    from tenonnx.formats.convert import Layout, save_onnx

    interruption.enter("the optimized model was written")

    path = Path(options.optimized_model_filepath)
    wanted = options.entry(config.SAVED_FORMAT) or ("ORT" if path.suffix == ".ort" else "ONNX")
    data = options.entry(config.SAVED_DATA) or ""
    threshold = int(options.entry(config.SAVED_DATA_THRESHOLD) or "1024")
    layout = Layout(inline=not data, threshold=threshold, data_name=data)
    save: Callable[[ir.Model, Path], object] = functools.partial(
        save_onnx, layout=layout, progress=lambda *_: None
    )
    if wanted.upper() != "ONNX":
        known = formats.get(wanted.lower())
        if known is None or known.save is None:
            raise NotSupported(f"{path} is to be in the format {wanted}, which no plug-in writes")
        save = known.save
    try:
        save(model, path)
    except OSError as error:
        raise Fail(f"cannot write {path}: {error.strerror or error}") from error


def refuse_cpu(counts: Mapping[str, int], options: SessionOptions) -> None:
    """Refuse a placement on the CPU, if the options say that it is an error.

    Raises:
        Fail: Nodes are placed there.
    """
    count = counts.get("CPUExecutionProvider", 0)
    if options.entry(config.NO_CPU_FALLBACK) == "1" and count:
        raise Fail(
            f"{count} nodes are on CPUExecutionProvider, and {config.NO_CPU_FALLBACK} is set",
            hint="`tenonnx inspect` says why each of them is there",
        )


def take_overridable(model: Any) -> dict[str, Any]:
    """Return the values of inputs that are initializers too, by name.

    Before IR version 4 every initializer had to be an input as well; there it is no sign that
    callers may override it, and it stops being an input.
    """
    graph = model.graph
    both = [value for value in graph.inputs if value.is_initializer()]
    if model.ir_version < 4:
        for value in both:
            graph.inputs.remove(value)
        model.ir_version = 4  # which such a model is of now, should it be written
        return {}
    defaults = {}
    for value in both:
        tensor = value.const_value
        weight = weight_in(tensor)
        defaults[value.name] = weight.on(HOST) if weight else graphs.array_of(tensor)
    return defaults


def part_with_weights(model: ir.Model) -> ir.Model:
    """Return a model whose graphs let go of their weights when it goes: the same one.

    Nodes and values refer to each other: they stay until Python's collector comes by, which counts
    objects, not bytes.
    """
    values = [value for graph in graphs.graphs(model) for value in graph.initializers.values()]
    # Without code of Python's: an interrupt within a finalizer would be printed and lost.
    each = map(_setter(), values, itertools.repeat(None))
    model.graph.meta[RELEASE_KEY] = when_gone(model, deque[object](maxlen=0).extend, each)
    return model


def keep_weights(model: ir.Model) -> None:
    """Have a model's graphs keep their weights, as of one that somebody may hold parts of."""
    model.graph.meta.pop(RELEASE_KEY, None)


def _setter() -> Callable[[ir.Value, None], object]:
    """Return a function that sets a value's constant: C's, as ``when_gone`` wants, if it can."""
    owner: Any = ir.Value
    try:
        return owner._const_value.__set__  # type: ignore[no-any-return]  # it is a slot's
    except AttributeError:
        return lambda value, constant: setattr(value, "const_value", constant)


def weights_of(model: Any) -> Later:
    """Return the weights that a model refers to, each once."""
    values = (v for graph in graphs.graphs(model) for v in graph.initializers.values())
    found = dict.fromkeys(weight_in(value.const_value) for value in values)
    found.pop(None, None)
    return Later(tuple(found))
