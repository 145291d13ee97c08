"""The scenarios: models on disk, how they are used, and the bounds that tenonnx has to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import onnx

from bench.architectures import SMALL, exported
from bench.big import save_external, save_inline, stack, tied_if
from bench.builder import DOUBLE, Feeds
from bench.models import models, relus

ENGINES = ("tenonnx", "onnxruntime")
REFERENCE = "onnx.reference"
CHAIN = 200


@dataclass(frozen=True)
class Settings:
    """The extent of the measurement.

    Attributes:
        quick: Small models, one round, and bounds on time not looked at.
        threads: Numbers of threads to measure with; 0 is all.
        rounds: Processes per engine and number of threads.
        budget: Seconds of repeated runs in each.
        mib: The size that scenarios named ``1g`` have.
    """

    quick: bool
    threads: Sequence[int]
    rounds: int
    budget: float
    mib: int


FULL = Settings(quick=False, threads=(1, 0), rounds=2, budget=0.5, mib=1024)
QUICK = Settings(quick=True, threads=(0,), rounds=1, budget=0.02, mib=32)


class Bound(NamedTuple):
    """A promise: a column of tenonnx's row stays within a limit, or within a share of another's."""

    column: str
    limit: float
    of: str = ""


@dataclass(frozen=True)
class Case:
    """A model and the way it is used.

    Attributes:
        name: Names the rows.
        model: The model's file.
        feeds: The inputs of one run each.
        sessions: How many sessions of the file are held at once.
        prepared: A process before the measured ones has filled tenonnx's side files; otherwise
            each measured process finds none.
        reference: Measure the reference evaluator too.
        relus: Length of the chain to compare with bare numpy calls, if the model is one.
        bounds: What tenonnx promises.
    """

    name: str
    model: Path
    feeds: Sequence[Feeds]
    sessions: int = 1
    prepared: bool = False
    reference: bool = False
    relus: int = 0
    bounds: Sequence[Bound] = ()


LOAD_BOUNDS = (Bound("loaded_mib", 8), Bound("load_s", 0.1, "onnxruntime"))


def external(folder: Path, settings: Settings) -> Iterator[Case]:
    """Weights in a file beside the model."""
    proto, feeds = stack(settings.mib)
    save_external(proto, path := folder / "external.onnx")
    yield Case("external-1g", path, [feeds], bounds=LOAD_BOUNDS)


def inline_aligned(folder: Path, settings: Settings) -> Iterator[Case]:
    """Weights in the model's file, at multiples of their element size."""
    feeds = save_inline(settings.mib, path := folder / "aligned.onnx", offset=0)
    yield Case("inline-aligned-1g", path, [feeds], bounds=LOAD_BOUNDS)


def inline_unaligned(folder: Path, settings: Settings) -> Iterator[Case]:
    """Weights in the model's file, at odd addresses, as chance has it in most files."""
    feeds = save_inline(settings.mib, path := folder / "unaligned.onnx", offset=1)
    name = "inline-unaligned-1g"
    yield Case(f"{name} first", path, [feeds], bounds=[Bound("peak_mib", settings.mib + 8)])
    yield Case(f"{name} second", path, [feeds], prepared=True, bounds=[Bound("loaded_mib", 8)])


def ten_sessions(folder: Path, settings: Settings) -> Iterator[Case]:
    """Ten sessions of one file of half the size: onnxruntime needs ten times its weights."""
    proto, feeds = stack(settings.mib // 2)
    save_external(proto, path := folder / "ten.onnx")
    yield Case("ten-sessions", path, [feeds], sessions=10, bounds=[Bound("loaded_mib", 16)])


def tied(folder: Path, settings: Settings) -> Iterator[Case]:
    """One matrix looked up in one branch of an If and multiplied by in the other."""
    proto, feeds = tied_if(settings.mib)
    save_external(proto, path := folder / "tied.onnx")
    yield Case("tied-if-1g", path, feeds, bounds=[Bound("ran_mib", 16)])


def dispatch(folder: Path, settings: Settings) -> Iterator[Case]:
    """A chain of operators that do next to nothing, on doubles, which nobody fuses."""
    del settings
    proto, feeds = relus(CHAIN, DOUBLE)
    onnx.save(proto, path := folder / "relus.onnx")
    yield Case("dispatch", path, [feeds], relus=CHAIN, bounds=[Bound("over_numpy", 1.7)])


def whole_models(folder: Path, settings: Settings) -> Iterator[Case]:
    """Networks as exporters write them."""
    for name, build in models(quick=settings.quick).items():
        proto, feeds = build()
        onnx.save(proto, path := folder / f"{name}.onnx")
        full = not settings.quick
        yield Case(name, path, [feeds], prepared=full, reference=full)


def architectures(folder: Path, settings: Settings) -> Iterator[Case]:
    """Inputs of transformers' models, as torch exports them."""
    for name, path, feeds in exported(folder, quick=settings.quick, vocabulary=VOCABULARY):
        share = 0.05 * sum(file.stat().st_size for file in folder.glob(f"{path.name}*")) / 2**20
        bounds = [] if settings.quick or name in SMALL else [Bound("loaded_mib", share)]
        yield Case(f"{name} layers", path, [feeds], prepared=not settings.quick, bounds=bounds)


# Of exported models, as many as decoders of today have: weights are then as large as theirs.
VOCABULARY = 1 << 16

# Measured only when it is named: it needs torch and transformers.
ON_REQUEST = "architectures"

SCENARIOS: dict[str, Callable[[Path, Settings], Iterator[Case]]] = {
    "external-1g": external,
    "inline-aligned-1g": inline_aligned,
    "inline-unaligned-1g": inline_unaligned,
    "ten-sessions": ten_sessions,
    "tied-if-1g": tied,
    "dispatch": dispatch,
    "models": whole_models,
    "architectures": architectures,
}
