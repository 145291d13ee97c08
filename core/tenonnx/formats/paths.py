"""The folders in which a model's external data may lie."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tenonnx.errors import InvalidGraph, NoSuchFile


@dataclass(frozen=True)
class DataFolders:
    """The folders in which files of external data may lie; all others are refused.

    A location is relative to the folder the model was opened in or, if the model is a link, to
    the folder of the file behind it. Links are followed; the file at their end must lie in one
    of these folders, among the ``blobs`` of the Hugging Face repository that the model was
    opened in, or in an allowed root.

    Attributes:
        folders: Where locations are looked up, in order.
        allowed: Resolved folders in which data may lie.
        roots: Those of them that were allowed by name, where absolute locations may lead, too.
    """

    folders: tuple[str, ...]
    allowed: tuple[str, ...]
    roots: tuple[str, ...]

    @classmethod
    def of_model(cls, path: str, allowed_roots: Iterable[str | os.PathLike[str]]) -> DataFolders:
        """Return the folders of a model's file."""
        opened = os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120 - keeps links
        behind = os.path.dirname(os.path.realpath(path))  # noqa: PTH120
        return cls.of_folders([opened, behind], allowed_roots)

    @classmethod
    def of_folders(
        cls, folders: Iterable[str], allowed_roots: Iterable[str | os.PathLike[str]]
    ) -> DataFolders:
        """Return the policy for data next to a model in one of some folders."""
        roots = [os.path.realpath(root) for root in allowed_roots]
        folders = list(dict.fromkeys(folders)) or roots
        blobs = [blob for folder in folders if (blob := _hugging_face_blobs(folder))]
        allowed = [*map(os.path.realpath, (*folders, *blobs)), *roots]
        return cls(tuple(folders), tuple(dict.fromkeys(allowed)), tuple(roots))

    def resolve(self, location: str, tensor: str) -> str:
        """Return the real path of a location.

        Args:
            location: As the tensor gives it.
            tensor: The tensor's name, for messages.

        Raises:
            InvalidGraph: The location leads elsewhere, or no file is there.
        """
        if not location or "\0" in location:
            raise InvalidGraph(f"tensor {tensor!r} has external data at no place: {location!r}")
        if not self.folders:
            raise InvalidGraph(
                f"tensor {tensor!r} has external data at {location!r}, but the model was not "
                "opened from a file, so there is no folder to look in",
                hint="Open the model by its path, or name the folder: "
                "SessionOptions(allowed_roots=[...]).",
            )
        candidates = [os.path.join(folder, location) for folder in self.folders]  # noqa: PTH118
        path = next(filter(os.path.lexists, candidates), candidates[0])
        real = os.path.realpath(path)
        allowed = self.roots if os.path.isabs(location) else self.allowed  # noqa: PTH117
        if not any(_is_inside(real, root) for root in allowed):
            parent = os.path.dirname(real)  # noqa: PTH120
            raise InvalidGraph(
                f"tensor {tensor!r} has external data at {location!r}, which leads to {real}; "
                f"relative locations may lead into {' and '.join(self.allowed)}",
                hint="If you trust the model, allow it: "
                f"SessionOptions(allowed_roots=[{parent!r}]).",
            )
        if not os.path.isfile(real):  # noqa: PTH113
            raise InvalidGraph(
                f"tensor {tensor!r} has its data in {real}, which does not exist"
                if not os.path.exists(real)  # noqa: PTH110
                else f"tensor {tensor!r} has its data in {real}, which is not a file",
                hint=_close_matches(real) or "It belongs beside the model: bring it there, too.",
            )
        return real


def missing(path: str) -> NoSuchFile:
    """Return the error for a model that is not there, with the names that come close."""
    if not path:
        return NoSuchFile("the model's path is empty")
    if "://" in path:
        return NoSuchFile(
            f"{path} is an address, not a path",
            hint="Download the model first; tenonnx_ray.fetched(address) returns a path.",
        )
    if os.path.isdir(path):  # noqa: PTH112 - a name that is too long is no error there
        models = sorted(entry.name for entry in Path(path).glob("*.onnx"))
        hint = f"The folder has {', '.join(models[:5])}." if models else "It has no .onnx file."
        return NoSuchFile(f"{path} is a folder, not a model", hint=hint)
    if os.path.islink(path):  # noqa: PTH114 - as above
        target = os.readlink(path)  # noqa: PTH115
        return NoSuchFile(f"{path} is a link to {target}, which does not exist")
    return NoSuchFile(f"there is no model at {path}", hint=_close_matches(path))


def _close_matches(path: str) -> str | None:
    folder = Path(path).parent
    if path.startswith("~"):
        return "Only shells know what ~ is: pathlib.Path(path).expanduser() does, too."
    if not os.path.isdir(folder):  # noqa: PTH112
        return f"The folder {folder} does not exist either."
    try:
        names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return None
    import difflib

    matches = difflib.get_close_matches(Path(path).name, names)
    return f"The folder has {', '.join(matches)}." if matches else None


def _is_inside(real: str, root: str) -> bool:
    return real == root or real.startswith(root.rstrip(os.sep) + os.sep)


def _hugging_face_blobs(folder: str) -> str | None:
    """Return ``<repo>/blobs`` for a folder at or below ``<repo>/snapshots/<revision>``."""
    for place in (Path(folder), *Path(folder).parents):
        if place.parent.name == "snapshots" and (place.parent.parent / "blobs").is_dir():
            return str(place.parent.parent / "blobs")
    return None
