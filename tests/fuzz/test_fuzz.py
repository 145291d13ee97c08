"""The short part of the campaign: the same cases every time, in processes of their own."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from google.protobuf.message import DecodeError

from fuzz.corpus import Corpus
from fuzz.drawing import draw_case
from fuzz.structure import MUTATIONS, Mutation

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of processes are Linux's"
)

TESTS = Path(__file__).parent.parent
QUICK = ["operators", "contrib", "graphs", "files", "ort"]
CASES = 150


def campaign(*arguments: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "fuzz", "--no-warm", *arguments],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
    )
    assert not run.returncode, run.stdout + run.stderr


def test_a_number_is_a_case() -> None:
    corpus = Corpus(QUICK)
    for number in range(20):
        first, second = (draw_case(number, corpus) for _ in range(2))
        assert (first.data, first.files, first.notes) == (second.data, second.files, second.notes)


@pytest.mark.parametrize("mutation", list(MUTATIONS))
def test_models_that_nest_too_deeply_to_be_read_are_mutated(mutation: Mutation) -> None:
    node = onnx.NodeProto(op_type="Identity")
    for _ in range(40):
        outer = onnx.NodeProto(op_type="If", output=["y"])
        outer.attribute.add(name="then_branch").g.node.add().CopyFrom(node)
        node = outer
    for number in range(30):
        model = onnx.ModelProto()
        model.graph.node.add().CopyFrom(node)
        with contextlib.suppress(DecodeError):
            mutation(model, random.Random(number), Corpus(["graphs"]))
        assert not onnx.TensorProto().name  # a SystemError, if protobuf kept an error to itself


def test_cases_on_numpy(tmp_path: Path) -> None:
    groups = ["--groups", *QUICK]
    campaign("--jit", "0", "--cases", str(CASES), "--out", str(tmp_path / "found"), *groups)


@pytest.mark.parametrize("jit", ["0", "1"])
def test_what_was_found_before(jit: str) -> None:
    # Kernels that are not there yet are compiled.
    campaign("--jit", jit, "--kept", "--seconds", "100")
