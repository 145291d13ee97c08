"""Continues a text with a language model, and shows how fast.

::

    python examples/generate/generate.py "The with statement"
    python examples/generate/generate.py --model folder/of/phi-3 "Why is the sky blue?"
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decoder import Decoder
from sampling import Sampler
from tokens import open_tokenizer

HERE = Path(__file__).parent


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description="Continue a text with a language model.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("prompt", nargs="?", default="The with statement", help="the text so far")
    parser.add_argument(
        "--model",
        type=Path,
        default=HERE / "model",
        metavar="PATH",
        help="an .onnx file, or a folder with model.onnx; its tokenizer lies beside it",
    )
    parser.add_argument("--tokens", type=int, default=120, metavar="N", help="how many to generate")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest")
    parser.add_argument("--top-k", type=int, default=40, metavar="K", help="0 for all")
    parser.add_argument("--top-p", type=float, default=0.95, metavar="P", help="1 for all")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument(
        "--capacity", type=int, default=512, metavar="N", help="tokens that the caches hold"
    )
    parser.add_argument("--provider", default="CPUExecutionProvider", metavar="NAME")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of the provider's, such as enable_cuda_graph=1; any number of times",
    )
    parser.add_argument(
        "--runtime", default="tenonnx", metavar="MODULE", help="tenonnx, or onnxruntime to compare"
    )
    return parser.parse_args()


def generated(
    decoder: Decoder, prompt: list[int], sampler: Any, most: int, end: int, times: list[float]
) -> Iterator[int]:
    """Yield tokens until ``end``; note when the prompt was read, and when each was there."""
    given = prompt
    for _ in range(most):
        logits = decoder.forward(given)
        token = sampler(logits)
        times.append(time.perf_counter())
        if token == end:
            return
        yield token
        given = [token]


def main() -> None:
    """Generate, and return how fast."""
    options = arguments()
    folder = options.model if options.model.is_dir() else options.model.parent
    path = options.model / "model.onnx" if options.model.is_dir() else options.model
    tokenizer = open_tokenizer(folder)
    start = time.perf_counter()
    runtime = importlib.import_module(options.runtime)
    own = dict(option.split("=", 1) for option in options.option)
    device = "cuda" if "cuda" in options.provider.lower() else "cpu"
    providers = [(options.provider, own), *(["CPUExecutionProvider"] if device != "cpu" else [])]
    decoder = Decoder(runtime, path, options.capacity, device, providers=providers)
    loaded = time.perf_counter()
    sampler = Sampler(options.temperature, options.top_k, options.top_p, options.seed)
    prompt = tokenizer.encode(options.prompt)
    most = min(options.tokens, options.capacity - len(prompt))
    times: list[float] = []
    print(options.prompt, end="", flush=True)
    tokens = generated(decoder, prompt, sampler, most, tokenizer.end, times)
    for text in tokenizer.stream(tokens):
        print(text, end="", flush=True)
    print()
    steps = len(times) - 1
    rate = f"{steps / (times[-1] - times[0]):.1f} tokens/s" if steps > 0 else "no further token"
    print(
        f"[{options.runtime}: loaded in {loaded - start:.2f} s, {len(prompt)} tokens read in "
        f"{times[0] - loaded:.2f} s, then {steps} at {rate}; caches "
        f"{'updated in place' if decoder.in_place else 'returned anew'}]",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
