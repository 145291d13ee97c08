"""All of ``onnx.backend.test`` on one provider: how much of it passes, and where it runs."""

from __future__ import annotations

import os
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx.backend.test import BackendTest

from tenonnx.backend import TenonnxBackend, TenonnxBackendRep
from tenonnx.errors import TenonnxError
from tenonnx.session import InferenceSession
from tenonnx.testing.compare import assert_similar
from tenonnx.testing.subject import Subject


@dataclass
class Score:
    """How a provider does in the suite, with the CPU's behind it.

    Attributes:
        passed: Cases that pass, by how many of their nodes were the provider's: "all", "some"
            or "none".
        failed: The others, with what went wrong.
    """

    passed: dict[str, int] = field(default_factory=lambda: {"all": 0, "some": 0, "none": 0})
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """How many there are."""
        return sum(self.passed.values()) + len(self.failed)

    def __str__(self) -> str:
        """Returns one line."""
        return (
            f"{sum(self.passed.values())} of {self.cases} pass: {self.passed['all']} on the "
            f"provider alone, {self.passed['some']} partly, {self.passed['none']} on others"
        )


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
        """Compares everything there is to see."""
        assert_similar(list(ref_outputs), list(outputs), rtol, atol, model_dir or "outputs")


class Recording(TenonnxBackend):
    """Opens models by the caller's function and tells it of the session."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any
    ) -> TenonnxBackendRep:
        """Opens a model."""
        del device
        return TenonnxBackendRep(kwargs["open_model"](model))


def suite_cases() -> dict[str, Callable[..., None]]:
    """Returns every case by name; each takes a test case and ``open_model``."""
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
    """Runs the cases whose names begin with ``pattern``; yields each name and the score so far.

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


def _run(name: str, case: Callable[..., None], subject: Subject, score: Score) -> None:
    opened: list[InferenceSession] = []

    def open_model(model: onnx.ModelProto) -> InferenceSession:
        opened.append(subject.open(model))
        return opened[0]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            case(unittest.TestCase(), open_model=open_model)
    except Exception as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        score.failed[name] = f"{type(error).__name__}: {lines[0] if lines else ''}"
        return
    counts = opened[0].placement.counts()
    own, others = counts.pop(subject.name, 0), sum(counts.values()) - counts.get("runtime", 0)
    score.passed["none" if not own else "some" if others else "all"] += 1
