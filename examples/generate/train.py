"""Trains the decoder on text that ships with Python and writes the folder ``model``.

Needs torch, for this script alone; takes about a quarter of an hour on two cores::

    python examples/generate/train.py
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
from pathlib import Path

import onnx
import torch
from corpus import corpus
from export import to_onnx
from folder import complete
from network import Decoder, Shape
from tokens import Tokenizer, learn
from torch import Tensor
from torch.nn import functional

import tenonnx_quant
from tenonnx.formats.convert import Layout

HERE = Path(__file__).parent
HELD_OUT = 0.03
"""Share of the texts that take no part in training."""


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description="Train the decoder.", formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1200, help="steps of the optimizer")
    parser.add_argument("--batch", type=int, default=16, help="texts in a step")
    parser.add_argument("--length", type=int, default=256, help="tokens of a text in a step")
    parser.add_argument("--rate", type=float, default=3e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is random")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch")
    parser.add_argument(
        "--output", type=Path, default=HERE / "model", metavar="FOLDER", help="what to write"
    )
    parser.add_argument(
        "--float", type=Path, metavar="FILE", help="also keep the float32 model, in this file"
    )
    return parser.parse_args()


def split(texts: list[str], tokenizer: Tokenizer) -> tuple[Tensor, Tensor]:
    """Return the tokens of the texts to train on, each text with its end, and of the others."""
    random.shuffle(texts)
    held = int(len(texts) * HELD_OUT)
    parts = [
        [token for text in part for token in [*tokenizer.encode(text), tokenizer.end]]
        for part in (texts[held:], texts[:held])
    ]
    train, heldout = (torch.tensor(part) for part in parts)
    return train, heldout


def loss_of(model: Decoder, tokens: Tensor) -> Tensor:
    """Return the mean of ``-log p`` of each token after the first, [batch, length + 1] given."""
    logits = model(tokens[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def fit(model: Decoder, train: Tensor, options: argparse.Namespace) -> None:
    """Trains the model on random windows of the tokens."""
    plain = [p for p in model.parameters() if p.dim() < 2]
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=options.rate, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.rate, options.steps, pct_start=0.1, cycle_momentum=False
    )
    window = torch.arange(options.length + 1)
    start = time.perf_counter()
    for step in range(1, options.steps + 1):
        places = torch.randint(len(train) - options.length, (options.batch, 1))
        loss = loss_of(model, train[places + window])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            spent = time.perf_counter() - start
            print(f"step {step:5}: loss {loss.item():.3f}, {spent:.0f} s", flush=True)


@torch.no_grad()
def perplexity(model: Decoder, heldout: Tensor, length: int) -> float:
    """Return ``exp`` of the mean loss over the held-out tokens."""
    rows = heldout[: len(heldout) // (length + 1) * (length + 1)].view(-1, length + 1)
    losses = [loss_of(model, row[None]).item() for row in rows]
    return math.exp(sum(losses) / len(losses))


def main() -> None:
    """Trains, reports, exports, quantizes."""
    options = arguments()
    random.seed(options.seed)
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    texts = corpus()
    print(
        f"{len(texts)} texts, {sum(map(len, texts)):,} characters, Python {sys.version.split()[0]}"
    )
    tokenizer = learn("\n".join(texts), Shape.vocabulary)
    train, heldout = split(texts, tokenizer)
    model = Decoder(Shape())
    parameters = sum(p.numel() for p in model.parameters())
    print(f"{parameters:,} parameters, {len(train):,} tokens, {len(heldout):,} held out")
    fit(model, train, options)
    print(f"perplexity of a held-out token: {perplexity(model, heldout, options.length):.2f}")
    options.output.mkdir(exist_ok=True)
    tokenizer.save(options.output / "merges.json")
    with tempfile.TemporaryDirectory() as folder:
        path = options.float or Path(folder) / "float.onnx"
        onnx.save(to_onnx(model), path)
        report = tenonnx_quant.quantize_weights(
            path, options.output / "model.onnx", layout=Layout(inline=True)
        )
    print(report)
    complete(options.output)


if __name__ == "__main__":
    main()
