"""Data beside a model's file: where it may lie, and what is said where it does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from everywhere import (
    array,
    external,
    fails,
    weight,
)

from tenonnx.errors import InvalidArgument, InvalidGraph
from tenonnx.formats.load import load
from tenonnx.weights.registry import WeightRegistry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder next to a secret: ``model.onnx`` has its weights in ``data``."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data").write_bytes(array(0, 2, 3).tobytes())
    (tmp_path / "secret").write_bytes(array(1, 2, 3).tobytes())
    return folder


def model_at(folder: Path, location: str, **entries: Any) -> Path:
    path = folder / "model.onnx"
    onnx.save(external(location, **entries), path)
    return path


def values(path: Path, registry: WeightRegistry, **options: Any) -> Any:
    return weight(load(path, registry, **options), "w").array


@pytest.mark.parametrize("location", ["data", "./data", "sub/../data", "sub/data"])
def test_data_in_the_models_folder(folder: Path, registry: WeightRegistry, location: str) -> None:
    (folder / "sub").mkdir()
    shutil.copy(folder / "data", folder / "sub" / "data")
    found = values(model_at(folder, location), registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


def test_data_is_found_from_any_working_folder(
    folder: Path, registry: WeightRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_at(folder, "data")
    monkeypatch.chdir(folder)
    np.testing.assert_array_equal(values(Path("model.onnx"), registry), array(0, 2, 3))
    monkeypatch.chdir(folder.parent)
    np.testing.assert_array_equal(values(Path("model/model.onnx"), registry), array(0, 2, 3))


def test_data_that_is_a_hard_link(folder: Path, registry: WeightRegistry) -> None:
    (folder / "link").hardlink_to(folder.parent / "secret")
    np.testing.assert_array_equal(values(model_at(folder, "link"), registry), array(1, 2, 3))


def test_data_next_to_the_file_that_a_linked_model_leads_to(
    folder: Path, registry: WeightRegistry, tmp_path: Path
) -> None:
    model_at(folder, "data")
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "current.onnx"
    link.symlink_to(folder / "model.onnx")
    np.testing.assert_array_equal(values(link, registry), array(0, 2, 3))


def test_a_folder_that_is_a_link(folder: Path, registry: WeightRegistry, tmp_path: Path) -> None:
    model_at(folder, "data")
    (tmp_path / "current").symlink_to(folder)
    found = values(tmp_path / "current" / "model.onnx", registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


@pytest.fixture
def hugging_face(tmp_path: Path) -> Path:
    """A cached repository: snapshots of links into a folder of blobs."""
    blobs = tmp_path / "hub" / "models--own--it" / "blobs"
    snapshot = blobs.parent / "snapshots" / "0123abcd"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "d1").write_bytes(array(0, 2, 3).tobytes())
    (snapshot / "model.onnx_data").symlink_to("../../blobs/d1")
    (snapshot / "onnx" / "model.onnx_data").symlink_to("../../../blobs/d1")
    onnx.save(external("model.onnx_data"), blobs / "m1")
    (snapshot / "model.onnx").symlink_to("../../blobs/m1")
    (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/m1")
    shutil.copy(blobs / "m1", snapshot / "copy.onnx")
    shutil.copy(blobs / "m1", snapshot / "onnx" / "copy.onnx")
    return snapshot


@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx", "copy.onnx", "onnx/copy.onnx"])
def test_the_hugging_face_cache(
    hugging_face: Path, registry: WeightRegistry, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.testing.assert_array_equal(values(hugging_face / name, registry), array(0, 2, 3))
    monkeypatch.chdir((hugging_face / name).parent)
    found = values(Path(Path(name).name), registry)
    np.testing.assert_array_equal(found, array(0, 2, 3))


def test_the_hugging_face_cache_is_no_way_out(
    hugging_face: Path, registry: WeightRegistry, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_bytes(bytes(24))
    (hugging_face / "model.onnx_data").unlink()
    (hugging_face / "model.onnx_data").symlink_to(tmp_path / "secret")
    for name in ("model.onnx", "copy.onnx"):
        assert "leads to" in fails(hugging_face / name, registry, InvalidGraph)
    other = tmp_path / "hub" / "models--other" / "blobs"
    other.mkdir(parents=True)
    (other / "x").write_bytes(bytes(24))
    (hugging_face / "model.onnx_data").unlink()
    (hugging_face / "model.onnx_data").symlink_to(other / "x")
    assert "leads to" in fails(hugging_face / "copy.onnx", registry, InvalidGraph)


def escapes(folder: Path) -> dict[str, str]:
    secret = folder.parent / "secret"
    (folder / "soft").symlink_to(secret)
    (folder / "loop").symlink_to("loop")
    (folder / "chain").symlink_to("soft")
    (folder / "up").symlink_to("..")
    (folder.parent / "model2").mkdir()
    (folder.parent / "model2" / "data").write_bytes(bytes(24))
    return {
        "../secret": str(secret),
        "sub/../../secret": str(secret),
        str(secret): str(secret),
        str(folder / "data"): str(folder / "data"),
        "soft": str(secret),
        "chain": str(secret),
        "up/secret": str(secret),
        "../model2/data": str(folder.parent / "model2" / "data"),
        "../../../../../../../../etc/passwd": "/etc/passwd",
        "/etc/passwd": "/etc/passwd",
        "/dev/zero": "/dev/zero",
    }


def test_data_that_lies_elsewhere_is_refused(folder: Path, registry: WeightRegistry) -> None:
    for location, target in escapes(folder).items():
        message = fails(model_at(folder, location), registry, InvalidGraph)
        assert message == (
            f"tensor 'w' has external data at {location!r}, which leads to {target}; "
            f"relative locations may lead into {folder}\n"
            "Hint: If you trust the model, allow it: "
            f"SessionOptions(allowed_roots=[{os.path.dirname(target)!r}])."  # noqa: PTH120
        )


def test_data_in_an_allowed_root(folder: Path, registry: WeightRegistry) -> None:
    secret = folder.parent / "secret"
    (folder / "soft").symlink_to(secret)
    for location in ("../secret", str(secret), "soft"):
        found = values(model_at(folder, location), registry, allowed_roots=[folder.parent])
        np.testing.assert_array_equal(found, array(1, 2, 3))
    assert "leads to" in fails(
        model_at(folder, "soft"), registry, InvalidGraph, allowed_roots=[folder / "sub"]
    )
    # Its letters are folders: one of them is "/", in which everything lies.
    assert fails(
        model_at(folder, "soft"), registry, InvalidArgument, allowed_roots=str(folder / "sub")
    ).startswith("allowed_roots is a string; pass a list")


def test_data_of_a_model_without_a_folder(folder: Path, registry: WeightRegistry) -> None:
    proto = external("data")
    for source in (proto, proto.SerializeToString()):
        found = weight(load(source, registry, allowed_roots=[folder]), "w")
        np.testing.assert_array_equal(found.array, array(0, 2, 3))
        assert fails(source, registry, InvalidGraph) == (
            "tensor 'w' has external data at 'data', but the model was not opened from a file, "
            "so there is no folder to look in\n"
            "Hint: Open the model by its path, or name the folder: "
            "SessionOptions(allowed_roots=[...])."
        )
    model = ir.from_proto(external("../secret"))
    tensor = model.graph.initializers["w"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    tensor.base_dir = folder
    assert "which leads to" in fails(model, registry, InvalidGraph)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": 4}, "takes 24 bytes at offset 4 of {data}, which has only 24"),
        ({"offset": 10**30}, f"takes 24 bytes at offset {10**30} of {{data}}, which has only 24"),
        ({"length": 20}, ", FLOAT[2, 3], takes 24 bytes, but has 20 in 'data'"),
        ({"dims": [2, -3]}, ", FLOAT[2, -3], has a negative dimension"),
        ({"dims": [2**40, 2**40]}, "takes 4835703278458516698824704 bytes at offset 0 of {data}"),
        ({"dims": [1] * 65}, f", FLOAT{[1] * 65}, has 65 dimensions; numpy has at most 64"),
    ],
    ids=lambda value: str(value)[:25] if isinstance(value, dict) else "",
)
def test_data_that_does_not_fit(
    folder: Path, registry: WeightRegistry, entries: dict[str, Any], message: str
) -> None:
    text = fails(model_at(folder, "data", **entries), registry, InvalidGraph)
    expected = message.format(data=folder / "data")
    expected = f"tensor 'w'{expected}" if expected[0] == "," else f"tensor 'w' {expected}"
    assert text.startswith(expected)


@pytest.mark.parametrize("entries", [{"offset": -4}, {"length": -1}, {"offset": "all of it"}])
def test_entries_that_mean_nothing(
    folder: Path, registry: WeightRegistry, entries: dict[str, Any]
) -> None:
    message = fails(model_at(folder, "data", **entries), registry, InvalidGraph)
    assert " is not well-formed: " in message
    assert all(key in message or repr(value) in message for key, value in entries.items())


@pytest.mark.parametrize("location", ["", "a\0b"])
def test_data_at_no_place(folder: Path, registry: WeightRegistry, location: str) -> None:
    assert fails(model_at(folder, location), registry, InvalidGraph) == (
        f"tensor 'w' has external data at no place: {location!r}"
    )


def test_data_that_is_not_there(folder: Path, registry: WeightRegistry) -> None:
    assert fails(model_at(folder, "dta"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'dta'}, which does not exist\n"
        "Hint: The folder has data."
    )
    assert fails(model_at(folder, "sub/x"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'sub/x'}, which does not exist\n"
        f"Hint: The folder {folder / 'sub'} does not exist either."
    )
    (folder / "sub").mkdir()
    assert fails(model_at(folder, "sub"), registry, InvalidGraph).startswith(
        f"tensor 'w' has its data in {folder / 'sub'}, which is not a file"
    )
    (folder / "empty").touch()
    assert fails(model_at(folder, "empty"), registry, InvalidGraph) == (
        f"tensor 'w' has its data in {folder / 'empty'}, which is empty"
    )
    assert "which does not exist" in fails(model_at(folder, "x" * 300), registry, InvalidGraph)


def test_tensors_without_elements_need_no_data(folder: Path, registry: WeightRegistry) -> None:
    found = values(model_at(folder, "absent", dims=[0, 3]), registry)
    assert found.shape == (0, 3)
