"""The installed packages are those that importlib.metadata lists."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tenonnx import installed


def by_metadata(group: str) -> set[tuple[str, ...]]:
    return {
        (entry.name, entry.value, entry.dist.name, entry.dist.version)
        for entry in importlib.metadata.entry_points(group=group)
        if entry.dist is not None
    }


def put(folder: Path, name: str, version: str, entry_points: str, kind: str = "dist-info") -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.{kind}"
    info.mkdir(parents=True)
    file = "METADATA" if kind == "dist-info" else "PKG-INFO"
    (info / file).write_text(f"Name: {name}\nVersion: {version}\n\nVersion: of a text\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.mark.parametrize("group", ["tenonnx", "console_scripts", "pytest11", "nobody.has.this"])
def test_entry_points_of_this_environment(group: str) -> None:
    assert set(installed.entry_points(group)) == by_metadata(group)


def test_versions_of_this_environment() -> None:
    names = [distribution.name for distribution in importlib.metadata.distributions()]
    assert {name: installed.version(name) for name in names} == {
        name: importlib.metadata.version(name) for name in names
    }
    assert installed.version("a-distribution-that-is-not-there") is None


def test_forms_of_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[other]\na = no\n\n# a remark\n[toy]\nb = json\nc=json.decoder:JSONDecoder.decode [x]\n"
    put(tmp_path, "a-dotted.Name", "1.0+local", text)
    put(tmp_path, "older", "2", "[toy]\nd = json : loads\n", "egg-info")
    monkeypatch.syspath_prepend(tmp_path)
    found = installed.entry_points("toy")
    assert {entry[:2] for entry in found} == {entry[:2] for entry in by_metadata("toy")}
    assert {entry[2:] for entry in found} == {("a-dotted.Name", "1.0+local"), ("older", "2")}
    loaded = {entry.name: entry.load() for entry in found}
    import json

    assert loaded == {"b": json, "c": json.JSONDecoder.decode, "d": json.loads}


def test_what_comes_first_hides_its_namesakes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "second", "my-toy", "1", "[toy]\na = old\n")
    put(tmp_path / "first", "my_toy", "2", "[toy]\na = new\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second"), *sys.path])
    assert [entry.value for entry in installed.entry_points("toy")] == ["new"]
    assert {entry[1] for entry in by_metadata("toy")} == {"new"}
    assert installed.version("My.Toy") == importlib.metadata.version("My.Toy") == "2"


def test_archives_are_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("packed-3.dist-info/METADATA", "Name: packed\nVersion: 3\n")
        packed.writestr("packed-3.dist-info/entry_points.txt", "[toy]\nz = json\n")
    monkeypatch.syspath_prepend(archive)
    assert installed.entry_points("toy") == [("z", "json", "packed", "3")]
    assert installed.version("packed") == "3"


def origin(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return folders[0] if folders else spec.origin


def test_places_of_this_environment() -> None:
    known = importlib.metadata.packages_distributions()
    names = [*filter(str.isidentifier, known), "json", "math", "sys", "bisect", "no_such_package"]
    assert "numpy" in names
    # When pip is looked for, setuptools' finder gives up its own distutils for this process.
    unloaded = [name for name in names if name not in sys.modules and name != "pip"]
    assert {name: installed.place(name) for name in unloaded} == {
        name: origin(name) for name in unloaded
    }
    assert installed.place("numpy") == str(Path(np.__file__).parent)


@pytest.mark.parametrize("hiding", ["toys/__init__.py", "toys.py", "toys/more.py", "toys"])
def test_what_comes_first_hides_packages(
    hiding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (second / "toys" / "__init__.py", first / hiding):
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(sys, "path", [str(first), str(second), *sys.path])
    installed.entry_points("toy")  # looks at the folders
    assert installed.place("toys") == origin("toys")
    hides = {"toys/__init__.py": first / "toys", "toys.py": first / "toys.py"}
    assert origin("toys") == str(hides.get(hiding, second / "toys"))


def test_packages_in_archives_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "__init__.py").touch()
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("toys/__init__.py", "")
    monkeypatch.setattr(sys, "path", [str(archive), str(tmp_path), *sys.path])
    installed.entry_points("toy")
    assert installed.place("toys") == origin("toys") == str(archive / "toys")


def test_entry_points_are_read_again_when_a_folder_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "_announced", {})
    put(tmp_path, "one", "1", "[toy]\na = json\n")
    long_ago = time.time_ns() - 10 * installed.SETTLED
    os.utime(tmp_path, ns=(long_ago, long_ago))

    def names() -> set[str]:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [str(tmp_path)])
            return {entry.name for entry in installed.entry_points("toy")}

    assert names() == {"a"}
    with monkeypatch.context() as patch:
        patch.setattr(installed, "read", None)
        assert names() == {"a"}
    put(tmp_path, "two", "1", "[toy]\nb = json\n")
    assert names() == {"a", "b"}
