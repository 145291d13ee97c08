"""``tenonnx compare``: outputs, speed and memory beside another runtime's."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from small import Cli

from models import FLOAT, model, node, value
from tenonnx import NotSupported
from tenonnx.planning.differences import differences, largest

QUICK = ("--repeat", 3, "--settle", 0, "--no-memory")


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Have a function take onnxruntime's place."""

    def put(run: Callable[[Mapping[str, Any]], list[Any]]) -> None:
        monkeypatch.setattr("tenonnx_bench.compare.peer_opener", lambda *_: lambda _: run)
        monkeypatch.setattr("tenonnx_bench.compare.version", lambda _: "1.0")

    return put


def test_outputs_that_agree(cli: Cli, adder: str, peer: Any) -> None:
    peer(lambda feeds: [-2 * feeds["x"]])
    result = cli("compare", adder, "-i", "x=[1, 2]", *QUICK)
    assert result.exit_code == 0, result.output
    rows = result.stdout.splitlines()
    assert rows[0].startswith("adder.onnx: tenonnx on CPUExecutionProvider (2 nodes), beside")
    output = next(row for row in rows if row.startswith("y "))
    assert output.split() == ["y", "float32", "[2]", "0", "0", "0.0001", "+", "0.001·|y|", "yes"]
    assert rows[-1].startswith("the outputs agree; tenonnx takes ")


def test_outputs_beyond_the_tolerance(cli: Cli, adder: str, peer: Any) -> None:
    peer(lambda feeds: [-2 * np.where(feeds["x"] == 2, np.float32(2.02), feeds["x"])])
    command = ("compare", adder, "-i", "x=[1, 2]", *QUICK, "--json")
    result = cli(*command)
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    (output,) = found["outputs"]
    assert not found["agrees"]
    assert output["beyond"] == 1
    assert output["absolute"] == pytest.approx(0.04, rel=1e-3)
    assert output["relative"] == pytest.approx(0.01 / 1.01, rel=1e-3)
    assert [row["provider"] for row in found["speed"]] == ["onnxruntime", "tenonnx"]
    for row in found["speed"]:
        assert 0 < row["min"] <= row["median"] <= row["p99"]
        assert row["runs_per_second"] > 0
    assert cli(*command, "--rtol", "0.02").exit_code == 0
    assert cli(*command, "--atol", "0.1").exit_code == 0
    text = cli("compare", adder, "-i", "x=[1, 2]", *QUICK).stdout
    assert "no: 1 element beyond" in text
    assert "the outputs DIFFER" in text


def test_a_peer_that_is_not_installed(cli: Cli, mlp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenonnx_bench.peers.is_installed", lambda _: False)
    for name in ("onnxruntime", "openvino"):
        result = cli("compare", mlp, "--with", name)
        assert result.exit_code == 2
        assert result.stderr == f"error: {name} is not installed\nhint: pip install {name}\n"
    assert cli("compare", mlp, "--with", "torch").exit_code == 2


def test_a_model_that_one_does_not_take(cli: Cli, foreign: str, adder: str, peer: Any) -> None:
    peer(lambda feeds: [feeds["x"]])
    ours = cli("compare", foreign, *QUICK)
    assert ours.exit_code == 4
    assert "tenonnx:\nerror: " in ours.stderr

    def refuse(feeds: Mapping[str, Any]) -> list[Any]:
        raise NotSupported(f"no kernel for {[*feeds]}")

    peer(refuse)
    theirs = cli("compare", adder, *QUICK)
    assert theirs.exit_code == 4  # though it takes the tiny model no better
    assert "onnxruntime:\nerror: no kernel for ['x']" in theirs.stderr


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs smaps_rollup")
def test_beside_onnxruntime(cli: Cli, mlp: str, foreign: str) -> None:
    np.savez("feeds.npz", x=np.ones((4, 16), np.float32))
    command = ("compare", mlp, "--inputs", "feeds.npz", "--repeat", 3, "--settle", 0, "--json")
    result = cli(*command)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["name"] for row in found["outputs"]] == ["y", "best"]
    assert found["outputs"][0]["shape"] == [4, 5]
    assert found["memory"].keys() == {"tenonnx", "onnxruntime"}
    assert all(row["peak_private_bytes"] > 0 for row in found["memory"].values())
    refused = cli("compare", foreign, *QUICK)
    assert refused.exit_code == 4
    assert refused.stderr.count("onnxruntime:\n") == 1


