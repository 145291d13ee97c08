"""A repository's models: a client gives a name, never a path."""

from __future__ import annotations

import re
from pathlib import Path

from tenonnx import NoSuchFile

MODEL_ID = re.compile(r"\w[\w.-]{0,199}", re.ASCII)


def place_of(folder: Path, model_id: str) -> Path:
    """Return the path of a repository's model.

    Raises:
        NoSuchFile: There is no model of that name.
    """
    if MODEL_ID.fullmatch(model_id):
        versions = [each for each in folder.glob(f"{model_id}/*/model.onnx") if _version(each)]
        newest = sorted(versions, key=_version)[-1:]
        for path in (folder / f"{model_id}.onnx", folder / model_id / "model.onnx", *newest):
            if path.is_file() and path.resolve().is_relative_to(folder):
                return path
    raise NoSuchFile(f"the repository has no model {model_id[:200]!r}")


def _version(path: Path) -> int:
    name = path.parent.name
    return int(name) if name.isascii() and name.isdigit() else 0
