"""Whole models that few have, most as torch exports transformers' from their configurations."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx

from bench.corners.edgenext import edgenext
from bench.cpu.table import Row
from bench.models import Built
from bench.smaller import half

EXPORT = Path(__file__).with_name("export.py")
NEEDS = ("torch", "transformers", "onnxscript")
# The variable that names a folder in which exported models are kept, and found again.
FOLDER = "TENONNX_BENCH_MODELS"


def exported(name: str, *, small: bool) -> Built:
    """Return a model of ``export.py``, made in a process of its own unless it is kept."""
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        path = Path(os.environ.get(FOLDER, place), f"{name}{'-small' if small else ''}.onnx")
        if not path.exists():
            command = [sys.executable, str(EXPORT), name, str(path), *["--small"] * small]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with np.load(path.with_suffix(".npz")) as feeds:
            return onnx.load(path), dict(feeds)


def kept(name: str) -> bool:
    """Return whether a model needs nothing to be made."""
    return FOLDER in os.environ and Path(os.environ[FOLDER], f"{name}.onnx").exists()


def _row(name: str, about: str, tolerance: float = 1e-4) -> Row:
    return Row(
        about,
        lambda: exported(name, small=False),
        lambda: exported(name, small=True),
        tolerance=tolerance,
        needs=() if kept(name) else NEEDS,
    )


ROWS = {
    "edgenext": Row(
        "EdgeNeXt-XXS, 256 x 256",
        edgenext,
        lambda: edgenext(64, ((8, 1, 3, 0), (16, 2, 5, 2))),
    ),
    "mobilevit": _row("mobilevit", "MobileViT-S, 256 x 256"),
    "detr": _row("detr", "DETR over ResNet-50, 320 x 320"),
    "segformer-b0": _row("segformer-b0", "SegFormer-B0, 256 x 256"),
    "vit-fp16": Row(
        "ViT-S/16 in float16, 224 x 224",
        lambda: half(exported("vit", small=False)),
        lambda: half(exported("vit", small=True)),
        tolerance=0.02,
        needs=() if kept("vit") else NEEDS,
    ),
    "t5": _row("t5", "T5-small, 64 tokens read, 8 written"),
    "gptneox": _row("gptneox", "Pythia-70M, partial rotary, 1 token after 96"),
}
