"""Graph transforms: their class, and running a session's transforms in order."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tenonnx.by_name import cacheable
from tenonnx.errors import (
    InvalidArgument,
    InvalidGraph,
    PluginError,
    TenonnxError,
    did_you_mean,
)
from tenonnx.graph.values import described, value_info, value_infos
from tenonnx.options import GraphOptimizationLevel, SessionOptions
from tenonnx.planning.reference import run_step, step_on_host
from tenonnx.process import interruption
from tenonnx.process.interruption import Stopped
from tenonnx.process.memory import at_most
from tenonnx.provider import Provider

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

    from tenonnx.weights.registry import WeightRegistry


Level = Literal["required", "basic", "extended", "layout", "all"]

_RANK = {
    "required": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclass(frozen=True)
class Transform:
    """A rewrite of a model, in place.

    Attributes:
        name: Its name in reports, by which users disable it.
        apply: Takes the model and a :class:`TransformContext`; returns whether it changed
            anything. An ``onnx_ir`` pass fits through a lambda:
            ``lambda model, _: SomePass()(model).modified``. ``Transform.later`` imports what
            few models need.
        level: The lowest optimization level that includes it. One that is ``required`` belongs
            to no level: it rewrites what could not run otherwise, before all others.
        order: Transforms run by this number, then by name.
        domain: The domain of the operators that it writes, if they are not ONNX's own.
        needs: Operators, in whatever domain, all of which a model must have for it to be applied;
            of several in a tuple, at least one. Saves a walk through models that have not.
    """

    name: str
    apply: Callable[[ir.Model, TransformContext], bool]
    level: Level = "extended"
    order: int = 100
    domain: str = ""
    needs: tuple[str | tuple[str, ...], ...] = ()

    @staticmethod
    def later(place: str) -> Callable[[ir.Model, TransformContext], bool]:
        """Return the function at ``module:name``, imported when it is first applied."""
        module, name = place.split(":")

        def apply(model: ir.Model, context: TransformContext) -> bool:
            return bool(getattr(importlib.import_module(module), name)(model, context))

        apply.__module__ = module
        return apply

    def __post_init__(self) -> None:
        if self.level not in _RANK:
            raise PluginError(
                f"transform {self.name!r} has the level {self.level!r}"
                f"{did_you_mean(str(self.level), _RANK)}"
            )
        if isinstance(self.needs, str):  # whose letters would be operators
            raise PluginError(
                f"transform {self.name!r} needs {self.needs!r}; expected a tuple of operators"
            )


@dataclass(frozen=True)
class TransformContext:
    """The services of the runtime for a transform.

    Attributes:
        weights: Where new constants go.
        hosts: Usable providers on the host, for evaluating nodes.
        providers: The session's, in order of preference.
        options: The session's.
        notes: Lines for the current transform's report.
    """

    weights: WeightRegistry
    hosts: Sequence[Provider]
    providers: Sequence[Provider]
    options: SessionOptions = field(default_factory=SessionOptions)
    notes: list[str] = field(default_factory=list)

    def option(self, key: str) -> str | None:
        """Return a session configuration entry, or ``None``."""
        return self.options.entry(key)

    def supports(self, node: ir.Node, *old: ir.Node) -> bool:
        """Return whether the nearest provider runs a node, before a transform makes it.

        Args:
            node: The new node.
            old: Those in whose place it is to come: the nearest provider is the first of the
                session's that runs one of them. Without any, it is the preferred one.
        """
        nearest = min((self._place(each) for each in old), default=0)
        return self._place(node) <= min(nearest, len(self.providers) - 1)

    def refusal(self, new: Sequence[ir.Node], old: Sequence[ir.Node]) -> str | None:
        """Return why nodes cannot take the place of others; ``None`` if they can.

        Every new node must have a provider, and the last one one that is as near as that of the
        nearest of the old: no rewrite moves work off a device.

        Args:
            new: Nodes that a transform would make, the one with the result last.
            old: Nodes that it would remove.
        """
        for node in new:
            if self._place(node) == len(self.providers):
                return f"no provider runs {node.op_type}"
        nearest = min(self._place(each) for each in old)
        if not self.supports(new[-1], *old):
            return f"{self.providers[nearest].name} does not run {new[-1].op_type}"
        return None

    def _place(self, node: ir.Node) -> int:
        """Return which of the session's providers would run a node."""
        for position, provider in enumerate(self.providers):
            if provider.supports(node) is True:
                return position
        return len(self.providers)

    def evaluate(
        self,
        node: ir.Node,
        inputs: Sequence[np.ndarray[Any, Any] | None],
        most: float = math.inf,
    ) -> tuple[Any, ...] | None:
        """Compute a node's outputs from its inputs, on the host.

        Args:
            node: The node.
            inputs: Its inputs.
            most: Bytes beyond which no kernel that knows the size of its result begins with it;
                some MiB are never too many.

        Returns:
            One value per output, or ``None`` if no host provider supports the node.
        """
        interruption.check()
        with described():
            if (step := step_on_host(node, self.hosts)) is None:
                return None
            given = dict(zip(map(value_info, node.inputs), inputs, strict=True))
            outputs = value_infos(node.outputs)
        known = {value: array for value, array in given.items() if value is not None}
        with at_most(most):
            by_value = run_step(step, known)
        return tuple(by_value.get(output) for output in outputs)


