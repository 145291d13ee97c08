"""The release script: what it refuses, and where it states a version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = "plugins/tenonnx_ray"
STATED = (
    *("CITATION.cff", "pyproject.toml", "CHANGELOG.md"),
    *(f"{PRODUCT}/pyproject.toml", f"{PRODUCT}/CHANGELOG.md"),
)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script, of a repository that has no more than the files that state a version."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    import tools.release

    here = tmp_path / "here"
    here.joinpath(PRODUCT).mkdir(parents=True)
    for name in STATED:
        shutil.copy(ROOT / name, here / name)
    monkeypatch.setattr(tools.release, "ROOT", here)
    for variable in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(variable, "A Maintainer")
    for variable in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(variable, "maintainer@example.org")
    git(here, "init", "--quiet", "--initial-branch", "main")
    git(here, "add", ".")
    git(here, "commit", "--quiet", "--message", "all")
    return tools.release


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode()


@pytest.mark.parametrize("version", ["", "1", "v1.0.0", "1.0.0-rc1", "1.0.01", "1.0.0;rm"])
def test_what_is_no_version_is_refused(release: Any, version: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="expected a version"):
        release.refuse_unready(version, tmp_path / "dist", rehearsal=True)


def test_refusals(release: Any, tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    release.refuse_unready("1.0.0rc1", dist, rehearsal=False)
    git(release.ROOT, "switch", "--quiet", "--create", "mine")
    release.refuse_unready("1.0.0", dist, rehearsal=True)
    with pytest.raises(SystemExit, match="of main, not of mine"):
        release.refuse_unready("1.0.0", dist, rehearsal=False)
    git(release.ROOT, "switch", "--quiet", "main")
    dist.mkdir()
    dist.joinpath("tenonnx-1.0.0.tar.gz").touch()
    with pytest.raises(SystemExit, match=r"has files of 1\.0\.0 already"):
        release.refuse_unready("1.0.0", dist, rehearsal=False)
    release.ROOT.joinpath("pyproject.toml").write_text("")
    with pytest.raises(SystemExit, match=r"commit or remove first:\nM pyproject\.toml"):
        release.refuse_unready("2.0.0", dist, rehearsal=False)
    git(release.ROOT, "tag", "v2.0.0")
    with pytest.raises(SystemExit, match=r"v2\.0\.0 is tagged already"):
        release.refuse_unready("2.0.0", dist, rehearsal=False)


def test_a_tag_states_its_version_everywhere_and_nothing_changes_here(
    release: Any, tmp_path: Path
) -> None:
    made = release.Release("12.3.4", tmp_path / "clone", tmp_path / "dist")
    for step in (release.clone, release.state_version, release.tag):
        step(made)
    assert git(made.clone, "describe") == "v12.3.4\n"
    for name in STATED:
        assert "12.3.4" in git(made.clone, "show", f"v12.3.4:{name}")
    changes = made.clone.joinpath("CHANGELOG.md").read_text()
    assert changes.index("## [Unreleased]\n\n## [12.3.4] - 2") < changes.index("###")
    assert git(release.ROOT, "status", "--porcelain") == ""
    assert git(release.ROOT, "tag") == ""


def test_a_release_without_changes_is_refused(release: Any, tmp_path: Path) -> None:
    made = release.Release("12.3.4", tmp_path / "clone", tmp_path / "dist")
    release.clone(made)
    release.state_version(made)
    with pytest.raises(SystemExit, match="says nothing of this release"):
        release.state_version(made)
