"""Two layers of every architecture of tests/exports, as wide as real ones."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

from bench.builder import Feeds
from tenonnx_quant import WeightScheme, quantize_weights

EXPORT = Path(__file__).parents[1] / "tests" / "exports" / "export.py"
NAMES = (
    *("bert", "distilbert", "gpt2", "llama", "qwen2", "phi3", "gemma2"),
    *("mixtral", "modernbert", "t5", "whisper", "vit", "clip", "resnet", "mobilenet"),
)
# Blocks of a few channels, whatever the width.
SMALL = ("resnet", "mobilenet")

DECODERS = ("gpt2", "llama", "qwen2", "phi3", "gemma2")
# Behind a name, has the model exported by torch's exporter of old, which says more in nodes.
OLDER = "-torchscript"

NEEDS = ("torch", "transformers", "onnxscript", "skl2onnx")


def exported(
    folder: Path, names: Sequence[str] = NAMES, *, quick: bool, vocabulary: int = 8192
) -> Iterator[tuple[str, Path, Feeds]]:
    """Yield each model's name, its file and the inputs of a run; decoders also in four bits.

    Args:
        folder: Where the models go, 1.8 GB unless quick, and 4.5 GB with a real vocabulary.
        names: Some of ``NAMES``.
        quick: Tiny ones.
        vocabulary: Number of tokens, unless quick.

    Raises:
        SystemExit: What exports them is not installed.
    """
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        raise SystemExit(f"architectures: exporting them needs pip install {' '.join(missing)}")
    sizes = [] if quick else ["--width", "1024", "--vocabulary", str(vocabulary)]
    for exporter, ending in (("dynamo", ""), ("torchscript", OLDER)):
        kinds = [name.removesuffix(OLDER) for name in names if name.endswith(OLDER) == bool(ending)]
        if not kinds:
            continue
        subprocess.run(
            [sys.executable, EXPORT, *kinds, *sizes, "--exporter", exporter, "--output", folder],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for kind in kinds:
            path = folder / (f"{kind}.onnx" if ending else f"{kind}-dynamo.onnx")
            yield kind + ending, path, _feeds(path)
            if kind in DECODERS and not ending:
                small = folder / f"{kind}-int4.onnx"
                quantize_weights(path, small, WeightScheme(form="matmulnbits"))
                yield f"{kind} int4", small, _feeds(path)
            path.unlink()


def _feeds(path: Path) -> Feeds:
    """Return the inputs that were exported with a model; the older exporter drops unread ones."""
    taken = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
    with np.load(path.with_suffix(".npz")) as arrays:
        return {name: arrays[f"in:{name}"] for name in taken}
