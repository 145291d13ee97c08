"""``ProviderTests``: the contract of execution providers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import hypothesis
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from tenonnx import graph as graphs
from tenonnx.cli.memory import growth, private_bytes
from tenonnx.errors import InvalidArgument, NotSupported, RuntimeException, TenonnxError
from tenonnx.provider import Provider
from tenonnx.testing import models
from tenonnx.testing.chains import CHAINS, WIDTH
from tenonnx.testing.laws import LAWS, RTOL
from tenonnx.testing.metadata import check_distribution
from tenonnx.testing.nodes import CORRECTED, node_cases
from tenonnx.testing.subject import Fallback, Subject, subject_of
from tenonnx.weights.registry import WeightRegistry
from tenonnx.weights.sidefile import SideFiles

X = np.array([-2.0, 0.0, 3.0], np.float32)


class ProviderTests:
    """The contract of a provider: subclass it and name the provider.

    ::

        class TestChip(ProviderTests):
            provider = "chip"

    Attributes:
        provider: The name of a provider that an installed plug-in brings, or a class.
        options: Its options in sessions.
        cases: Pattern of the names of ONNX's node cases to run of those with a claimed operator.
        gaps: Cases that are known to fail, with the reason; one that passes fails.
        frameworks: Modules that importing the plug-in, and listing providers, must not import.
        copies: Why weights take memory of their own, once; ``""`` if they do not.
        examples: How many shapes each operator is tried with.
        rtol: Relative tolerance for float32 by which laws hold.
    """

    provider: ClassVar[str | type[Provider]]
    options: ClassVar[Mapping[str, Any]] = {}
    cases: ClassVar[str] = "*"
    gaps: ClassVar[Mapping[str, str]] = {}
    frameworks: ClassVar[tuple[str, ...]] = ()
    copies: ClassVar[str] = ""
    examples: ClassVar[int] = 20
    rtol: ClassVar[float] = RTOL["float"]

    @pytest.fixture
    def subject(self) -> Subject:
        """The provider; tests are skipped with what its ``check`` says if it cannot be used."""
        found = subject_of(self.provider, tuple(self.options.items()))
        if found.problem is not None:
            pytest.skip(f"{found.name}: {found.problem}")
        return found

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give ``test_node_case`` the cases of the operators that the provider claims."""
        if "node_case" in metafunc.fixturenames:
            subject = self._subject()
            found = {} if subject.problem else node_cases(self.cases)
            unknown = self.gaps.keys() - found.keys()
            assert subject.problem or not unknown, f"gaps for cases there are not: {unknown}"
            claimed = [case for case in found.values() if subject.claims(case.model)]
            parameters = [pytest.param(c, id=c.name, marks=self._marks(c.name)) for c in claimed]
            metafunc.parametrize("node_case", parameters)

    def _subject(self) -> Subject:
        try:
            return subject_of(self.provider, tuple(self.options.items()))
        except InvalidArgument as error:
            hint = "install the package that brings the provider: pip install -e ."
            pytest.fail(f"{error}\nHint: {hint}", pytrace=False)

    def _marks(self, name: str) -> list[pytest.MarkDecorator]:
        if (gap := self.gaps.get(name)) is not None:
            return [pytest.mark.xfail(strict=True, reason=gap)]
        corrected = CORRECTED.get(name)
        return [] if corrected is None else [pytest.mark.xfail(strict=False, reason=corrected)]

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_node_case(self, subject: Subject, node_case: Any) -> None:
        """Every case of ONNX's suite for an operator that it claims passes, on the provider."""
        try:
            session = node_case.check(subject.open)
        except AssertionError as error:
            hint = "a case that cannot pass goes into `gaps`, with the reason"
            raise AssertionError(f"{error}\n{hint}") from error
        assert subject.name in session.placement.counts()

    @pytest.mark.parametrize("operator", LAWS)
    def test_shapes_and_dtypes(self, subject: Subject, operator: str) -> None:
        """It computes every shape and dtype that it claims."""
        law = LAWS[operator]
        claimed = [d for d in law.dtypes if subject.claims(_typed(law.body, d))]
        if not claimed:
            pytest.skip(f"{subject.name} does not claim {operator}")

        held = 0

        @hypothesis.settings(max_examples=self.examples, deadline=None, database=None)
        @hypothesis.given(st.data(), st.sampled_from(claimed))
        def holds(data: st.DataObject, dtype: str) -> None:
            nonlocal held
            model, arrays = law.draw(data, dtype)
            if not subject.claims(model):
                return  # it may decline any shape; that is no reason to fail
            held += 1
            (actual,) = subject.open(model).run(None, dict(zip("ab", arrays, strict=False)))
            expected = law.expected(arrays)
            shapes = " and ".join(str(list(array.shape)) for array in arrays)
            case = f"{operator} of {dtype} {shapes}"
            mend = f"{case}: compute it so, or have `supports` refuse it"
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), mend
            rtol = self.rtol if dtype == "float" else RTOL[dtype]
            hint = f"{case}; a device that computes less exactly sets `rtol`"
            np.testing.assert_allclose(actual, expected, rtol=rtol, atol=rtol, err_msg=hint)

        holds()
        if not held:
            pytest.skip(f"{subject.name} claims {operator} of none of {self.examples} shapes")

    @pytest.mark.parametrize("chain", CHAINS)
    def test_groups_of_nodes(self, subject: Subject, chain: str) -> None:
        """Nodes that it takes together give what they give apart, with any number of rows."""
        model = CHAINS[chain]()
        session = subject.open(model)
        if subject.name not in session.placement.counts():
            pytest.skip(f"{subject.name} runs no node of {chain}")
        reference = ReferenceEvaluator(model)
        # Larger, smaller and one again: this shows buffers and shapes that stay from earlier runs.
        for rows in (1, 5, 2, 5):
            feeds = {"x": np.random.default_rng(rows).uniform(-1, 1, (rows, WIDTH))}
            feeds["x"] = feeds["x"].astype(np.float32)
            for found, expected in zip(
                session.run(None, feeds), reference.run(None, feeds), strict=True
            ):
                hint = f"{chain} with {rows} rows; a device that computes less exactly sets `rtol`"
                rtol = 10 * self.rtol  # several nodes' errors add up
                np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol, err_msg=hint)

    def test_name_and_options(self, subject: Subject) -> None:
        """Its name and aliases find it, defaults build it, an unknown option is refused."""
        for name in (subject.name, *subject.cls.aliases, subject.name.upper()):
            assert subject.plugins.provider(name) is subject.cls
        if subject.cls.Options is not None:
            assert dataclasses.is_dataclass(subject.cls.Options)
        bad = Subject(self.provider, {**self.options, "no_such_option": 1})
        with pytest.raises(InvalidArgument, match="has no option 'no_such_option'"):
            bad.open(models.mlp())

    def test_check_says_what_to_do(self) -> None:
        """``check`` returns ``None`` or a sentence, and never raises."""
        subject = Subject(self.provider, self.options)
        said = subject.cls.check()
        assert said is None or (isinstance(said, str) and said.strip()), repr(said)

    def test_refusals_are_in_words(self, subject: Subject) -> None:
        """An operator that it does not have is refused with a reason, not an exception."""
        model = ir.from_proto(models.foreign())
        graphs.resolve_versions(model)
        verdict = subject.instance.supports(model.graph[1])
        assert isinstance(verdict, str)
        assert verdict.strip()
        alone = models.build(f"y = {models.FOREIGN}.Nothing(x)", domains={models.FOREIGN: 1})
        with pytest.raises(NotSupported, match="Nothing"):
            subject.open(alone, alone=True)

    def test_what_it_declines_runs_on_the_next_provider(self, subject: Subject) -> None:
        """The next provider in the list takes the node, and the placement says why."""
        session = subject.open(models.foreign(), after=Fallback())
        (elsewhere,) = (a for a in session.placement.elsewhere() if a.node.op_type == "Nothing")
        assert elsewhere.provider == Fallback.name
        assert elsewhere.reasons[subject.name].strip()
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], np.maximum(-X, 0))

    @pytest.mark.parametrize("make", [models.branch, models.loop], ids=["If", "Loop"])
    def test_inside_control_flow(self, subject: Subject, make: Any) -> None:
        """Bodies run on it and read the graph around them."""
        session = subject.open(make())
        for chosen, expected in ((1, np.maximum(X, 0)), (0, -X)):
            if make is models.branch:
                feeds = {"flag": np.array(bool(chosen)), "x": X}
            else:
                feeds, expected = _times(chosen)
            np.testing.assert_array_equal(session.run(None, feeds)[0], expected)

    def test_threads(self, subject: Subject) -> None:
        """One session serves many threads at once, each with its own inputs."""
        session = subject.open(models.mlp())
        random = np.random.default_rng(1)
        given = [random.standard_normal((1 + i % 4, 16)).astype(np.float32) for i in range(24)]
        alone = [session.run(None, {"x": x})[0] for x in given]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda x: session.run(None, {"x": x})[0], given))
        for one, other in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, other)

    def test_outputs_belong_to_the_caller(self, subject: Subject) -> None:
        """Writing into an output changes neither the input nor the next run."""
        session = subject.open(models.build("y = Relu(x)"))
        given = np.array([1.0, 2.0], np.float32)
        first = session.run(None, {"x": given})[0]
        first[...] = 7
        assert given.tolist() == [1, 2]
        assert session.run(None, {"x": given})[0].tolist() == [1, 2]

    def test_weights_are_left_alone_and_held_once(self, subject: Subject, tmp_path: Path) -> None:
        """Sessions share weights: no bytes change, and none are copied, or once if declared."""
        # 32 MiB: beside them the memory of code and of allocators does not count.
        model, size = models.mlp(2048, 2048, 2048), 1 << 25
        path = tmp_path / "model.onnx"
        onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=0)
        before = (tmp_path / "weights").read_bytes()
        x = np.ones((2, 2048), np.float32)
        expected = subject.open(path).run(None, {"x": x})[0]
        registry = WeightRegistry(SideFiles(tmp_path / "side", 1 << 30))
        held = private_bytes()
        sessions = _opened_and_run(subject, path, registry, x, times=3)
        added = growth(held, private_bytes())
        allowed = 1.5 if self.copies else 0.5
        hint = "; if it must have them in memory of its own, `copies` says why"
        assert added is None or added < allowed * size, (
            f"{added} bytes for {size} of weights{'' if self.copies else hint}"
        )
        np.testing.assert_array_equal(sessions[2].run(None, {"x": x})[0], expected)
        assert registry.report().device <= len(before)
        assert (tmp_path / "weights").read_bytes() == before

    def test_a_failing_node_is_named(self, subject: Subject) -> None:
        """A kernel that fails raises an error of tenonnx's that names the node."""
        model = models.build("[culprit] y = Add(a, b)", "float[n] a, float[m] b", "float[k] y")
        session = subject.open(model)
        feeds = {"a": np.ones(2, np.float32), "b": np.ones(3, np.float32)}
        with pytest.raises(TenonnxError) as raised:
            session.run(None, feeds)
        assert isinstance(raised.value, RuntimeException)
        assert "culprit" in str(raised.value)

    def test_distribution(self) -> None:
        """An installed plug-in has metadata, and importing it imports no framework."""
        if not isinstance(self.provider, str):
            pytest.skip("the provider is given as a class, not as an installed plug-in's")
        subject = subject_of(self.provider, tuple(self.options.items()))
        owner = subject.plugins.owner("provider", subject.name)
        check_distribution(owner, self.frameworks)


def _typed(body: str, dtype: str) -> onnx.ModelProto:
    inputs = f"{dtype}[2, 2] a, {dtype}[2, 2] b"
    return models.build(body, inputs, f"{dtype}[] y")


def _times(chosen: int) -> tuple[dict[str, Any], Any]:
    expected = np.maximum(-X, 0) if chosen else X
    return {"times": np.array(chosen, np.int64), "x": X}, expected


def _opened_and_run(
    subject: Subject, path: Path, registry: WeightRegistry, x: Any, times: int
) -> list[Any]:
    sessions = [subject.open(path, weights=registry) for _ in range(times)]
    for session in sessions:
        session.run(None, {"x": x})
    return sessions
