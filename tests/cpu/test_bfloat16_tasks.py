"""Decisions of two tasks in bfloat16, which are those in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running import BF16, floats, require_kernels, session

import tenonnx
from models import node
from tenonnx_cpu.jit.code.cpu import cpu

require_kernels()

pytestmark = pytest.mark.skipif(
    not cpu().bf16, reason="kernels are for a processor without bfloat16"
)

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def test_digits_are_classified_alike() -> None:
    with np.load(DIGITS / "heldout.npz") as held_out:
        images, labels = held_out["images"][:, None].astype(np.float32) / 16, held_out["labels"]
    found = [
        tenonnx.InferenceSession(DIGITS / "digits.onnx", providers=[provider]).run(
            None, {"image": images}
        )[0]
        for provider in ("cpu", BF16)
    ]
    assert (found[1].argmax(-1) == labels).sum() == 449
    np.testing.assert_array_equal(found[0].argmax(-1), found[1].argmax(-1))
    assert np.abs(found[0] - found[1]).max() > 0


def _encoder(weights: dict[str, Any], width: int = 64, layers: int = 2) -> list[Any]:
    """Return nodes from tokens x to embeddings y: attention, and a layer with GELU, twice."""
    nodes, x = [], "x"
    for layer in range(layers):
        for n, (name, inner, outer) in enumerate(
            (("q", width, width), ("k", width, width), ("v", width, width),
             ("up", width, 4 * width), ("down", 4 * width, width))
        ):  # fmt: skip
            shape = inner, outer
            weights[f"{name}{layer}"] = floats(*shape, seed=10 * layer + n, scale=inner**-0.5)
        nodes += [node("MatMul", f"{x} {name}{layer}", f"own_{name}{layer}") for name in "qkv"]
        own = " ".join(f"own_{name}{layer}" for name in "qkv")
        nodes += [
            node("Attention", own, f"a{layer}", q_num_heads=2, kv_num_heads=2),
            node("Add", f"{x} a{layer}", f"r{layer}"),
            node("MatMul", f"r{layer} up{layer}", f"u{layer}"),
            node("Gelu", f"u{layer}", f"g{layer}"),
            node("MatMul", f"g{layer} down{layer}", f"d{layer}"),
            node("Add", f"r{layer} d{layer}", f"x{layer}"),
        ]
        x = f"x{layer}"
    weights["axis"] = np.array([1])
    return [*nodes, node("ReduceMean", f"{x} axis", "y", keepdims=0)]


def test_documents_are_ranked_alike() -> None:
    query, noise = floats(16, 64, seed=50), floats(40, 16, 64, seed=51)
    angles = np.linspace(0.05, 1.5, 40, dtype=np.float32)[:, None, None]
    documents = np.cos(angles) * query + np.sin(angles) * noise
    x = np.concatenate([query[None], documents])
    weights: dict[str, Any] = {}
    nodes, rankings, all_scores = _encoder(weights), [], []
    for provider in ("cpu", BF16):
        one = session(nodes, {"x": x}, "y", weights, opset=23, provider=provider)
        made = one.run(None, {"x": x})[0].astype(np.float64)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        scores = made[1:] @ made[0]
        rankings.append(np.argsort(-scores))
        all_scores.append(scores)
    assert np.abs(all_scores[0] - all_scores[1]).max() < 2e-3
    assert np.abs(all_scores[0] - all_scores[1]).max() > 0
    np.testing.assert_array_equal(rankings[0][:10], rankings[1][:10])
