"""``python -m bench.generate.drafts FOLDER DRAFT ...``: a model alone, beside drafts by others.

For each draft model, and each number of drafted tokens, it tells the seconds of a token with
drafts as a part of those without, in turns, and the share of checked tokens that were accepted. A
``DRAFT`` that is a number drafts by patterns of as many tokens.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import tenonnx_generate as og

TURNS = 5


def generated(model: Any, prompt: Any, new: int, **drafts: Any) -> tuple[float, float, list[int]]:
    """Return seconds of a token, the acceptance rate, and the tokens."""
    params = og.GeneratorParams(model)
    length = len(prompt) + new + 1
    params.set_search_options(do_sample=False, min_length=length, max_length=length)
    params.set_draft_model(drafts.pop("by", None))
    params.set_speculative_options(**drafts)
    made = og.Generator(model, params)
    made.append_tokens(prompt)
    made.generate_next_token()
    if params.drafts:
        made.generate_next_token()  # the draft model runs the prompt
    start, count = time.perf_counter(), made.token_count()
    while not made.is_done():
        made.generate_next_token()
    spent = (time.perf_counter() - start) / (made.token_count() - count)
    told = made.get_speculative_stats()
    return spent, told["acceptance_rate"], made.get_sequence(0)[len(prompt) :].tolist()


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.generate.drafts", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("drafts", nargs="+")
    parser.add_argument("--width", type=int, nargs="+", default=[2, 4], help="drafted at once")
    parser.add_argument("--new", type=int, default=64, help="tokens to generate")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parsed = parser.parse_args()
    model = og.Model(parsed.folder)
    size = model.description.vocabulary
    prompt = np.random.default_rng(0).integers(4, size, parsed.prompt, np.int32)
    print("| draft | at once | accepted | token alone | with drafts | ratio | equal tokens |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in parsed.drafts:
        how: dict[str, Any] = {"ngram_size": int(name)} if name.isdigit() else {}
        how |= {} if name.isdigit() else {"by": og.Model(name)}
        for width in parsed.width:
            found = [
                (
                    generated(model, prompt, parsed.new),
                    generated(model, prompt, parsed.new, max_draft_tokens=width, **how),
                )
                for _ in range(TURNS)
            ][1:]
            alone, drafted = (statistics.median(turn[i][0] for turn in found) for i in range(2))
            ratio = statistics.median(turn[1][0] / turn[0][0] for turn in found)
            (_, _, own), (_, rate, its) = found[0]
            same = next(
                (n for n, (a, b) in enumerate(zip(own, its, strict=True)) if a != b), len(own)
            )
            print(
                f"| {name} | {width} | {rate:.2f} | {1000 * alone:.1f} ms "
                f"| {1000 * drafted:.1f} ms | {ratio:.2f} | {same} of {len(own)} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
