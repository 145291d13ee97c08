"""The kit's contracts, kept by the built-in plug-ins."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir
import pytest

import tenonnx
from tenonnx.testing import FormatTests, ProviderTests, TransformTests, models


class TestCPU(ProviderTests):
    provider = "cpu"
    cases = "test_[ars]e*"  # tests/conformance runs them all
    frameworks = ("cupy", "numba", "torch")


class OfNoPlugin(ProviderTests):
    provider = "nowhere"


def test_a_provider_that_is_not_installed() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"'nowhere'[^$]*pip install -e \."):
        OfNoPlugin()._subject()


class TestLiftConstants(TransformTests):
    transform = "lift-constants"
    cases = "test_constant*"

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        return [models.build("c = Constant <value_float: float = 2.0> () y = Add(x, c)")]


class TestFoldConstants(TransformTests):
    transform = "fold-constants"
    cases = "test_[rs]*"
    after = ("lift-constants",)

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        return [models.build("c = Constant <value_float: float = 2.0> () d = Neg(c) y = Add(x, d)")]

    def untouched(self) -> Sequence[onnx.ModelProto]:
        return [models.build("y = Neg(x)"), models.mlp()]


class TestRemoveUnused(TransformTests):
    transform = "remove-unused"
    cases = "test_[rs]*"

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        return [models.build("h = Exp(x) y = Neg(x)")]


def twice(model: ir.Model, context: tenonnx.TransformContext) -> bool:
    """Make a Sum of an Add of a value to itself, where that keeps its place."""
    modified = False
    for node in model.graph:
        if node.op_type != "Add" or node.inputs[0] is not node.inputs[1]:
            continue
        new = ir.node("Sum", list(node.inputs))
        if CAREFUL and (why := context.refusal([new], [node])):
            context.notes.append(why)
            continue
        ir.convenience.replace_nodes_and_values(
            model.graph, node, [node], [new], node.outputs, new.outputs
        )
        modified = True
    return modified


CAREFUL = True


class TestTwice(TransformTests):
    transform = tenonnx.Transform("sum-for-add", twice)
    cases = "test_add*"

    def rewritten(self) -> Sequence[onnx.ModelProto]:
        return [models.build("a = Neg(x) y = Add(a, a)")]

    def test_a_careless_one_is_found(
        self, plugins: tenonnx.PluginSet, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(f"{__name__}.CAREFUL", False)
        with pytest.raises(AssertionError, match=r"put Sum in the place.*context.supports"):
            self.test_nothing_moves_off_a_device(plugins)


class TestOrtFormat(FormatTests):
    format = "ort"
