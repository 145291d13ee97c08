"""The places of models: a file, a model's folder, or a repository in Triton's layout.

::

    repository/
      NAME/
        config.pbtxt       optional; goes before the model's own metadata
        1/model.onnx       versions are numbers
        2/model.onnx
      NAME/
        genai_config.json  a language model's folder, which may also be a version
        config.pbtxt       optional

A name in a request is looked up among the existing names, and never becomes a path.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from tenonnx import InvalidArgument, NoSuchFile

MODEL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._\-]*")
VERSION_FOLDER = re.compile(r"[1-9][0-9]{0,17}")
CONFIG = "config.pbtxt"
DEFAULT_FILES = ("model.onnx", "model.ort")
SUFFIXES = (".onnx", ".ort")
# The file by which a folder is a language model's.
LANGUAGE = "genai_config.json"


@dataclass(frozen=True)
class FoundModel:
    """A model on disk.

    Attributes:
        name: The model's name for clients.
        versions: The file or folder of each version, by number.
        config: Its configuration's file, if there is one.
    """

    name: str
    versions: dict[int, Path]
    config: Path | None = None


def find_models(source: str, name: str = "") -> dict[str, FoundModel]:
    """Return the models in a file or a folder, by name.

    Raises:
        NoSuchFile: The path does not exist.
        InvalidArgument: A name is not allowed.
    """
    root = Path(source)
    if not root.exists():
        raise NoSuchFile(f"{source} does not exist", hint="name a model's file or a repository")
    if root.is_file():
        return _single(name or root.stem, {1: root})
    name, real = name or root.resolve().name, root.resolve()
    if is_language(root):
        return _single(name, *_contents(root, real))
    for file in DEFAULT_FILES:
        if (root / file).is_file():
            return _single(name, {1: root / file})
    if (root / CONFIG).is_file() or _versions(root, real):
        return _single(name, *_contents(root, real))
    return _repository(root, real)


def _single(
    name: str, versions: dict[int, Path], config: Path | None = None
) -> dict[str, FoundModel]:
    if MODEL_NAME.fullmatch(name) is None:
        raise InvalidArgument(
            f"{name!r} cannot be a model's name: expected letters, digits, '_', '-' and '.'",
            hint="choose a name with --name NAME",
        )
    return {name: FoundModel(name, versions, config)}


def _repository(root: Path, real: Path) -> dict[str, FoundModel]:
    found = {}
    for folder in sorted(root.iterdir()):
        if MODEL_NAME.fullmatch(folder.name) and folder.is_dir() and inside(folder, real):
            found[folder.name] = FoundModel(folder.name, *_contents(folder, real))
    return found


def _contents(folder: Path, root: Path) -> tuple[dict[int, Path], Path | None]:
    file = folder / CONFIG
    config = file if file.is_file() and inside(file, root) else None
    return {1: folder} if is_language(folder) else _versions(folder, root), config


def advice(source: str) -> str:
    """Return how to add a model to a repository without any."""
    root = Path(source)
    files = sorted(path for path in root.iterdir() if path.suffix in SUFFIXES)
    if not files:
        place = root / "NAME" / "1" / "model.onnx"
        again = "start the server again (with --control: POST /v2/repository/models/NAME/load)"
        return f"{root} has no models: add {place}, then {again}"
    place = root / files[0].stem / "1" / f"model{files[0].suffix}"
    return f"{root} has no models in folders: serve {files[0]} itself, or move it to {place}"


def is_language(path: Path) -> bool:
    """Return whether a path is the folder of a language model."""
    return (path / LANGUAGE).is_file()


def check_inside(folder: Path, root: Path) -> None:
    """Check that the files of a language model's folder lie in a repository, links followed.

    Raises:
        NoSuchFile: One lies outside.
    """
    for file in sorted(folder.rglob("*")):
        if not inside(file, root.resolve()):
            raise NoSuchFile(f"{file} is a link to a file outside of {root}")


def _versions(folder: Path, root: Path) -> dict[int, Path]:
    return {
        int(path.name): path
        for path in sorted(folder.iterdir())
        if VERSION_FOLDER.fullmatch(path.name) and path.is_dir() and inside(path, root)
    }


def inside(path: Path, root: Path) -> bool:
    """Return whether a path is below the root, after following links."""
    return path.resolve().is_relative_to(root)


def model_file(path: Path, root: Path, named: str = "") -> Path:
    """Return the file of a version.

    Args:
        path: The version's file or folder.
        root: The folder that must contain the file.
        named: The file name in the model's configuration.

    Raises:
        NoSuchFile: It does not exist, or is outside the root.
    """
    if path.is_file():
        return path
    for name in (named,) if named else DEFAULT_FILES:
        file = path / name
        if Path(name).name == name and file.is_file() and inside(file, root.resolve()):
            return file
    expected = named or " or ".join(DEFAULT_FILES)
    raise NoSuchFile(
        f"{path} has no {expected}", hint="config.pbtxt may set default_model_filename"
    )


def digest(found: FoundModel) -> str:
    """Return the state of a model's files: their inodes, sizes and times.

    If a version is a folder, all its files count, also those of external data.
    """
    state = hashlib.sha256()
    places = [found.config, *(path for _, path in sorted(found.versions.items()))]
    for place in places:
        if place is None:
            continue
        below = (Path(at, name) for at, _, names in os.walk(place) for name in names)
        for file in sorted(below) if place.is_dir() else [place]:
            facts = file.stat()
            told = (str(file), facts.st_ino, facts.st_size, facts.st_mtime_ns)
            state.update(repr(told).encode())
    return state.hexdigest()
