"""A process that compares tenonnx_generate with itself: prefixes, guidance, rows, adapters."""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tenonnx_generate as og
from bench.generate.adapted import Adapted
from bench.generate.child import private_bytes

PROMPT, CACHED, NEW, TURNS = 512, 480, 24, 9
SCHEMA = {"type": "array", "items": {"type": "integer"}, "minItems": 200}


def pair(one: Callable[[], float], other: Callable[[], float]) -> tuple[float, float]:
    """Return the medians of two times, taken in turns; the first turn is not counted."""
    found = [(one(), other()) for _ in range(TURNS)][1:]
    first, second = (statistics.median(each) for each in zip(*found, strict=True))
    return first, second


class Own:
    """A folder's model, and what is measured of it."""

    def __init__(self, job: dict[str, Any]) -> None:
        config = og.Config(job["folder"])
        if job["threads"]:
            threads = {"session_options": {"intra_op_num_threads": job["threads"]}}
            config.overlay(json.dumps({"model": {"decoder": threads}}))
        self.model = og.Model(config)
        self.prompt = np.random.default_rng(1).integers(4, job["vocabulary"], PROMPT, np.int32)

    def generator(
        self, rows: int = 1, *, guided: bool = False, length: int = PROMPT + NEW, beams: int = 1
    ) -> Any:
        """Return what generates the likeliest tokens."""
        params = og.GeneratorParams(self.model)
        params.set_search_options(do_sample=False, max_length=length, batch_size=rows)
        params.set_search_options(num_beams=beams)
        if guided:
            params.set_guidance("json_schema", json.dumps(SCHEMA))
        return og.Generator(self.model, params)

    def first(self, cached: int) -> float:
        """Return seconds until the first token, with some of the prompt in the caches."""
        made = self.generator()
        if cached:
            made.append_tokens(self.prompt[:cached])
        start = time.perf_counter()
        made.append_tokens(self.prompt[cached:])
        made.generate_next_token()
        return time.perf_counter() - start

    def token(self, *, guided: bool = False, rows: int = 1, beams: int = 1) -> float:
        """Return seconds per step; texts that end are begun anew by their prompt."""
        made = self.generator(rows, guided=guided, length=64 + NEW, beams=beams)
        made.append_tokens(np.tile(self.prompt[:64], rows))
        made.generate_next_token()
        start = time.perf_counter()
        count = 0
        while count < NEW - 1 and not made.is_done():
            made.generate_next_token()
            count += 1
        return (time.perf_counter() - start) / max(count, 1)

    def growth(self) -> int:
        """Return by how much private memory grows while 200 generators come and go."""
        for count in (20, 200):
            before = private_bytes()
            for _ in range(count):
                made = self.generator()
                made.append_tokens(self.prompt[:32])
                made.generate_next_token()
            del made
            gc.collect()
        return private_bytes() - before


def adapters(job: dict[str, Any]) -> tuple[float, float]:
    """Return seconds of a step of four rows, each with its adapter and all with the same."""
    with tempfile.TemporaryDirectory() as place:
        model = Adapted(Path(job["folder"]), Path(place) / "adapted")
        return pair(lambda: model.step(different=True), lambda: model.step(different=False))


def main(job: dict[str, Any]) -> None:
    """Measure, and tell."""
    own = Own(job)
    one, four = pair(lambda: own.token(), lambda: own.token(rows=4))
    facts = {
        "cached prefix": pair(lambda: own.first(CACHED), lambda: own.first(0)),
        "guidance": pair(lambda: own.token(guided=True), lambda: own.token()),
        "four at once": (four, 4 * one),
        "four beams": pair(lambda: own.token(beams=4), lambda: own.token(rows=4)),
        "four adapters": adapters(job),
        "growth": own.growth(),
    }
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
