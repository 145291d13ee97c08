"""Stores that fsspec knows and pyarrow does not, as a file system of pyarrow's form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tenonnx import InvalidArgument
from tenonnx_ray.needed import needed


def of_fsspec(address: str) -> tuple[Store, str]:
    """Return the store of an address, and the path in it.

    Raises:
        InvalidArgument: The address has an unknown scheme, or its library is not installed.
    """
    core = needed("fsspec.core")
    try:
        files, path = core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        raise InvalidArgument(
            f"{address} has no scheme that is known: pyarrow has none, and fsspec says: {error}"
        ) from error
    return Store(files), path


@dataclass(frozen=True)
class File:
    """A file or a folder; its attributes are those of pyarrow.

    Attributes:
        path: Its path.
        type: A ``pyarrow.fs.FileType``.
        size: Its size in bytes.
        mtime_ns: The store's key of its version, as text.
    """

    path: str
    type: Any
    size: int
    mtime_ns: str


class Store:
    """The methods of pyarrow's file systems that :mod:`tenonnx_ray.fetching` needs.

    pyarrow's own adapter has no time for files of some stores, so versions would look alike.

    Args:
        files: A file system of fsspec.
    """

    def __init__(self, files: Any) -> None:
        self._files = files
        self._types = needed("pyarrow.fs").FileType

    def get_file_info(self, wanted: Any) -> Any:
        """Return the description of a path, or those of what a selector selects."""
        if not isinstance(wanted, str):
            return [self._described(path) for path in self._files.find(wanted.base_dir)]
        if not self._files.exists(wanted):
            return File(wanted, self._types.NotFound, 0, "")
        if self._files.isdir(wanted):
            return File(wanted, self._types.Directory, 0, "")
        return self._described(wanted)

    def _described(self, path: str) -> File:
        key = str(self._files.ukey(path))
        return File(path, self._types.File, int(self._files.size(path) or 0), key)

    def open_input_stream(self, path: str) -> Any:
        """Open a file."""
        return self._files.open(path, "rb")
