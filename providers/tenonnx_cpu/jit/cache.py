"""The folder of compiled kernels, and how they are known to be of this source."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tempfile
from pathlib import Path

import numba
import platformdirs

IMPORT = re.compile(r"^from (tenonnx_cpu[\w.]*) import (.*)", re.MULTILINE)
WORD = re.compile(r"\w+")


@functools.cache
def cache_folder() -> Path:
    """Returns the folder: ``NUMBA_CACHE_DIR``, or one beside side files."""
    root = os.environ.get("TENONNX_CACHE_DIR") or platformdirs.user_cache_dir("tenonnx")
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path(root, "numba"), "tenonnx")


@functools.cache
def source_stamp(path: Path) -> str:
    """Returns a digest of a module of this package and of all that it imports from it."""
    digest = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).parent.parent
    waiting, seen = [path], {path}
    while waiting:
        source = waiting.pop().read_text("utf-8")
        digest.update(source.encode())
        for module, names in IMPORT.findall(source):
            folder = root.joinpath(*module.split(".")[1:])
            inside = (folder / f"{name}.py" for name in WORD.findall(names))
            for file in (folder.with_suffix(".py"), *inside):
                if file not in seen and file.exists():
                    seen.add(file)
                    waiting.append(file)
    return digest.hexdigest()


def keep(path: Path, data: bytes) -> None:
    """Writes a file at once or not at all; a folder that cannot be written is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
            draft.write(data)
        Path(draft.name).replace(path)
