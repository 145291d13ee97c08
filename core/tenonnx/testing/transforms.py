"""``TransformTests``: the contract of graph transforms."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, ClassVar, Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tenonnx import session_builder
from tenonnx.options import GraphOptimizationLevel, SessionOptions
from tenonnx.plugins.choosing import host_providers
from tenonnx.plugins.manager import PluginSet, default_plugins
from tenonnx.provider import Provider, Segment, Step
from tenonnx.session import InferenceSession
from tenonnx.testing.compare import assert_similar
from tenonnx.testing.models import branch, loop, mlp
from tenonnx.testing.nodes import node_cases
from tenonnx.testing.one import plugins_and
from tenonnx.transforms import Transform, TransformContext, run_transforms
from tenonnx.weights.registry import WeightRegistry

# The sizes of symbolic dimensions in runs.
SIZE = 4


class TransformTests:
    """The contract of a graph transform: subclass it, and name the transform and a model for it.

    ::

        class TestDropIdentities(TransformTests):
            transform = "drop-identities"

            def rewritten(self):
                return [models.build("h = Identity(x) y = Neg(h)")]

    Attributes:
        transform: The name of one that an installed plug-in brings, or the object.
        cases: Pattern of the names of ONNX's node cases that it is tried on.
        after: Names of transforms that have to run before it.
        rtol: Relative tolerance for what it makes of a model.
        atol: Absolute tolerance.
    """

    transform: ClassVar[str | Transform]
    cases: ClassVar[str] = "*"
    after: ClassVar[tuple[str, ...]] = ()
    rtol: ClassVar[float] = 1e-5
    atol: ClassVar[float] = 1e-6

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        """Return models that it must rewrite."""
        return ()

    def untouched(self) -> Sequence[onnx.ModelProto]:
        """Return models that it must leave as they are."""
        return ()

    @pytest.fixture
    def plugins(self) -> PluginSet:
        """The plug-ins, the transform's among them."""
        if isinstance(self.transform, str):
            return default_plugins()
        return plugins_and("register_transforms", self.transform)

    def test_it_is_registered(self, plugins: PluginSet) -> None:
        """Some plug-in brings it, and sessions can do without it."""
        name = self._transform(plugins).name
        assert plugins.owner("transform", name)
        options = SessionOptions(plugins=plugins, disabled_transforms=[name])
        session = InferenceSession(mlp(), options)
        assert name not in [report.name for report in session.transforms]

    def test_it_rewrites_what_it_is_for(self, plugins: PluginSet) -> None:
        """It reports the change, keeps inputs and outputs, and the results are the same."""
        for proto in self.rewritten():
            model, modified, _ = self._applied(proto, plugins)
            assert modified, f"{self.transform!r} left {onnx.printer.to_text(proto)}"
            before = ir.from_proto(proto).graph
            assert [v.name for v in model.graph.inputs] == [v.name for v in before.inputs]
            assert [v.name for v in model.graph.outputs] == [v.name for v in before.outputs]
            self._check_results(proto, model, plugins)

    def test_a_second_time_there_is_nothing_to_do(self, plugins: PluginSet) -> None:
        """It finishes its work, so that it can run again."""
        for proto in self.rewritten():
            _, _, again = self._applied(proto, plugins)
            assert not again, f"a second run changed {onnx.printer.to_text(proto)}"

    def test_nothing_moves_off_a_device(self, plugins: PluginSet) -> None:
        """A device that runs just the operators of a model still runs all that it ran of it.

        A transform that makes nodes asks ``context.supports(new, *old)`` or ``context.refusal``.
        """
        for proto in self.rewritten():
            before = ir.from_proto(proto)
            ran = {(node.domain, node.op_type) for node in _nodes(before)}
            model, _, _ = self._applied(proto, plugins, [_Near(ran)])
            moved = {node.op_type for node in _nodes(model) if node.op_identifier()[:2] not in ran}
            assert not moved, (
                f"{self.transform!r} put {', '.join(sorted(moved))} in the place of what a device "
                "runs; ask context.supports(new, *old) before making a node"
            )

    def test_it_leaves_the_rest_alone(self, plugins: PluginSet) -> None:
        """A transform that reports no change made none."""
        for proto in self.untouched():
            _, modified, _ = self._applied(proto, plugins)
            assert not modified, f"it rewrote {onnx.printer.to_text(proto)}"

    @pytest.mark.parametrize("proto", [mlp(), branch(), loop()], ids=["mlp", "If", "Loop"])
    def test_ordinary_models_stay_right(self, plugins: PluginSet, proto: Any) -> None:
        """Weights, branches and loops survive it."""
        model, _, _ = self._applied(proto, plugins)
        self._check_results(proto, model, plugins)

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_node_cases_stay_right(self, plugins: PluginSet) -> None:
        """Every case of ONNX's suite that it rewrites still passes."""
        options = SessionOptions(
            graph_optimization_level=GraphOptimizationLevel.ORT_DISABLE_ALL, plugins=plugins
        )
        for case in node_cases(self.cases).values():
            model, modified, _ = self._applied(case.model, plugins)
            if modified:
                try:
                    case.check(lambda _, model=model: InferenceSession(model, options))  # type: ignore[misc]
                except AssertionError as error:
                    raise AssertionError(f"{case.name}: {error}") from error

    def _transform(self, plugins: PluginSet) -> Transform:
        if isinstance(self.transform, str):
            return plugins.transforms[self.transform]
        return self.transform

    def _applied(
        self, proto: onnx.ModelProto, plugins: PluginSet, nearer: Sequence[Provider] = ()
    ) -> tuple[ir.Model, bool, bool]:
        """Return the model after it, and whether it changed something, and did so again."""
        registry, options = WeightRegistry(), SessionOptions(plugins=plugins)
        hosts = host_providers(plugins)
        context = TransformContext(registry, hosts, [*nearer, *hosts], options)
        model = session_builder.read_model(proto, registry, options, plugins)
        run_transforms(model, [plugins.transforms[name] for name in self.after], context)
        text = _text(model)
        transform = self._transform(plugins)
        modified = any(r.modified for r in run_transforms(model, [transform], context))
        assert modified or _text(model) == text, f"{transform.name} says it changed nothing"
        again = any(r.modified for r in run_transforms(model, [transform], context))
        return model, modified, again

    def _check_results(self, proto: onnx.ModelProto, model: ir.Model, plugins: PluginSet) -> None:
        level = GraphOptimizationLevel.ORT_DISABLE_ALL
        options = SessionOptions(graph_optimization_level=level, plugins=plugins)
        before, after = (InferenceSession(m, options) for m in (proto, model))
        feeds = _feeds(proto)
        assert_similar(before.run(None, feeds), after.run(None, feeds), self.rtol, self.atol)


class _Near(Provider):
    """A provider of some operators, before those on the host.

    Args:
        operators: Domains and names.
    """

    name = "NearExecutionProvider"

    def __init__(self, operators: Set[tuple[str, str]]) -> None:
        super().__init__()
        self._operators = operators

    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Return whether it is one of the operators."""
        return node.op_identifier()[:2] in self._operators or "it is another operator"

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Fail: nothing is run here."""
        raise NotImplementedError(segment)


def _nodes(model: ir.Model) -> list[ir.Node]:
    return [node for graph in model.graphs() for node in graph]


def _text(model: ir.Model) -> str:
    """Return all of a model that a reader sees but its weights' bytes."""
    return str(model.graph)


def _feeds(proto: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    held = {tensor.name for tensor in proto.graph.initializer}
    feeds = {}
    for given in proto.graph.input:
        if given.name in held:
            continue
        tensor = given.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else SIZE for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[given.name] = random.integers(-1 if dtype.kind in "fi" else 0, 2, shape).astype(dtype)
    return feeds
