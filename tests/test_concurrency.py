"""Sessions that threads open and run at once, of several models."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import tenonnx

EXPORTS = Path(__file__).parent / "exports"
NAMES = ("bert", "clip", "convnext", "distilbert", "gemma2")
THREADS = 8


def test_threads_open_and_run_models_at_once() -> None:
    """Each thread begins with another model; answers are those that the frameworks gave."""
    arrays = {name: dict(np.load(EXPORTS / f"{name}.npz")) for name in NAMES}

    def work(number: int) -> None:
        for turn in range(2 * len(NAMES)):
            name = NAMES[(number + turn) % len(NAMES)]
            session = tenonnx.InferenceSession(EXPORTS / f"{name}.onnx")
            feeds = {arg.name: arrays[name][f"in:{arg.name}"] for arg in session.get_inputs()}
            for position, output in enumerate(session.run(None, feeds)):
                expected = arrays[name][f"out:out_{position}"]
                np.testing.assert_allclose(output, expected, rtol=2e-4, atol=2e-5)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
