"""``python -m fuzz.coverage onnx --seconds 600``: readers of files, led by what code is reached.

atheris (``pip install atheris``) mutates files as :mod:`fuzz.structure` and :mod:`fuzz.flat` do, or
as bytes, and keeps those that reach new code. Files are loaded and not run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

READERS = ["tenonnx.formats", "tenonnx.graph", "tenonnx.graph.functions"]
READERS += ["tenonnx.graph.inlining", "tenonnx.formats", "tenonnx_ort_format"]
GROUPS = {"onnx": ["graphs", "operators"], "ort": ["ort"], "words": []}
PATTERNS = ["(a+)+$", r"\d{2,3}", "[a-z]*?x", "a|b|", "(?i)é", r"\bw\b", "^$", "[^\\d]"]


def load(data: bytes) -> None:
    """Read a file, as far as a session does before it looks for kernels."""
    import tenonnx

    options = tenonnx.SessionOptions(
        graph_optimization_level=tenonnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    )
    options.time_limit = 3.0
    _documented(lambda: tenonnx.InferenceSession(data, options, providers=["cpu"]))


def match(data: bytes) -> None:
    """Match a text with a regular expression; a line is either."""
    import tenonnx
    from fuzz.findings.operators import one

    pattern, _, text = data.decode("utf-8", "replace").partition("\n")
    model, feeds = one("RegexFullMatch", {"x": np.array([text], object)}, pattern=pattern)
    _documented(lambda: tenonnx.InferenceSession(model).run(None, feeds))


def _documented(act: Callable[[], Any]) -> None:
    from fuzz.examining import judged

    try:
        act()
    except Exception as error:
        if (found := judged(error, "load", ())) is not None:
            raise AssertionError(f"{found.kind}: {found.where}\n{found.reason}") from error


def mutator(target: str, atheris: Any, corpus: Any) -> Callable[[bytes, int, int], bytes]:
    """Return what changes a file into another of the format."""
    from fuzz import flat
    from fuzz.drawing import mutated

    def mutate(data: bytes, limit: int, seed: int) -> bytes:
        draw = random.Random(seed)
        made = None
        if target == "ort" and draw.random() < 0.7:
            made = flat.mutate(data, draw)[0]
        elif target == "onnx" and draw.random() < 0.7:
            try:
                model = onnx.ModelProto.FromString(data)
                mutated(model, draw, corpus)
                made = model.SerializeToString()
            except (DecodeError, TypeError, ValueError):  # of names that are no text, too
                made = None
        return made if made and len(made) <= limit else atheris.Mutate(data, limit)

    return mutate


def main() -> int:
    """Fuzzes until the time is up or something is found; libFuzzer ends the process itself."""
    parser = argparse.ArgumentParser(prog="python -m fuzz.coverage", description=__doc__)
    parser.add_argument("target", choices=list(GROUPS))
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--out", default=".fuzz/")
    options = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not installed: pip install atheris")
        return 0
    os.environ["TENONNX_JIT"] = "0"
    with atheris.instrument_imports(include=READERS):
        from fuzz.__main__ import import_all

        import_all()
    from fuzz.corpus import Corpus

    corpus = Corpus(GROUPS[options.target])
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    contents = [seed.data() for group in corpus.groups.values() for seed in group]
    contents += [f"{each}\naaaa aé1".encode() for each in PATTERNS if options.target == "words"]
    for number, content in enumerate(contents):
        (folder / str(number)).write_bytes(content)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    arguments = [sys.argv[0], str(folder), f"-max_total_time={options.seconds}", "-timeout=10"]
    arguments += ["-rss_limit_mb=1000", "-max_len=65536", f"-artifact_prefix={options.out}"]
    target = match if options.target == "words" else load
    change = mutator(options.target, atheris, corpus)
    atheris.Setup(arguments, target, custom_mutator=change)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