@cacheable
@dataclass(frozen=True)
class TransformReport:
    """The report of one transform.

    Attributes:
        name: The transform's.
        modified: Whether it changed the model.
        nodes_before: Nodes of the main graph before it.
        nodes_after: Nodes of the main graph after it.
        seconds: How long it took.
        notes: Its remarks, such as skipped nodes and the reasons.
    """

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    seconds: float
    notes: tuple[str, ...] = ()


def select(
    transforms: Iterable[Transform], level: GraphOptimizationLevel, disabled: Iterable[str]
) -> list[Transform]:
    """Return the transforms to run, in order.

    Raises:
        InvalidArgument: A disabled name is not a transform.
    """
    known = {transform.name: transform for transform in transforms}
    off = set(disabled)
    for name in sorted(off - known.keys()):
        raise InvalidArgument(f"no transform {name!r} to disable{did_you_mean(name, known)}")
    chosen = [t for t in known.values() if t.name not in off and _RANK[t.level] <= level]
    # By name at last: the order in which plug-ins load must not change a model.
    return sorted(chosen, key=lambda t: (t.level != "required", t.order, t.name))


def run_transforms(
    model: ir.Model, transforms: Iterable[Transform], context: TransformContext
) -> list[TransformReport]:
    """Apply transforms to a model in order, and check what they leave.

    Returns:
        A report per transform; required ones that found nothing to do have none.

    Raises:
        PluginError: A transform failed, or left a graph that cannot run; the message names it.
        InvalidGraph: One failed, and a node violates its operator's schema; or an operand has not
            the shape that its operator declares.
        TenonnxError: A required transform's own, if it refuses the model.
    """
    from tenonnx import graph as graphs
    from tenonnx.graph.shape_checks import check_model

    check_model(model, context.providers)
    reports: list[TransformReport] = []
    kinds = graphs.operators(model)
    for transform in transforms:
        interruption.enter(f"the transform '{transform.name}' was at work")
        before, start, modified = model.graph.num_nodes(), time.perf_counter(), False
        if (why := _declined(transform, context)) is not None:
            context.notes.append(why)
        elif _has(kinds, transform.needs):
            nodes = _apply(transform, model, context, reports)
            # Walk the graph again only after a change: most transforms find nothing.
            if modified := nodes is not None:
                kinds = {node.op_type for node in nodes}
        seconds, after = time.perf_counter() - start, model.graph.num_nodes()
        if modified or transform.level != "required":
            notes = tuple(context.notes)
            reports.append(TransformReport(transform.name, modified, before, after, seconds, notes))
        context.notes.clear()
    return reports


def _has(kinds: set[str], needs: Iterable[str | tuple[str, ...]]) -> bool:
    return all(not kinds.isdisjoint((n,) if isinstance(n, str) else n) for n in needs)


def _apply(
    transform: Transform,
    model: ir.Model,
    context: TransformContext,
    reports: Iterable[TransformReport],
) -> list[ir.Node] | None:
    """Return the nodes that a transform leaves; ``None`` if it changed nothing."""
    from tenonnx import graph as graphs
    from tenonnx.graph.validation import misfit

    try:
        return graphs.check_and_sort(model) if transform.apply(model, context) else None
    except Stopped:
        raise
    except Exception as error:
        if transform.level == "required" and isinstance(error, TenonnxError):
            raise
        # Transforms trust nodes to be as their schemas say; this is checked where one has failed.
        if wrong := next(filter(None, map(misfit, graphs.nodes(model.graph))), None):
            raise InvalidGraph(wrong) from error
        done = ", ".join(r.name for r in reports if r.modified) or "none"
        raise PluginError(
            f"transform {transform.name!r} failed (the model was changed before by: {done}): "
            f"{error.args[0] if isinstance(error, TenonnxError) else repr(error)}",
            hint=f"run without it: SessionOptions(disabled_transforms=[{transform.name!r}])",
        ) from error


def _declined(transform: Transform, context: TransformContext) -> str | None:
    """Return the note of a transform that the preferred provider has no use for."""
    if transform.level == "required" or not context.providers:
        return None
    provider = context.providers[0]
    why = provider.declines(transform.name)
    if provider.domains is not None and transform.domain not in provider.domains:
        why = f"it has no operators of {transform.domain}"
    return None if why is None else f"left to {provider.name}: {why}"
