"""Installed distributions are those that importlib.metadata lists."""

from __future__ import annotations

import importlib.metadata
import zipfile
from pathlib import Path

import pytest

from tenonnx.process import distributions


def put(folder: Path, name: str, version: str, entry_points: str, kind: str = "dist-info") -> Path:
    info = folder / f"{name.replace('-', '_')}-{version}.{kind}"
    info.mkdir(parents=True)
    file = "METADATA" if kind == "dist-info" else "PKG-INFO"
    (info / file).write_text(f"Name: {name}\nVersion: {version}\n\nVersion: of a text\n")
    (info / "entry_points.txt").write_text(entry_points)
    return info


@pytest.mark.parametrize("group", ["tenonnx", "console_scripts", "pytest11", "nobody.has.this"])
def test_entry_points_of_this_environment(group: str) -> None:
    assert set(distributions.entry_points(group)) == {
        (entry.name, entry.value, entry.dist.name, entry.dist.version)
        for entry in importlib.metadata.entry_points(group=group)
        if entry.dist is not None
    }


def test_forms_of_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[other]\na = no\n\n# a remark\n[toy]\nb = json\nc=json.decoder:JSONDecoder.decode [x]\n"
    put(tmp_path, "a-dotted.Name", "1.0+local", text)
    put(tmp_path, "older", "2", "[toy]\nd = json : loads\n", "egg-info")
    assert not distributions.entry_points("toy")
    monkeypatch.syspath_prepend(tmp_path)
    found = distributions.entry_points("toy")
    assert {entry[2:] for entry in found} == {("a-dotted.Name", "1.0+local"), ("older", "2")}
    loaded = {entry.name: entry.load() for entry in found}
    import json

    assert loaded == {"b": json, "c": json.JSONDecoder.decode, "d": json.loads}


def test_distributions_in_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "packed.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("packed-3.dist-info/METADATA", "Name: packed\nVersion: 3\n")
        file.writestr("packed-3.dist-info/entry_points.txt", "[toy]\nz = json\n")
    monkeypatch.syspath_prepend(archive)
    assert distributions.entry_points("toy") == [("z", "json", "packed", "3")]
    assert distributions.version("packed") == "3"
    assert distributions.record("packed") is None


def test_the_list_of_installed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = put(tmp_path, "my-toy", "1", "") / "RECORD"
    listed.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert distributions.record("my-toy") == str(listed)
    assert distributions.record("numpy") is not None
    assert distributions.record("a-distribution-that-is-not-there") is None
    assert distributions.version("a-distribution-that-is-not-there") is None
