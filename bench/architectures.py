"""Two layers of every architecture that tests/exports knows, as wide as real ones."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.builder import Feeds
from tenonnx_quant import WeightScheme, quantize_weights

EXPORT = Path(__file__).parents[1] / "tests" / "exports" / "export.py"
NAMES = (
    *("bert", "distilbert", "gpt2", "llama", "qwen2", "phi3", "gemma2"),
    *("t5", "whisper", "vit", "clip", "resnet", "mobilenet"),
)
SMALL = ("resnet", "mobilenet")
"""Blocks of a few channels, whatever the width."""

DECODERS = ("gpt2", "llama", "qwen2", "phi3", "gemma2")
NEEDS = ("torch", "transformers", "onnxscript", "skl2onnx")


def exported(
    folder: Path, names: Sequence[str] = NAMES, *, quick: bool
) -> Iterator[tuple[str, Path, Feeds]]:
    """Yields each model's name, its file and the inputs of a run; decoders also in four bits.

    Args:
        folder: Where the models go, 1.8 GB unless quick.
        names: Some of ``NAMES``.
        quick: Tiny ones.

    Raises:
        SystemExit: What exports them is not installed.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"architectures: exporting them needs pip install {' '.join(missing)}")
    sizes = [] if quick else ["--width", "1024", "--vocabulary", "8192"]
    subprocess.run(
        [sys.executable, EXPORT, *names, *sizes, "--exporter", "dynamo", "--output", folder],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for name in names:
        path = folder / f"{name}-dynamo.onnx"
        with np.load(path.with_suffix(".npz")) as arrays:
            feeds = {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}
        yield name, path, feeds
        if name in DECODERS:
            small = folder / f"{name}-int4.onnx"
            quantize_weights(path, small, WeightScheme(form="matmulnbits"))
            yield f"{name} int4", small, feeds
