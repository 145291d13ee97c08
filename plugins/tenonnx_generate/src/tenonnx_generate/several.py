"""Several files, or their contents, that one prompt has: sounds or images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from tenonnx_generate.errors import Missing, Refused

Each = TypeVar("Each")


class Several(Generic[Each]):
    """A sequence of files, or of contents of files, that are open.

    Args:
        opened: The items, in order.

    Raises:
        Refused: There are none, or more than ``most``.
    """

    word: ClassVar[str]
    """The name of one in messages."""

    most: ClassVar[int]
    """The greatest number of them."""

    def __init__(self, opened: Sequence[Each]) -> None:
        self._opened = list(opened)
        if not self._opened:
            raise Refused(f"there are no {self.word}s")
        if len(self._opened) > self.most:
            raise Refused(
                f"there are {len(self._opened)} {self.word}s; at most {self.most} are read"
            )

    def __len__(self) -> int:
        return len(self._opened)

    def __iter__(self) -> Iterator[Each]:
        return iter(self._opened)

    @staticmethod
    def files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
        """Return paths of files that are there.

        Raises:
            TypeError: One is no path.
            Missing: One does not exist.
        """
        found = [Path(path) for path in paths]
        for path in found:
            if not path.is_file():
                raise Missing(f"{path} does not exist")
        return found

    @classmethod
    def contents(cls, given: Iterable[bytes | bytearray | memoryview]) -> list[bytes]:
        """Return contents of files as bytes.

        Raises:
            TypeError: One is no ``bytes``.
        """
        found = []
        for content in given:
            if not isinstance(content, bytes | bytearray | memoryview):
                raise TypeError(f"{cls.word}: expected bytes, found {type(content).__name__}")
            found.append(bytes(content))
        return found
