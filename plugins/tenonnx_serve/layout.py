"""Where models lie: a file, a model's folder, or a repository as Triton has it.

::

    repository/
      NAME/
        config.pbtxt       what it says goes before what the model says; not needed
        1/model.onnx       versions are numbers
        2/model.onnx

A name in a request is looked up among the names that are there, and never becomes a path.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tenonnx import InvalidArgument, NoSuchFile

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]*")
VERSION = re.compile(r"[1-9][0-9]{0,17}")
CONFIG = "config.pbtxt"
DEFAULT_FILES = ("model.onnx", "model.ort")


@dataclass(frozen=True)
class Found:
    """A model that lies somewhere.

    Attributes:
        name: What clients call it.
        versions: By number, where each lies: its file, or a folder of it.
        config: Its configuration's file, if there is one.
    """

    name: str
    versions: dict[int, Path]
    config: Path | None = None


def find_models(source: str, name: str = "") -> dict[str, Found]:
    """Returns the models that a file or a folder has, by name.

    Raises:
        NoSuchFile: There is nothing.
        InvalidArgument: The name is none that a model may have.
    """
    root = Path(source)
    if not root.exists():
        raise NoSuchFile(f"{source} does not exist", hint="name a model's file or a repository")
    if root.is_file():
        return _single(name or root.stem, {1: root})
    for file in DEFAULT_FILES:
        if (root / file).is_file():
            return _single(name or root.resolve().name, {1: root / file})
    if (root / CONFIG).is_file() or _versions(root, root.resolve()):
        return _single(name or root.resolve().name, *_contents(root, root.resolve()))
    return _repository(root)


def _single(name: str, versions: dict[int, Path], config: Path | None = None) -> dict[str, Found]:
    if NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name!r} is no name of a model: expected letters, digits, '_', '-' and '.'",
            hint="name it: --name NAME",
        )
    return {name: Found(name, versions, config)}


def _repository(root: Path) -> dict[str, Found]:
    found, real = {}, root.resolve()
    for folder in sorted(root.iterdir()):
        if NAME.fullmatch(folder.name) and folder.is_dir() and _inside(folder, real):
            found[folder.name] = Found(folder.name, *_contents(folder, real))
    return found


def _contents(folder: Path, root: Path) -> tuple[dict[int, Path], Path | None]:
    config = folder / CONFIG
    return _versions(folder, root), config if config.is_file() and _inside(config, root) else None


def _versions(folder: Path, root: Path) -> dict[int, Path]:
    return {
        int(path.name): path
        for path in sorted(folder.iterdir())
        if VERSION.fullmatch(path.name) and path.is_dir() and _inside(path, root)
    }


def _inside(path: Path, root: Path) -> bool:
    """Says whether a path leads to somewhere below the root, links followed."""
    return path.resolve().is_relative_to(root)


def model_file(path: Path, root: Path, named: str = "") -> Path:
    """Returns the file of a version.

    Args:
        path: The version's file or folder.
        root: What it must lie in.
        named: What its configuration calls it.

    Raises:
        NoSuchFile: There is none, or it lies outside.
    """
    if path.is_file():
        return path
    for name in (named,) if named else DEFAULT_FILES:
        file = path / name
        if Path(name).name == name and file.is_file() and _inside(file, root.resolve()):
            return file
    expected = named or " or ".join(DEFAULT_FILES)
    raise NoSuchFile(f"{path} has no {expected}", hint="config.pbtxt: default_model_filename")


def digest(found: Found) -> str:
    """Returns what tells one state of a model's files from another: their inodes, sizes and times.

    Of a version that is a folder all files count, those of external data among them.
    """
    state = hashlib.sha256()
    places = [found.config, *(path for _, path in sorted(found.versions.items()))]
    for place in places:
        if place is None:
            continue
        inside = (Path(at, name) for at, _, names in os.walk(place) for name in names)
        for file in sorted(inside) if place.is_dir() else [place]:
            facts = file.stat()
            told = (str(file), facts.st_ino, facts.st_size, facts.st_mtime_ns)
            state.update(repr(told).encode())
    return state.hexdigest()
