"""Ways to leave something in a folder that is not trusted."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

NOBODY = 65534

Plant = Callable[[Path], object]


def to_link(path: Path) -> None:
    """Make a file a link to one of the same content."""
    target = path.with_name(f"{path.name}.target")
    path.rename(target)
    path.symlink_to(target)


def to_pipe(path: Path) -> None:
    """Make a file a named pipe, which nobody writes to."""
    path.unlink()
    os.mkfifo(path)


def to_folder(path: Path) -> None:
    """Make a file a folder, with a file in it."""
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def give_away(path: Path) -> None:
    """Make something another user's."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def to_foreign_link(folder: Path) -> None:
    """Put another user's link in a folder's place."""
    shutil.move(folder, folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))
    give_away(folder)


def share(*writers: tuple[int, int], mask: int = 7) -> Plant:
    """Return a change that gives something an access control list.

    Args:
        writers: Tags (2 is a user, 8 a group) and numbers of those that may read and write.
        mask: The most that they may do: 4 to read, 2 to write.
    """

    def change(path: Path) -> None:
        entries = [(1, 7, -1), (4, 5, -1), (16, mask, -1), (32, 5, -1)]
        entries += [(tag, 6, number) for tag, number in writers]
        packed = [struct.pack("<HHi", *entry) for entry in sorted(entries)]
        try:
            os.setxattr(path, "system.posix_acl_access", b"".join([b"\2\0\0\0", *packed]))
        except (AttributeError, OSError) as error:
            pytest.skip(f"there are no access control lists: {error}")

    return change


BY_LIST = "can be written by others, as its access control list says"

FILES: dict[str, tuple[Plant, str]] = {
    "anybody's": (lambda path: path.chmod(0o666), "can be written by anybody"),
    "a group's": (lambda path: path.chmod(0o664), "can be written by its group"),
    "a named user's": (share((2, NOBODY)), BY_LIST),
    "a named group's": (share((8, 1000)), BY_LIST),
    "foreign": (give_away, f"belongs to user {NOBODY}"),
    "link": (to_link, "is a symbolic link"),
    "pipe": (to_pipe, "is a named pipe"),
    "folder": (to_folder, "is a folder"),
}
"""Changes to a file, and the warning about each."""

FOLDERS: dict[str, tuple[Plant, str]] = {
    "anybody's": (lambda path: path.chmod(0o777), "can be written by anybody"),
    "sticky": (lambda path: path.chmod(0o1777), "can be written by anybody"),
    "a named user's": (share((2, NOBODY)), BY_LIST),
    "below a named group's": (lambda path: share((8, 1000))(path.parent), BY_LIST),
    "foreign": (give_away, f"belongs to user {NOBODY}"),
    "below anybody's": (lambda path: path.parent.chmod(0o777), "can be written by anybody"),
    "below a foreign one": (lambda path: give_away(path.parent), f"belongs to user {NOBODY}"),
    "foreign link": (to_foreign_link, f"belongs to user {NOBODY}"),
}
"""Changes to a folder, and the warning about each."""
