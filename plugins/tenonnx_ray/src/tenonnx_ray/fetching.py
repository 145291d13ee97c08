"""Models in object storage: a node fetches each version once, and all its processes map it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import platformdirs

from tenonnx import Fail, InvalidArgument, NoSuchFile
from tenonnx_ray.downloads import Site, is_web, without_query
from tenonnx_ray.needed import needed
from tenonnx_ray.other_stores import of_fsspec

MODELS = (".onnx", ".ort")
COPY_CHUNK_BYTES = 8 << 20


def is_address(source: str) -> bool:
    """Return whether a source is an address, such as ``s3://bucket/model.onnx``, and not a path."""
    return "://" in source


def fetched(address: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Return the local path of a model in object storage.

    The first process of a node fetches it, and others wait. The files' names, sizes and times tell
    a version. Each version has a folder of its own, which appears when it is complete.

    Args:
        address: The address of a model, or of a folder with one model and its external data, in
            any file system that ``pyarrow.fs`` knows (``s3``, ``gs``, ``abfss``, ``hdfs``,
            ``file``) or ``fsspec``. An ``http`` or ``https`` address must be of a model in one
            file.
        folder: Where this node keeps models; ``models`` in tenonnx's cache folder if ``None``.

    Raises:
        NoSuchFile: There is no model.
        InvalidArgument: There are several models, or the address has an unknown scheme.
        Fail: The disk is full, files changed during the fetch, or a server does not answer.
    """
    files, base, infos = _files_of(address)
    names = [_name(info.path, base) for info in infos]
    model = _model(address, names)
    version = hashlib.sha256((without_query(address) if is_web(address) else address).encode())
    for name, info in zip(names, infos, strict=True):
        version.update(f"\0{name}\0{info.size}\0{info.mtime_ns}".encode())
    place = Path(folder or _default_folder())
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    there = place / version.hexdigest()[:32]
    with _locked(there.with_suffix(".lock")):
        if not there.exists():
            _fetch(files, dict(zip(names, infos, strict=True)), there)
    return there / model


def _default_folder() -> Path:
    cache = os.environ.get("TENONNX_CACHE_DIR") or platformdirs.user_cache_dir("tenonnx")
    return Path(cache) / "models"


def _files_of(address: str) -> tuple[Any, str, list[Any]]:
    """Return the file system of an address, the folder in it, and the files to fetch, in order."""
    if is_web(address):
        site = Site(address)
        found = site.look()
        return site, found.path.rpartition("/")[0], [found]
    fs = needed("pyarrow.fs")
    try:
        files, path = fs.FileSystem.from_uri(address)
    except ValueError:  # pyarrow's ArrowInvalid is one
        files, path = of_fsspec(address)
    found = files.get_file_info(path)
    if found.type == fs.FileType.File:
        return files, path.rpartition("/")[0], [found]
    if found.type != fs.FileType.Directory:
        raise NoSuchFile(f"there is no file at {address}")
    below = files.get_file_info(fs.FileSelector(path, recursive=True))
    below = [info for info in below if info.type == fs.FileType.File]
    return files, path.rstrip("/"), sorted(below, key=lambda info: str(info.path))


def _name(path: str, base: str) -> str:
    name = PurePosixPath(path.removeprefix(base).lstrip("/"))
    if name.is_absolute() or ".." in name.parts or not name.parts:
        raise InvalidArgument(f"{path} is not inside {base}")
    return str(name)


def _model(address: str, names: list[str]) -> str:
    models = [name for name in names if name.endswith(MODELS)]
    if not models:
        raise NoSuchFile(f"there is no model at {address}; found {names or 'an empty folder'}")
    if len(models) > 1:
        raise InvalidArgument(f"expected one model at {address}; found {models}")
    return models[0]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock among this node's processes; the lock of a process that dies is released."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(files: Any, infos: dict[str, Any], there: Path) -> None:
    """Copy files into a folder, which appears once all are there."""
    partial = there.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that died
    partial.mkdir(mode=0o700)
    size, free = sum(info.size for info in infos.values()), shutil.disk_usage(partial).free
    if size > free:
        raise Fail(f"{partial.parent} has {free} bytes free; the model needs {size}")
    for name, info in infos.items():
        target = partial / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with files.open_input_stream(info.path) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, COPY_CHUNK_BYTES)
        if target.stat().st_size != info.size:
            shutil.rmtree(partial)
            raise Fail(f"{info.path} changed while it was fetched", hint="try again")
    partial.rename(there)
