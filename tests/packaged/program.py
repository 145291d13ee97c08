"""A program to pack: classifies digits, and prints as JSON what it ran on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import tenonnx
import tenonnx.as_onnxruntime

DIGITS = Path(getattr(sys, "_MEIPASS", sys.argv[-1]), "digits")
"""The folder of the model: in the frozen program, or in a folder that the command line names."""


def main() -> None:
    """Run the model twice: the second session opens the plan of the first."""
    sessions = [tenonnx.InferenceSession(DIGITS / "digits.onnx") for _ in range(2)]
    with np.load(DIGITS / "heldout.npz") as heldout:
        images, labels = heldout["images"][:, None].astype(np.float32) / 16, heldout["labels"]
    answers = [session.run(None, {"image": images})[0] for session in sessions]
    plugins = tenonnx.default_plugins()
    print(
        json.dumps(
            {
                "right": float((answers[0].argmax(axis=1) == labels).mean()),
                "same": bool((answers[0] == answers[1]).all()),
                "kernels": sorted({kernel.state for kernel in sessions[0].kernels.values()}),
                "plugins": sorted(record.name for record in plugins.records if not record.error),
                "providers": tenonnx.get_available_providers(),
                "numba": "numba" in sys.modules,
                "frozen": getattr(sys, "frozen", False),
                "file": str(tenonnx.__file__),
                "onnxruntime": tenonnx.as_onnxruntime.install().InferenceSession.__module__,
            }
        )
    )


if __name__ == "__main__":
    main()
