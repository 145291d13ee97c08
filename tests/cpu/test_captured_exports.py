"""Exported models: all that can be captured is, in the first run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from captured_models import only_replays
from running import require_kernels

import tenonnx

require_kernels()

MODELS = sorted((Path(__file__).parents[1] / "exports").glob("*.onnx"))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_the_second_run_is_a_replay(path: Path) -> None:
    """Steps that one run parts from those around them are captured by later runs, at a cost."""
    arrays = np.load(path.with_suffix(".npz"))
    session = tenonnx.InferenceSession(path.read_bytes(), providers=["cpu"])
    feeds = {arg.name: arrays[f"in:{arg.name}"] for arg in session.get_inputs()}
    wanted = session.run(None, feeds)
    with only_replays():
        found = session.run(None, feeds)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