def test_sequences_maps_and_types(cli: Cli, folder: Path, peer: Any) -> None:
    proto = model(
        [node("SequenceConstruct", "x x", "y")],
        [value("x", FLOAT, [2])],
        [onnx.helper.make_tensor_sequence_value_info("y", FLOAT, None)],
    )
    onnx.save(proto, folder / "sequence.onnx")
    peer(lambda feeds: [[feeds["x"], feeds["x"] + 1]])
    found = cli("compare", "sequence.onnx", *QUICK, "--json")
    assert found.exit_code == 1
    (row,) = json.loads(found.stdout)["outputs"]
    assert (row["name"], row["dtype"], row["shape"], row["beyond"]) == ("y", "float32", [2], 2)
    peer(lambda feeds: [[feeds["x"]]])
    assert cli("compare", "sequence.onnx", *QUICK).exit_code == 1


def test_numbers_in_maps_are_held_to_the_declared_type(cli: Cli, folder: Path, peer: Any) -> None:
    entry = onnx.helper.make_map_type_proto(
        onnx.TensorProto.INT64, onnx.helper.make_tensor_type_proto(FLOAT, [])
    )
    y = onnx.helper.make_value_info("y", onnx.helper.make_sequence_type_proto(entry))
    zipped = node("ZipMap", "x", "y", domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2])
    proto = model([zipped], [value("x", FLOAT, [None, 3])], [y], domains={"ai.onnx.ml": 1})
    onnx.save(proto, folder / "zipped.onnx")

    def other(feeds: Mapping[str, Any]) -> list[Any]:
        return [[dict(enumerate((row * off).tolist())) for row in np.atleast_2d(feeds["x"])]]

    command = ("compare", "zipped.onnx", "--dim", "x.0=50", *QUICK, "--json")
    off = 1 + 1e-6
    peer(other)
    found = cli(*command)
    assert found.exit_code == 0, found.output
    (row,) = json.loads(found.stdout)["outputs"]
    assert (row["name"], row["dtype"], row["shape"]) == ("y", "float32", [50])
    assert row["allowed"] == {"relative": 1e-3, "absolute": 1e-4}
    off = 1.01
    found = cli(*command)
    assert found.exit_code == 1, found.output


@pytest.mark.parametrize(
    ("mine", "other", "absolute", "beyond"),
    [
        (np.float32([1, np.nan]), np.float32([1, np.nan]), 0, 0),
        (np.float32([1, np.nan]), np.float32([1, 2]), np.inf, 1),
        (np.float32([np.inf]), np.float32([np.inf]), 0, 0),
        (np.float32([np.inf]), np.float32([-np.inf]), np.inf, 1),
        (np.float16([1.0]), np.float16([1.01]), 0.01, 0),
        (np.uint8([0]), np.uint8([255]), 255, 1),
        (np.int64([2**62]), np.int64([2**62 + 1]), 1, 1),
        (np.array([True]), np.array([False]), 1, 1),
        (np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), 0, 0),
        (np.array(["a", "b"], object), np.array(["a", "c"], object), None, 1),
        ({"a": np.float32(1)}, {"a": np.float32(1)}, 0, 0),
        (None, None, None, 0),
    ],
)
def test_differences(mine: Any, other: Any, absolute: float | None, beyond: int) -> None:
    (row,) = differences(["y"], [mine], [other])
    assert row.absolute == (None if absolute is None else pytest.approx(absolute, rel=0.05))
    assert row.beyond == beyond
    assert largest([row]) == row.absolute


def test_what_cannot_be_compared_does_not_agree() -> None:
    shape, dtype, keys, nested = differences(
        ["a", "b", "c", "d"],
        [np.zeros(2), np.zeros(2), {"a": 1}, [np.zeros(1), {"k": np.zeros(2)}]],
        [np.zeros(3), np.zeros(2, np.float32), {"b": 1}, [np.zeros(1), {"k": np.zeros(3)}]],
    )
    assert shape.problem == "the shape is [2], not [3]"
    assert dtype.problem == "the type is float64, not float32"
    assert not keys.agrees
    assert nested.problem == "of d.1[k], the shape is [2], not [3]"
    assert largest([shape, dtype]) is None
