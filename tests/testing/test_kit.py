"""The kit's contracts, kept by the built-in plug-ins."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import pytest

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


class TestOrtFormat(FormatTests):
    format = "ort"
