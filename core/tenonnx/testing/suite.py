"""All of ``onnx.backend.test`` on one provider: how much of it passes, and where it runs."""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
from onnx.backend.test import BackendTest

from tenonnx.backend import TenonnxBackend, TenonnxBackendRep
from tenonnx.errors import TenonnxError
from tenonnx.session import InferenceSession
from tenonnx.testing.compare import assert_similar
from tenonnx.testing.score import (
    SEVERAL,
    Outcome,
    Score,
    by_numpy,
    has_node,
    missing_function,
    missing_package,
    operator_of,
    why_declined,
)
from tenonnx.testing.subject import Subject


class Careful(BackendTest):
    """onnx's compares the items of a sequence row by row and fails on one without rows."""

    @classmethod
    def assert_similar_outputs(
        cls,
        ref_outputs: Sequence[Any],
        outputs: Sequence[Any],
        rtol: float,
        atol: float,
        model_dir: str | None = None,
    ) -> None:
        """Compare everything there is to see."""
        assert_similar(list(ref_outputs), list(outputs), rtol, atol, model_dir or "outputs")


class Recording(TenonnxBackend):
    """An opener of models by the caller's function, which is given each session."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> TenonnxBackendRep:
        """Open a model."""
        del device
        return TenonnxBackendRep(kwargs["open_model"](model))


def suite_cases() -> dict[str, Callable[..., None]]:
    """Return every case by name; each takes a test case and ``open_model``."""
    with warnings.catch_warnings():
        # The suite's own data generation overflows and divides by zero on purpose.
        warnings.simplefilter("ignore")
        suites = Careful(Recording, __name__).test_cases.values()
    return {
        name.removesuffix("_cpu"): function
        for suite in suites
        for name, function in vars(suite).items()
        if name.startswith("test_") and name.endswith("_cpu")
    }


def run_suite(
    provider: str, options: Mapping[str, Any], pattern: str = "test_"
) -> Iterator[tuple[str, Score]]:
    """Run the cases whose names begin with ``pattern``; yield each name and the score so far.

    Raises:
        TenonnxError: The provider is not there, or not usable.
    """
    subject, score = Subject(provider, options), Score()
    if subject.problem is not None:
        raise TenonnxError(f"{subject.name}: {subject.problem}")
    with tempfile.TemporaryDirectory() as folder:
        # The suite writes the data that it generates for its real models there.
        os.environ.setdefault("ONNX_MODELS", folder)
        for name, case in suite_cases().items():
            if name.startswith(pattern):
                _run(name, case, subject, score)
                yield name, score


class _Opened:
    """The models of a case; the last one and its session stay."""

    def __init__(self, subject: Subject, *, alone: bool = False) -> None:
        self.subject, self.alone = subject, alone
        self.operator = SEVERAL
        self.session: InferenceSession | None = None

    def __call__(self, model: onnx.ModelProto) -> InferenceSession:
        """Open one."""
        self.operator = operator_of(model)
        self.session = self.subject.open(model, alone=self.alone)
        return self.session


def _run(name: str, case: Callable[..., None], subject: Subject, score: Score) -> None:
    opened = _Opened(subject)
    try:
        _check(case, opened)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        if (package := missing_package(error)) is not None:
            score.skipped[name] = package
            score.count(Outcome.SKIPPED, opened.operator, package)
            return
        lacks = missing_function(error, getattr(subject.cls, "namespace", ""))
        outcome = Outcome.FAILED if lacks is None else Outcome.LACKS
        why = f"{type(error).__name__}: {lines[0] if lines else ''}"
        score.failed[name] = why if lacks is None else f"{outcome}: {lacks}"
        score.count(outcome, opened.operator, lacks or "")
        return
    assert opened.session is not None, "a case that passes has opened a model"
    counts = opened.session.placement.counts()
    own, others = counts.pop(subject.name, 0), sum(counts.values()) - counts.get("runtime", 0)
    score.passed["none" if not own else "some" if others else "all"] += 1
    helped = by_numpy(opened.session, subject.name)
    outcome = Outcome.HELPED if helped else _outcome(case, opened, bool(own), bool(others))
    declined = outcome in (Outcome.PARTLY, Outcome.ELSEWHERE)
    reason = why_declined(opened.session, subject.name) if declined else ""
    score.count(outcome, opened.operator, helped or reason)


def _check(case: Callable[..., None], open_model: _Opened) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        case(unittest.TestCase(), open_model=open_model)


def _outcome(case: Callable[..., None], opened: _Opened, own: bool, others: bool) -> Outcome:
    """Return where a case that passes ran, or could run."""
    assert opened.session is not None
    single = opened.operator != SEVERAL
    if own:
        whole = not single or has_node(opened.session, opened.operator)
        return Outcome.PARTLY if others else Outcome.SUPPORTED if whole else Outcome.BODY
    try:
        if single:
            _check(case, _Opened(opened.subject, alone=True))
            return Outcome.BODY
    except Exception:  # the provider has no way to run it, whatever it says
        return Outcome.ELSEWHERE
    return Outcome.ELSEWHERE
