"""The seeds of mutations: models and inputs that the tests already have, by group."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

TESTS = Path(__file__).parent.parent
for folder in ("contrib", "operators"):
    if str(TESTS / folder) not in sys.path:
        sys.path.append(str(TESTS / folder))

Feeds = dict[str, Any]
MAX_BYTES = 100_000
"""Of a file: what a larger one does, a hundred small ones do in the time."""


@dataclass(frozen=True)
class Seed:
    """A model and inputs that it runs on; ``data`` makes the bytes of either format."""

    name: str
    data: Callable[[], bytes]
    feeds: Callable[[], Feeds]
    format: str = "onnx"

    def proto(self) -> onnx.ModelProto:
        return onnx.ModelProto.FromString(self.data())


def operators() -> Iterator[Seed]:
    cases = importlib.import_module("cases")
    for i, case in enumerate(cases.CASES):
        if case.is_known:
            yield Seed(
                f"operators/{case.id}/{i}",
                functools.partial(_serialized, cases.model_of, case),
                functools.partial(cases.feeds_of, case),
            )


def contrib() -> Iterator[Seed]:
    rows = importlib.import_module("rows")
    for i, row in enumerate(rows.recorded(TESTS / "contrib")):
        yield Seed(
            f"contrib/{row.id}/{i}",
            functools.partial(_serialized, rows.model_of, row),
            functools.partial(rows.feeds_of, row),
        )


def suite() -> Iterator[Seed]:
    """The models of ONNX's own suite."""
    from tenonnx.testing.nodes import node_cases

    for case in node_cases().values():
        if case.model.ByteSize() < 1 << 17:
            names = [value.name for value in case.model.graph.input]
            feeds = dict(zip(names, case.data[0][0], strict=False))
            data = case.model.SerializeToString()
            yield Seed(f"suite/{case.name}", _given(data), _given(feeds))


def files() -> Iterator[Seed]:
    """Exported, optimized, quantized and trained models, with what their tests feed them."""
    paths = [
        *TESTS.glob("exports/*.onnx"),
        *TESTS.glob("contrib/optimized/*.onnx"),
        *TESTS.glob("../examples/digits/*.onnx"),
    ]
    for path in sorted(filter(_is_small, paths)):
        feeds = functools.partial(_feeds, path.with_suffix(".npz"))
        yield Seed(f"files/{path.stem}", path.read_bytes, feeds)


def graphs() -> Iterator[Seed]:
    """Models of several nodes, with bodies, functions and what else one node has not."""
    from fuzz.graphs import GRAPHS

    for name, (model, feeds) in GRAPHS.items():
        yield Seed(f"graphs/{name}", _given(model.SerializeToString()), _given(feeds))


def ort() -> Iterator[Seed]:
    paths = [*TESTS.glob("ort_format/files/*.ort"), *TESTS.glob("contrib/optimized/*.ort")]
    for path in sorted(filter(_is_small, paths)):
        export = TESTS / "exports" / f"{path.stem.rsplit('-', 1)[0]}.npz"
        yield Seed(f"ort/{path.stem}", path.read_bytes, functools.partial(_feeds, export), "ort")


GROUPS: dict[str, tuple[Callable[[], Iterator[Seed]], int]] = {
    "operators": (operators, 30),
    "contrib": (contrib, 20),
    "suite": (suite, 25),
    "graphs": (graphs, 15),
    "files": (files, 4),
    "ort": (ort, 6),
}
"""The groups, each with its share of draws."""


class Corpus:
    """Seeds by group; numbers refer to the order of names, not of files."""

    def __init__(self, groups: Sequence[str] = tuple(GROUPS)) -> None:
        self.groups = {
            group: sorted(GROUPS[group][0](), key=lambda seed: seed.name) for group in groups
        }
        self.weights = [GROUPS[group][1] for group in groups]


def _is_small(path: Path) -> bool:
    return path.stat().st_size < MAX_BYTES


def _serialized(model_of: Callable[[Any], onnx.ModelProto], row: Any) -> bytes:
    return model_of(row).SerializeToString()


def _given(value: Any) -> Callable[[], Any]:
    return lambda: value


def _feeds(path: Path) -> Feeds:
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return {key[3:]: arrays[key] for key in arrays.files if key.startswith("in:")}


def frozen(model: onnx.ModelProto, feeds: Feeds, names: Sequence[str]) -> None:
    """Make initializers of inputs, with the values that are fed to them."""
    for name in names:
        array = feeds.get(name)
        if not isinstance(array, np.ndarray):
            continue
        if array.dtype.kind == "O":
            shape, flat = array.shape, array.reshape(-1).tolist()
            words = [word.encode() if isinstance(word, str) else bytes(word) for word in flat]
            made = helper.make_tensor(name, onnx.TensorProto.STRING, shape, words)
        else:
            made = numpy_helper.from_array(np.ascontiguousarray(array), name)
        model.graph.initializer.append(made)
        kept = [value for value in model.graph.input if value.name != name]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        feeds.pop(name)
