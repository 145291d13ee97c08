"""Files that nobody but this user and root can have written.

Kernels are executed and weights are mapped from files that another process left. A file is trusted
if it is a regular one, belongs to this user or to root, and nobody else may write to it. Its folder
and all folders above that must be such too; above the cache, a folder with the sticky bit does
(``/tmp``), for there nobody can replace what belongs to others. Symbolic links to folders are
followed if they belong to this user or to root; a file may not be one. Where there is an access
control list, a mode's bits of the group are the most that its users and groups may do.

Windows has other rights: there only the kind of a file counts.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import stat
import struct
from collections.abc import Iterator

log = logging.getLogger("tenonnx.cache")

# Without O_NONBLOCK, opening a named pipe would wait for a writer.
OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | getattr(os, "O_CLOEXEC", 0)

ACL_VERSION = (2).to_bytes(4, "little")
ACL_ENTRY = struct.Struct("<HHI")  # tag, permissions, user or group
ACL_USER, ACL_GROUP = 0x02, 0x08
ACL_WRITE = 0x02

POSIX = hasattr(os, "geteuid") and NOFOLLOW != 0
MAX_LINKS = 40
OWN_FOLDER = "keep the cache in a folder of your own (TENONNX_CACHE_DIR, TENONNX_KERNELS_DIR)"

Path = str | os.PathLike[str]

FILE_KINDS = {
    stat.S_IFLNK: "is a symbolic link",
    stat.S_IFDIR: "is a folder",
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
}


class Untrusted(OSError):
    """Somebody else may have written a file, or can put another one in its place."""


def open_trusted(path: Path, like: os.stat_result | None = None) -> int:
    """Open a file for reading; never waits. Returns a file descriptor.

    Args:
        path: The file.
        like: Status of a folder of code: who owns it or may write there is trusted as well, and
            the file's folder is not looked at.

    Raises:
        Untrusted: It is not trusted. The log says why, once per folder.
        OSError: It cannot be opened.
    """
    path = os.fspath(path)
    folder = os.path.dirname(path)
    try:
        descriptor = os.open(path, OPEN_FLAGS if like else OPEN_FLAGS | NOFOLLOW)
    except OSError as error:
        if NOFOLLOW and error.errno in (errno.ELOOP, errno.EMLINK):
            raise _refused(folder, path, FILE_KINDS[stat.S_IFLNK], "delete it") from None
        raise
    try:
        if like is None:
            require_folder(folder)
        if found := fault(os.fstat(descriptor), like, descriptor):
            raise _refused(folder, path, found, "delete it")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_trusted(path: Path, like: os.stat_result | None = None) -> bytes:
    """Return the content of a file; see ``open_trusted``."""
    with open(open_trusted(path, like), "rb", buffering=0) as file:
        return file.read()


def write_trusted(path: Path, *content: bytes | memoryview) -> None:
    """Write a file at once or not at all, piece after piece, and make its folder.

    It has the permissions of new files, so a container's user can read root's kernels.

    Raises:
        Untrusted: Others can write to the folder.
        OSError: It cannot be written.
    """
    path = os.fspath(path)
    make_folder(os.path.dirname(path))
    draft = f"{path}.{os.urandom(8).hex()}"
    descriptor = os.open(draft, NEW, 0o644)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for piece in content:
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; nobody else can write there.

    Those of root can be read by all, who then need not compile what root has.

    Raises:
        Untrusted: It is there, and not trusted.
        OSError: It cannot be made.
    """
    require_folder(folder)
    missing = []
    above = os.fspath(folder)
    while above and not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    rights = 0o755 if POSIX and os.geteuid() == 0 else 0o700
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, rights)
    if missing:
        require_folder(folder)


def require_folder(folder: Path) -> None:
    """Make sure that a folder is trusted, if it is there; look at it once.

    Raises:
        Untrusted: It is not. The log says why, once.
        OSError: It cannot be looked at.
    """
    if (found := _fault_of(os.fspath(folder))) is not None:
        path, what, hint = found
        raise _refused(os.fspath(folder), path, what, hint)


def require_installed(folder: Path, like: os.stat_result) -> None:
    """Make sure that a folder of installed files is trusted as far as one of code is.

    Raises:
        Untrusted: It is not. The log says why, once.
        OSError: It cannot be looked at.
    """
    status, folder = os.stat(folder), os.fspath(folder)
    if found := _owner_fault(status, like) or _rights_fault(status, like, folder):
        raise _refused(folder, folder, found, "install it anew")


def is_trusted(folder: Path) -> bool:
    """Return whether a folder is trusted, if it is there."""
    try:
        require_folder(folder)
    except OSError:
        return False
    return True


# A folder that is not trusted, why not, and how to mend it.
Fault = tuple[str, str, str]

_faults: dict[tuple[str, int], Fault | None] = {}
_told: dict[str, object] = {}


