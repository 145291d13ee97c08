"""Makes a release: ``python -m tools.release VERSION [--dry-run]``.

Everything happens in a clone of what is committed, so that a release that fails leaves nothing
behind. A tag and its commit are brought back at the end; hosted CI publishes a tag once it is
pushed. With ``--dry-run`` nothing is brought back.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.backend import ROOT

# Final versions and pre-releases, as PEP 440 spells them.
VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){1,2}((a|b|rc)[1-9]\d*)?")

UNRELEASED = "## [Unreleased]\n"

CLASSIFY = "examples/digits/classify.py"


class Release(NamedTuple):
    """A version, the clone that it is made in, and where its files go."""

    version: str
    clone: Path
    output: Path

    def run(self, *command: str | Path) -> None:
        """Run a command in the clone; the release ends where one fails."""
        subprocess.run([str(part) for part in command], cwd=self.clone, check=True)

    def python(self, *arguments: str | Path) -> None:
        """Run this Python in the clone."""
        self.run(sys.executable, *arguments)

    def files(self) -> list[Path]:
        """Return what was built."""
        return sorted(self.output.glob(f"tenonnx*-{self.version}*"))


def main() -> None:
    """Make the release, or end with what is in its way."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0], allow_abbrev=False)
    parser.add_argument("version", nargs="?", help="as PEP 440 has it (what pyproject.toml says)")
    parser.add_argument("--dry-run", action="store_true", help="do all of it, but do not tag")
    parser.add_argument("--output", type=Path, default=Path("dist"), help="a folder (dist)")
    parser.add_argument(
        "--tested", action="store_true", help="CI has passed on this commit: leave the tests out"
    )
    given = parser.parse_args()
    version = given.version or _stated_version()
    refuse_unready(version, given.output, rehearsal=given.dry_run)
    given.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        release = Release(version, Path(folder, "tenonnx"), given.output.absolute())
        steps: list[tuple[str, Callable[[Release], None]]] = [
            ("clone what is committed", clone),
            ("state the version", state_version),
            ("lint, types, tests", test),
            ("build and try wheels and the source distribution", build),
            ("check what the package index will be given", check),
            ("install from elsewhere, classify digits", try_plain),
            ("commit and tag", tag),
        ]
        for number, (title, step) in enumerate(steps, 1):
            if given.tested and step is test:
                continue
            print(f"{number}/{len(steps)} {title}", file=sys.stderr)
            step(release)
        if given.dry_run:
            print(f"{version} can be released; nothing was tagged", file=sys.stderr)
            return
        _git("fetch", "--quiet", str(release.clone), "tag", f"v{version}")
    print(f"tagged; publish it: git push origin v{version}:main v{version}", file=sys.stderr)


def refuse_unready(version: str, output: Path, *, rehearsal: bool) -> None:
    """End if a version cannot be released from what is here."""
    require(VERSION.fullmatch(version) is not None, f"expected a version as 1.2.3, found {version}")
    require(f"v{version}" not in _git("tag", "--list").split(), f"v{version} is tagged already")
    left = [] if not output.is_dir() else sorted(output.glob(f"tenonnx*-{version}*"))
    require(not left, f"{output} has files of {version} already: remove them")
    if not rehearsal:
        branch = _git("rev-parse", "--abbrev-ref", "HEAD")
        require(branch == "main", f"releases are made of main, not of {branch}")
    changed = _git("status", "--porcelain")
    require(not changed, f"commit or remove first:\n{changed}")


def clone(release: Release) -> None:
    """Clone what is committed."""
    _git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(release.clone))


def state_version(release: Release) -> None:
    """Write the version and today's date where they are stated."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    changes = release.clone / "CHANGELOG.md"
    _, found, notes = changes.read_text().partition(UNRELEASED)
    require(bool(found), f"CHANGELOG.md lacks the line {UNRELEASED.strip()!r}")
    require(bool(notes.split("\n## [")[0].strip()), "CHANGELOG.md says nothing of this release")
    heading = f"{UNRELEASED}\n## [{release.version}] - {today}\n"
    products = [file.parent for file in release.clone.glob("plugins/*/pyproject.toml")]
    stated = [(release.clone / "CITATION.cff", r"(?m)^version: .*$", f"version: {release.version}")]
    stated += [(stated[0][0], r"(?m)^date-released: .*$", f"date-released: {today}")]
    for folder in (release.clone, *products):
        version = (r'(?m)^version = ".*"$', f'version = "{release.version}"')
        stated += [(folder / "pyproject.toml", *version)]
        stated += [(folder / "CHANGELOG.md", re.escape(UNRELEASED), heading)]
    for file, pattern, text in stated:
        content, count = re.subn(pattern, text, file.read_text(), count=1)
        require(count == 1, f"{file} states no version where it is looked for")
        file.write_text(content)


def test(release: Release) -> None:
    """Do what continuous integration does, in an environment of its own."""
    release.run("env", "--unset=VIRTUAL_ENV", f"PYTHON={sys.executable}", ".ci/run")


def build(release: Release) -> None:
    """Build and try everything that is released."""
    release.python("-m", "tools.wheels", "--output", release.output)


def check(release: Release) -> None:
    """Have the index's own tools look at what was built."""
    files = release.files()
    wheels = [file for file in files if file.suffix == ".whl"]
    require(len(files) > len(wheels) > 0, f"{release.output} lacks wheels or sources: {files}")
    release.python("-m", "twine", "check", "--strict", *files)
    release.python("-m", "check_wheel_contents", *wheels)


def try_plain(release: Release) -> None:
    """Install the wheels for any machine and answer with them, where no source tree is."""
    wheels = [str(wheel) for wheel in release.output.glob(f"tenonnx*-{release.version}-*-any.whl")]
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        for command in (
            [sys.executable, "-m", "venv", folder],
            [str(python), "-m", "pip", "install", "--quiet", *wheels],
            [str(python), "-P", str(release.clone / CLASSIFY)],
        ):
            subprocess.run(command, cwd=folder, check=True)


def tag(release: Release) -> None:
    """Commit the stated version in the clone, and tag it."""
    release.run("git", "commit", "--quiet", "--all", "--message", f"release: {release.version}")
    title = f"tenonnx {release.version}"
    release.run("git", "tag", "--annotate", f"v{release.version}", "--message", title)


def require(right: bool, otherwise: str) -> None:
    """End with a message unless something is right."""
    if not right:
        raise SystemExit(otherwise)


def _stated_version() -> str:
    stated: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return stated


def _git(*arguments: str) -> str:
    command: Sequence[str] = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
