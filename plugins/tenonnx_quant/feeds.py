"""Calibration data: feeds of a model, from files or from a Python generator, as often as wanted."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tenonnx import InvalidArgument

Feed: TypeAlias = Mapping[str, Any]
# Starts over: quantizing reads the data more than once.
Feeds: TypeAlias = Callable[[], Iterable[Feed]]

SUFFIXES = (".npz", ".npy")


def open_feeds(data: Any, names: Sequence[str], batch: int = 0, most: int = 0) -> Feeds:
    """Return what yields the feeds that a user gives.

    Args:
        data: An ``.npz`` file of one feed, an ``.npy`` file for a model of one input, a folder of
            such files, a Python file with a function ``feeds()`` that yields dicts, such a
            function itself, or a sequence of dicts.
        names: The model's inputs.
        batch: Cut feeds into this many rows; 0 leaves them as they are.
        most: How many feeds to take; 0 for all.

    Raises:
        InvalidArgument: There is no such file, or it is of another form.
    """
    source = _source(data, names)

    def feeds() -> Iterator[Feed]:
        found = (_fitting(feed, names) for feed in source())
        cut = itertools.chain.from_iterable(_cut(feed, batch) for feed in found)
        return itertools.islice(cut, most or None)

    if next(iter(feeds()), None) is None:
        raise InvalidArgument(f"there is no calibration data in {data}")
    return feeds


def _source(data: Any, names: Sequence[str]) -> Feeds:
    if callable(data):
        return data  # type: ignore[no-any-return]  # whatever it yields is looked at
    if not isinstance(data, str | Path):
        return lambda: iter(data)
    path = Path(data)
    if not path.exists():
        raise InvalidArgument(f"there is no calibration data at {path}")
    if path.suffix == ".py":
        return _function(path)
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
    if not all(file.suffix in SUFFIXES for file in files):
        raise InvalidArgument(
            f"{path} holds no calibration data",
            hint="give an .npz or .npy file, a folder of them, or a .py file that defines feeds()",
        )
    return lambda: (_read(file, names) for file in files)


def _function(path: Path) -> Feeds:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidArgument(f"{path} cannot be read")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a user's code may raise anything
        said = f"{type(error).__name__}: {error}"
        raise InvalidArgument(f"{path} failed: {said}", hint=f"run it: python {path}") from error
    found = getattr(module, "feeds", None)
    if not callable(found) or inspect.signature(found).parameters:
        raise InvalidArgument(
            f"{path} defines no function feeds() without parameters",
            hint='let it yield dicts of arrays by input: {"image": ...}',
        )
    return found  # type: ignore[no-any-return]  # whatever it yields is looked at


def _read(path: Path, names: Sequence[str]) -> Feed:
    try:
        # numpy leaves a file open that it opened and cannot read.
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if isinstance(content, np.lib.npyio.NpzFile):
                return dict(content)
    except Exception as error:  # zipfile's, zlib's and numpy's own, as the damage has it
        raise InvalidArgument(f"{path} cannot be read: {error}") from error
    if len(names) != 1:
        raise InvalidArgument(
            f"{path} has one array, the model has the inputs {', '.join(names)}",
            hint="give an .npz file with an array of each name",
        )
    return {names[0]: content}


def _fitting(feed: Feed, names: Sequence[str]) -> Feed:
    if not isinstance(feed, Mapping):
        raise InvalidArgument(f"a feed is a dict of arrays by input, not {type(feed).__name__}")
    missing = [name for name in names if name not in feed]
    if missing:
        raise InvalidArgument(
            f"the calibration data has nothing for {', '.join(missing)}; "
            f"it has {', '.join(feed) or 'nothing'}"
        )
    return {name: feed[name] for name in names}


def _cut(feed: Feed, batch: int) -> Iterator[Feed]:
    if not batch:
        yield feed
        return
    arrays = {name: np.asarray(array) for name, array in feed.items()}
    rows = {array.shape[0] for array in arrays.values() if array.ndim}
    if len(rows) != 1:
        raise InvalidArgument(
            f"feeds whose arrays have {sorted(rows)} rows cannot be cut into batches"
        )
    for start in range(0, rows.pop(), batch):
        yield {n: a[start : start + batch] if a.ndim else a for n, a in arrays.items()}