def _fault_of(folder: str) -> Fault | None:
    key = folder, os.geteuid() if POSIX else 0
    try:
        return _faults[key]
    except KeyError:
        found = folder_fault(folder)
        # A relative folder is another one after chdir, and one that is not there may be made.
        if os.path.isabs(folder) and (found or os.path.isdir(folder)):
            _faults[key] = found
        return found


def warn_once(folder: Path, message: str, *values: object) -> None:
    """Log what is wrong with a folder, or with a file in it, unless something has been said."""
    # setdefault is atomic: of two threads one finds its own object.
    mine = object()
    if _told.setdefault(os.fspath(folder), mine) is mine:
        log.warning(message, *values)


def _refused(folder: str, path: str, what: str, hint: str) -> Untrusted:
    warn_once(folder, "%s is not used, because it %s: %s", path, what, hint)
    return Untrusted(errno.EPERM, f"it {what}: {hint}", path)


def folder_fault(folder: str) -> Fault | None:
    """Look at a folder and at all above it, as far as they are there.

    A relative one is looked at from the working directory on.

    Raises:
        OSError: One of them cannot be looked at.
    """
    if not POSIX:
        return None
    for path, status, is_above in _way_to(folder):
        if found := _owner_fault(status):
            return path, found, OWN_FOLDER
        if stat.S_ISLNK(status.st_mode):  # its rights mean nothing; its target is on the way, too
            continue
        if (found := _rights_fault(status, None, path)) and not (
            is_above and status.st_mode & stat.S_ISVTX
        ):
            mended = "go-w" if not is_above else "+t"
            return path, found, f"chmod {mended} {path}, or {OWN_FOLDER}"
    return None


def _way_to(folder: str) -> Iterator[tuple[str, os.stat_result, bool]]:
    """Yield every folder and link on the way, and whether another folder is to be in it."""
    path = os.sep if os.path.isabs(folder) else os.curdir
    waiting = _parts(folder)
    links = 0
    yield path, os.stat(path), bool(waiting)
    while waiting:
        path = os.path.join(path, waiting.pop())
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(status.st_mode):
            yield path, status, bool(waiting)
            continue
        yield path, status, True
        if (links := links + 1) > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
        target = os.readlink(path)
        waiting += _parts(target)
        path = os.sep if os.path.isabs(target) else os.path.dirname(path) or os.curdir


def _parts(path: str) -> list[str]:
    """Return the names in a path, the last first."""
    return [part for part in path.split(os.sep)[::-1] if part not in ("", os.curdir)]


def fault(
    status: os.stat_result, like: os.stat_result | None = None, at: Path | int | None = None
) -> str | None:
    """Return why a file is not trusted; ``None`` if it is.

    Args:
        status: The file's.
        like: As in ``open_trusted``.
        at: Its path or descriptor, by which its access control list is read.
    """
    if not stat.S_ISREG(status.st_mode):
        return FILE_KINDS.get(stat.S_IFMT(status.st_mode), "is a device")
    return _owner_fault(status, like) or _rights_fault(status, like, at)


def _owner_fault(status: os.stat_result, like: os.stat_result | None = None) -> str | None:
    owner = status.st_uid
    if not POSIX or owner == os.geteuid() or owner == 0 or (like and owner == like.st_uid):
        return None
    return f"belongs to user {owner}"


def _rights_fault(
    status: os.stat_result, like: os.stat_result | None, at: Path | int | None
) -> str | None:
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not POSIX or not others:
        return None
    if others & stat.S_IWGRP and at is not None and _names_writers(_access_list(at)):
        return "can be written by others, as its access control list says"
    if like is not None:
        others &= ~(like.st_mode & (0o022 if like.st_gid == status.st_gid else stat.S_IWOTH))
    if others & stat.S_IWOTH:
        return "can be written by anybody"
    if others and not _is_private(status.st_uid, status.st_gid):
        return "can be written by its group"
    return None


def _access_list(at: Path | int) -> bytes:
    """Return the access control list of a file or folder as Linux stores it; empty if none."""
    if not hasattr(os, "getxattr"):
        return b""
    try:
        return os.getxattr(at, "system.posix_acl_access")
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return b""
        raise


def _names_writers(access: bytes) -> bool:
    """Return whether an access control list lets a user or group write that it names.

    It is a version, 2, and entries of a tag, permissions and an id. What its format does not say
    may be anything.
    """
    # A form that is not understood counts as one that lets others write.
    version, entries = access[:4], access[4:]
    if access and (version != ACL_VERSION or len(entries) % ACL_ENTRY.size):
        return True
    trusted = 0, os.geteuid()
    return any(
        tag == ACL_GROUP or (tag == ACL_USER and number not in trusted)
        for tag, permissions, number in ACL_ENTRY.iter_unpack(entries)
        if permissions & ACL_WRITE
    )


@functools.cache
def _is_private(user: int, group: int) -> bool:
    """Return whether a group is one that many systems give each user, with nobody else in it."""
    import grp
    import pwd

    if user == 0:
        return False
    try:
        name, known = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return known.gr_name == name and set(known.gr_mem) <= {name}
