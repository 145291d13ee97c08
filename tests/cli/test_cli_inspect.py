from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from small import W1, W2, Cli, Start

from models import FLOAT, model, node, value


def test_facts_are_the_models(cli: Cli, mlp: str) -> None:
    result = cli("inspect", mlp, "--level", "none", "--json", "--nodes")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["producer"] == "a test 2.0"
    assert (report["ir_version"], report["opset_imports"]) == (10, {"ai.onnx": 21})
    assert report["inputs"] == [{"name": "x", "type": "tensor(float)", "shape": ["batch", 16]}]
    assert [output["name"] for output in report["outputs"]] == ["y", "best"]
    assert report["operators"] == {"MatMul": 2, "ArgMax": 1, "Relu": 1}
    assert report["placement"]["counts"] == {"CPUExecutionProvider": 4}
    assert [n["operator"] for n in report["node_list"]] == ["MatMul", "Relu", "MatMul", "ArgMax"]


def test_times_of_loading_add_up(cli: Cli, mlp: str) -> None:
    report = json.loads(cli("inspect", mlp, "--json").stdout)
    times = report["load_times"]
    assert list(times) == ["read", "transform", "place", "compile"]
    assert min(times.values()) > 0
    assert sum(times.values()) <= report["load_seconds"]
    assert sum(row["seconds"] for row in report["transforms"]) <= times["transform"]


def test_it_says_why_there_are_no_kernels(
    cli: Cli, mlp: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENONNX_JIT", "0")
    kernels = json.loads(cli("inspect", mlp, "--json").stdout)["kernels"]
    assert kernels == {"all": {"state": "numpy", "reason": "TENONNX_JIT is 0"}}
    assert "TENONNX_JIT is 0" in cli("inspect", mlp).stdout


def test_weights_are_where_the_file_has_them(cli: Cli, mlp: str) -> None:
    weights = json.loads(cli("inspect", mlp, "--json").stdout)["weights"]
    assert (weights["count"], weights["bytes"]) == (2, W1.nbytes + W2.nbytes)
    content = Path(mlp).read_bytes()
    for row, array in zip(weights["biggest"], (W1, W2), strict=True):
        assert (row["bytes"], row["shape"]) == (array.nbytes, list(array.shape))
        assert (row["kind"], row["storage"]) == ("mapped", mlp)
        assert content[row["offset"] :].startswith(array.tobytes())


def test_only_the_biggest_weights_are_listed(cli: Cli, mlp: str) -> None:
    text = cli("inspect", mlp, "--weights", 1).stdout
    assert "Weights: 2, 672 B" in text
    assert "w1" in text
    assert "w2" not in text
    assert "... and 1 more" in text
    report = json.loads(cli("inspect", mlp, "--weights", 1, "--json").stdout)
    assert [row["names"] for row in report["weights"]["biggest"]] == [["w1"]]
    assert report["weights"]["count"] == 2


def test_text_has_a_section_for_everything(cli: Cli, mlp: str) -> None:
    text = cli("inspect", mlp, "--level", "none", "--nodes").stdout
    for line in (
        "producer:   a test 2.0",
        "input   x     tensor(float)  [batch, 16]",
        "Operators: 4 nodes",
        "MatMul        2",
        "Loading: ",
        "CPUExecutionProvider      4",
        "b, w2 → y",
    ):
        assert line in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_what_transforms_did(cli: Cli, folder: Path) -> None:
    one = helper.make_tensor("one", FLOAT, [1], [1.0])
    proto = model(
        [
            node("Constant", "", "c", value=one),
            node("Neg", "c", "d"),
            node("Add", "x d", "y"),
        ],
        [value("x", FLOAT, [1])],
        [value("y", FLOAT, [1])],
    )
    onnx.save(proto, folder / "model.onnx")
    report = json.loads(cli("inspect", "model.onnx", "--level", "basic", "--json").stdout)
    assert report["operators"] == {"Add": 1, "Constant": 1, "Neg": 1}
    assert report["operators_as_run"] == {"Add": 1}
    changed = [t["name"] for t in report["transforms"] if t["modified"]]
    assert "fold-constants" in changed
    untouched = json.loads(cli("inspect", "model.onnx", "--level", "none", "--json").stdout)
    assert untouched["transforms"] == []
    assert untouched["operators_as_run"] == report["operators"]
    partly = cli("inspect", "model.onnx", "--disable-transform", "fold-constants", "--json")
    assert "Neg" in json.loads(partly.stdout)["operators_as_run"]
    text = cli("inspect", "model.onnx", "--level", "basic").stdout
    assert "operator  in the model  as it runs" in text
    assert "Neg                  1           0" in text


def test_functions_are_listed(cli: Cli, folder: Path) -> None:
    imports = [helper.make_opsetid("", 21)]
    body = [node("Add", "a a", "t"), node("Neg", "t", "b")]
    function = helper.make_function("my", "Twice", ["a"], ["b"], body, imports)
    proto = model(
        [node("Twice", "x", "y", domain="my")],
        [value("x", FLOAT, [1])],
        [value("y", FLOAT, [1])],
        domains={"my": 1},
        functions=[function],
    )
    onnx.save(proto, folder / "model.onnx")
    report = json.loads(cli("inspect", "model.onnx", "--level", "none", "--json").stdout)
    assert report["functions"] == [{"name": "my::Twice", "nodes": 2}]
    assert report["operators"] == {"my::Twice": 1}
    assert report["operators_as_run"] == {"Add": 1, "Neg": 1}


def test_reasons_for_not_being_where_it_was_wanted(cli: Cli, adder: str, double: str) -> None:
    options = ("--plugin", double, "inspect", adder, "--level", "none", "-p", "slow", "-p", "cpu")
    placement = json.loads(cli(*options, "--json").stdout)["placement"]
    assert placement["counts"] == {"SlowExecutionProvider": 1, "CPUExecutionProvider": 1}
    (group,) = placement["elsewhere"]
    assert group["provider"] == "CPUExecutionProvider"
    assert group["reasons"] == "SlowExecutionProvider: adds only, and does not Neg"
    assert group["nodes"] == ["Neg 'y' (ai.onnx, opset 21)"]
    assert "adds only, and does not Neg: Neg 'y'" in cli(*options).stdout


def test_a_model_that_nobody_runs_is_shown_too(cli: Cli, foreign: str) -> None:
    result = cli("inspect", foreign)
    assert result.exit_code == 4
    assert "my.domain::Plus      1" in result.stdout
    assert "Plus 'y' (my.domain, opset 1)" in result.stderr
    report = json.loads(cli("inspect", foreign, "--json").stdout)
    assert report["operators"] == {"my.domain::Plus": 1}
    assert "my.domain" in report["error"]
    assert "placement" not in report


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_loading_takes_no_private_memory(start: Start, folder: Path) -> None:
    w = np.zeros((4096, 4096), np.float32)
    proto = model(
        [node("MatMul", "x w", "y")], [value("x", FLOAT, [1, 4096])], [value("y", FLOAT)], {"w": w}
    )
    onnx.save(proto, folder / "big.onnx", save_as_external_data=True, location="big.data")
    process = start("inspect", "big.onnx", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    memory = json.loads(out)["memory"]
    assert memory["mapped"] >= w.nbytes
    assert memory["private"] == 0
    assert memory["added_private"] < w.nbytes / 16
