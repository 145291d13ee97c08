"""Makes a Python for AArch64 that qemu-user runs: ``python -m tools.emulated FOLDER``.

apt brings Python and the C library, as it knows them here, and pip what tenonnx and tests of its
kernels import. Both are unpacked into the folder, and nothing of this system is changed:
``FOLDER/bin/python`` is to be called like any other. There, as little as all processors have is
emulated, unless ``QEMU_CPU`` names another one.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.backend import ROOT
from tools.wheels import TOOLS

# Programs, and the packages of Debian that have them.
NEEDED = {"qemu-aarch64": "qemu-user", "apt-get": "apt", "dpkg-deb": "dpkg"}

PACKAGES = ("python3", "libstdc++6")

START = """#!/bin/sh
# Python for AArch64; -0 has it start others like itself.
here=$(cd "$(dirname "$0")/.." && pwd)
exec qemu-aarch64 -cpu "${QEMU_CPU:-cortex-a53}" -L "$here/root" -0 "$here/bin/python" \\
    -E "PYTHONHOME=$here/root/usr" "$here/root/usr/bin/python3" "$@"
"""

FACTS = """
import os, site, sys
print(*sys.version_info[:2], os.confstr("CS_GNU_LIBC_VERSION").rpartition(".")[2])
print(site.getsitepackages()[-1])
"""

# Of glibc 2: what the oldest wheels that pip knows for AArch64 need.
OLDEST_LIBC = 17


def main() -> None:
    """Make it, unless it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="is made, or left as it is if it has a Python")
    folder = parser.parse_args().folder.absolute()
    # Not in the folder itself: Python takes pyvenv.cfg of the one above for its own.
    python = folder / "bin" / "python"
    if not python.exists():
        for program, package in NEEDED.items():
            if shutil.which(program) is None:
                raise SystemExit(f"{program} is not here: apt-get install {package}")
        shutil.rmtree(folder, ignore_errors=True)
        unpack_system(folder)
        started = write_start(folder / "bin" / "starting")
        add_packages(started)
        started.rename(python)
    print(python)


def unpack_system(folder: Path) -> None:
    """Unpack Python and all that it needs, which apt downloads."""
    root, state, cache = (folder / name for name in ("root", "apt", "packages"))
    for made in (root, state / "lists" / "partial", cache / "archives" / "partial"):
        made.mkdir(parents=True)
    (state / "status").touch()  # nothing is installed there
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "Dir::Cache": cache,
        "Dir::State": state,
        "Dir::State::status": state / "status",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    hint = (
        "its sources are to have packages for arm64, as Debian's have; "
        "python -m tools.wheels --arm-python takes any other emulated Python"
    )
    attempt([*apt, "update"], hint)
    attempt([*apt, "install", "-y", "-d", "--no-install-recommends", *PACKAGES], hint)
    for archive in sorted((cache / "archives").glob("*.deb")):
        attempt(["dpkg-deb", "-x", str(archive), str(root)], "the file may be damaged")
    shutil.rmtree(cache)
    shutil.rmtree(state)


def write_start(path: Path) -> Path:
    """Write what starts the emulator."""
    path.parent.mkdir()
    path.write_text(START)
    path.chmod(0o755)
    return path


def add_packages(python: Path) -> None:
    """Add what tenonnx depends on, and what tests of kernels import."""
    said = attempt([str(python), "-c", FACTS], "the emulator may be too old")
    numbers, packages = said.splitlines()
    major, minor, libc = map(int, numbers.split())
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text("utf-8"))["project"]
    wanted = re.findall(r"\d+", project["requires-python"])
    if [major, minor] < [int(number) for number in wanted]:
        raise SystemExit(
            f"apt has Python {major}.{minor}; expected {project['requires-python']}, "
            "as Debian has from version 12 on"
        )
    # pip takes each name as it is, and none for older ones.
    tags = [f"manylinux_2_{number}_aarch64" for number in range(libc, OLDEST_LIBC - 1, -1)]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", packages]
    pip += ["--only-binary=:all:", f"--python-version={major}.{minor}"]
    pip += [f"--platform={tag}" for tag in (*tags, "manylinux2014_aarch64")]
    attempt([*pip, *project["dependencies"], *TOOLS], "all have wheels for AArch64 on PyPI")


def attempt(command: list[str], hint: str) -> str:
    """Run a command; return what it prints.

    Raises:
        SystemExit: It fails; with what it said last, and with a hint.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise SystemExit(f"{' '.join(command)}\n{said}\nfailed ({done.returncode}): {hint}")
    return done.stdout


if __name__ == "__main__":
    main()
