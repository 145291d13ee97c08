"""Trains the digit classifier and writes digits.onnx and heldout.npz beside this file.

Needs torch, scikit-learn and onnx; takes a quarter of a minute on one core::

    python examples/digits/train.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent


def split() -> tuple[Any, ...]:
    """Return training images, held-out images (0..16, uint8), and the labels of both."""
    digits = load_digits()
    images = digits.images.astype(np.uint8)
    return tuple(
        train_test_split(
            images, digits.target, test_size=450, stratify=digits.target, random_state=0
        )
    )


def network() -> nn.Sequential:
    """Return three convolutions and a linear layer: 33,546 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(64 * 4 * 4, 10),
    )


def distorted(images: torch.Tensor) -> torch.Tensor:
    """Return images [N, 1, 8, 8], each turned, stretched and shifted a little, at random."""
    count = len(images)
    angle = torch.empty(count).uniform_(-0.2, 0.2)
    scale = torch.empty(2, count).uniform_(0.9, 1.1)
    shift = torch.empty(count, 2).uniform_(-0.2, 0.2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    turn = torch.stack([cos * scale[0], -sin, sin, cos * scale[1]], dim=1).reshape(-1, 2, 2)
    affine = torch.cat([turn, shift[:, :, None]], dim=2)
    grid = nn.functional.affine_grid(affine, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def fit(images: torch.Tensor, labels: torch.Tensor, epochs: int) -> nn.Sequential:
    """Return the network after ``epochs`` passes over the distorted images."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = epochs * -(-len(images) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, steps)
    for epoch in range(epochs):
        total = 0.0
        for batch in torch.randperm(len(images)).split(64):
            loss = nn.functional.cross_entropy(model(distorted(images[batch])), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}: loss {total / len(images):.4f}")
    return model.eval()


def to_onnx(model: nn.Sequential) -> onnx.ModelProto:
    """Return the network as an ONNX model: image [batch, 1, 8, 8] to logits [batch, 10]."""
    names = {"0": "conv1", "2": "conv2", "5": "conv3", "9": "linear"}
    weights = []
    for key, value in model.state_dict().items():
        layer, _, kind = key.partition(".")
        weights.append(numpy_helper.from_array(value.numpy(), f"{names[layer]}.{kind}"))

    def conv(source: str, name: str) -> list[onnx.NodeProto]:
        inputs = [source, f"{name}.weight", f"{name}.bias"]
        return [
            helper.make_node("Conv", inputs, [name], name=name, pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [name], [f"{name}.relu"], name=f"{name}.relu"),
        ]

    nodes = [
        *conv("image", "conv1"),
        *conv("conv1.relu", "conv2"),
        helper.make_node(
            "MaxPool", ["conv2.relu"], ["pool"], name="pool", kernel_shape=[2, 2], strides=[2, 2]
        ),
        *conv("pool", "conv3"),
        helper.make_node("Flatten", ["conv3.relu"], ["features"], name="flatten"),
        helper.make_node(
            "Gemm",
            ["features", "linear.weight", "linear.bias"],
            ["logits"],
            name="linear",
            transB=1,
        ),
    ]
    image = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["batch", 1, 8, 8])
    logits = helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(nodes, "digits", [image], [logits], weights)
    opset = helper.make_opsetid("", 21)
    result = helper.make_model(
        graph, opset_imports=[opset], ir_version=10, producer_name="examples/digits/train.py"
    )
    onnx.checker.check_model(result, full_check=True)
    return result


def main() -> None:
    """Trains, reports the accuracy on held-out images, and writes the files."""
    parser = argparse.ArgumentParser(description="Train the digit classifier.")
    parser.add_argument(
        "--epochs", type=int, default=60, help="passes over the images (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of torch's generator (%(default)s)")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    train, heldout, train_labels, heldout_labels = split()
    model = fit(as_input(train), torch.from_numpy(train_labels), options.epochs)
    with torch.no_grad():
        right = model(as_input(heldout)).argmax(1).numpy() == heldout_labels
    print(f"{right.sum()} of {len(right)} held-out images right, {right.mean():.2%}")
    onnx.save(to_onnx(model), HERE / "digits.onnx")
    np.savez_compressed(
        HERE / "heldout.npz", images=heldout, labels=heldout_labels.astype(np.uint8)
    )


def as_input(images: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return images of 0..16 as the network takes them: [N, 1, 8, 8], 0..1."""
    return torch.from_numpy(images[:, None].astype(np.float32) / 16)


if __name__ == "__main__":
    main()
