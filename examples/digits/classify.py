"""Reads handwritten digits that the model has never seen, and says how many it gets right.

::

    python examples/digits/classify.py --provider cpu --show 6
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx as ort

HERE = Path(__file__).parent
INK = np.array([" ", "░", "▒", "▓", "█"])
CELL = 38
"""Columns for a picture and what is said about it."""


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description="Classify held-out 8x8 images of handwritten digits with tenonnx.",
        epilog="Mistakes are shown before other images, a wrong prediction marked with ✗.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--provider",
        default="cpu",
        metavar="NAME",
        help="execution provider: cpu, cuda, or a full name such as CPUExecutionProvider",
    )
    parser.add_argument(
        "--show", type=int, default=6, metavar="N", help="how many images to draw as text"
    )
    parser.add_argument(
        "--model", type=Path, default=HERE / "digits.onnx", metavar="PATH", help="the model"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=HERE / "heldout.npz",
        metavar="PATH",
        help="an .npz file of images [N, 8, 8] from 0 to 16 and labels [N]",
    )
    return parser.parse_args()


def probabilities(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the softmax of each row."""
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def picture(image: np.ndarray[Any, Any], notes: list[str]) -> list[str]:
    """Return an image of 0..16 as eight lines of text, with notes on its right."""
    shades = INK[(image.astype(int) + 3) // 4]
    beside = ["", "", *notes, *[""] * 8]
    return [
        ("".join(np.repeat(row, 2)) + "  " + note).ljust(CELL)
        for row, note in zip(shades, beside, strict=False)
    ]


def show(images: Any, predicted: Any, confidence: Any, labels: Any, count: int) -> None:
    """Print ``count`` images, the mistakes first, as many beside each other as fit."""
    chosen = np.argsort(predicted == labels, kind="stable")[:count]
    cells = [
        picture(
            images[i],
            [
                f"image {i}",
                f"prediction {predicted[i]} {'✓' if predicted[i] == labels[i] else '✗'}",
                f"confidence {confidence[i]:.1%}",
                f"label      {labels[i]}",
            ],
        )
        for i in chosen
    ]
    across = max(1, shutil.get_terminal_size().columns // CELL)
    for start in range(0, len(cells), across):
        print()
        for lines in zip(*cells[start : start + across], strict=True):
            print("".join(lines).rstrip())


def main() -> None:
    """Classify the held-out images and report."""
    options = arguments()
    data = np.load(options.data)
    images, labels = data["images"], data["labels"]
    session = ort.InferenceSession(options.model, providers=[options.provider])

    start = time.perf_counter()
    (logits,) = session.run(None, {"image": images[:, None].astype(np.float32) / 16})
    elapsed = time.perf_counter() - start

    chances = probabilities(logits)
    predicted = chances.argmax(axis=1)
    right = int((predicted == labels).sum())
    print(
        f"{right} of {len(labels)} held-out images right: {right / len(labels):.2%} "
        f"({session.get_providers()[0]}, {elapsed * 1e3:.1f} ms)"
    )
    show(images, predicted, chances.max(axis=1), labels, options.show)


if __name__ == "__main__":
    main()
