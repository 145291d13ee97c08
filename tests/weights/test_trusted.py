"""Trusted files, and the way they are written."""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from planting import FILES, FOLDERS, NOBODY, Plant, give_away, share
from tenonnx.weights import trusted
from tenonnx.weights.trusted import (
    Untrusted,
    fault,
    make_folder,
    open_trusted,
    read_trusted,
    require_installed,
    write_trusted,
)

pytestmark = pytest.mark.skipif(not trusted.POSIX, reason="there are no such rights")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "above" / "cache" / "file"
    write_trusted(path, b"content")
    return path


def forget() -> None:
    trusted._faults.clear()


@pytest.mark.parametrize("plant", FILES)
def test_files_that_are_not_trusted(
    plant: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_trusted(path) == b"content"
    change, said = FILES[plant]
    change(path)
    for _ in range(2):
        with pytest.raises(Untrusted, match=said):
            open_trusted(path)
    (message,) = caplog.messages
    assert message == f"{path} is not used, because it {said}: delete it"


@pytest.mark.parametrize("plant", FOLDERS)
def test_folders_that_are_not_trusted(
    plant: str, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change, said = FOLDERS[plant]
    change(path.parent)
    forget()
    for use in (open_trusted, read_trusted, lambda path: write_trusted(path, b"new")):
        with pytest.raises(Untrusted, match=said):
            use(path)
    assert path.read_bytes() == b"content"
    (message,) = caplog.messages
    assert said in message
    assert "TENONNX_CACHE_DIR" in message


def test_folders_that_are(path: Path, tmp_path: Path) -> None:
    """A folder of many users' in which nobody can replace what is another's; a link of one's own"""
    (tmp_path / "above").chmod(0o1777)
    (tmp_path / "link").symlink_to("above/../above")
    for folder in (path.parent, tmp_path / "link" / "cache"):
        assert read_trusted(folder / path.name) == b"content"


def test_links_in_a_ring(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_trusted(tmp_path / "a" / "file", b"")


def test_a_relative_folder_is_the_working_directorys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    assert read_trusted(path.name) == b"content"
    path.parent.chmod(0o777)
    with pytest.raises(Untrusted):
        read_trusted(path.name)


@pytest.mark.parametrize(("user", "rights"), [(0, 0o755), (os.getuid() or NOBODY, 0o700)])
def test_what_is_made_is_nobody_elses(
    user: int, rights: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mask has no effect; root's files can be read."""
    monkeypatch.setattr(trusted, "_fault_of", lambda _: None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    mask = os.umask(0)
    try:
        write_trusted(tmp_path / "a" / "b" / "file", b"content")
    finally:
        os.umask(mask)
    found = [tmp_path / name for name in ("a", "a/b", "a/b/file")]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in found]
    assert modes == [rights, rights, 0o644]


def test_a_write_that_fails_leaves_nothing(path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_trusted(path, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [found.name for found in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == b"content"


@pytest.mark.parametrize("plant", FILES)
def test_what_is_not_trusted_is_replaced(plant: str, path: Path) -> None:
    """The folder is this user's; only another folder is in the way."""
    FILES[plant][0](path)
    if plant == "folder":
        with pytest.raises(IsADirectoryError):
            write_trusted(path, b"new")
        assert [found.name for found in path.parent.iterdir()] == [path.name]
    else:
        write_trusted(path, b"new")
        assert read_trusted(path) == b"new"


def test_a_draft_is_a_new_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    draft = path.with_name(f"{path.name}.{bytes(8).hex()}")
    draft.symlink_to(path.with_name("victim"))
    with pytest.raises(FileExistsError):
        write_trusted(path, b"new")
    assert not path.with_name("victim").exists()


def status(mode: int, user: int = 0, group: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 0, 0, 1, user, group, 0, 0, 0, 0))


def test_a_users_private_group_is_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many systems let groups write by default, for each user has one."""
    import grp
    import pwd

    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="ann"))
    for name, members, ours in [("ann", [], True), ("ann", ["bob"], False), ("lab", [], False)]:
        group = SimpleNamespace(gr_name=name, gr_mem=members)
        monkeypatch.setattr(grp, "getgrgid", lambda _, group=group: group)
        trusted._is_private.cache_clear()
        assert (fault(status(0o664, 1234, 1234)) is None) == ours
        assert fault(status(0o666, 1234, 1234)) == "can be written by anybody"
    trusted._is_private.cache_clear()


@pytest.mark.parametrize(
    ("change", "ours"),
    [
        (lambda path: path.chmod(0o664), True),
        (share((2, NOBODY)), False),
        (share((8, 1000)), False),
        (share((2, NOBODY), mask=5), True),  # they may read, whatever their entries say
        (share((2, 0), (2, os.geteuid() if trusted.POSIX else 0)), True),
    ],
    ids=["no list", "a user", "a group", "masked", "root and oneself"],
)
def test_a_list_lets_others_write_beside_a_private_group(
    change: Plant, ours: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group's bits are the list's mask then, and not the private group's."""
    monkeypatch.setattr(trusted, "_is_private", lambda *_: True)
    for changed in (path, path.parent):
        forget()
        assert read_trusted(path) == b"content"
        change(changed)
        forget()
        if ours:
            assert read_trusted(path) == b"content"
        else:
            with pytest.raises(Untrusted, match="access control list"):
                read_trusted(path)
        if hasattr(os, "removexattr"):
            with contextlib.suppress(OSError):
                os.removexattr(changed, "system.posix_acl_access")
        changed.chmod(0o755)


@pytest.mark.parametrize(
    ("access", "names"),
    [
        ("", False),
        ("02000000", False),
        ("02000000 0100 0700 ffffffff 0800 0500 e8030000", False),
        ("02000000 0100 0700 ffffffff 0800 0600 e8030000", True),
        ("03000000", True),
        ("02000000 0100 0700", True),
    ],
)
def test_the_bytes_of_lists(access: str, names: bool) -> None:
    assert trusted._names_writers(bytes.fromhex(access)) == names


def test_installed_files_are_trusted_as_code_is() -> None:
    code = status(0o755, 4242, 4242)
    assert fault(status(0o644, 4242, 4242), code) is None
    assert fault(status(0o644, NOBODY, 4242), code) == f"belongs to user {NOBODY}"
    assert fault(status(0o664, 4242, 4242), code) == "can be written by its group"
    shared = status(0o775, 4242, 4242)
    assert fault(status(0o664, 4242, 4242), shared) is None
    assert fault(status(0o664, 4242, 2000), shared) == "can be written by its group"
    assert fault(status(0o666, 4242, 4242), shared) == "can be written by anybody"


def test_an_installed_folder(tmp_path: Path) -> None:
    code = tmp_path.stat()
    require_installed(tmp_path, code)
    other = tmp_path / "other"
    make_folder(other)
    give_away(other)
    with pytest.raises(Untrusted, match="install it anew"):
        require_installed(other, code)
