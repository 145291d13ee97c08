"""The short part of the campaign: the same cases every time, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.corpus import Corpus
from fuzz.drawing import draw_case

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


def test_cases_on_numpy(tmp_path: Path) -> None:
    groups = ["--groups", *QUICK]
    campaign("--jit", "0", "--cases", str(CASES), "--out", str(tmp_path / "found"), *groups)


@pytest.mark.parametrize("jit", ["0", "wait"])
def test_what_was_found_before(jit: str) -> None:
    # Kernels that are not there yet are compiled.
    campaign("--jit", jit, "--kept", "--seconds", "100")
