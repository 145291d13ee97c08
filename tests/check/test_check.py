"""``tenonnx check`` and ``tenonnx reduce`` find seeded faults, each in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from models import FLOAT, model, node, value

PLUGIN = Path(__file__).with_name("faulty.py")
BLOCKS = int(os.environ.get("TENONNX_TEST_BLOCKS", "2"))
"""Blocks of 8 nodes in the model; with 250 it has 2,001."""

WIDTH = 24

TOGETHER = {"transform": ["Tanh", "Sin", "Sub"]}
"""Faults of several nodes; the others are Softplus's."""

SEEN_LATER = {"shape": ["Softplus", "Tanh", "Sub"]}
"""Faults of which the failure is another node's."""


def block(number: int, fault: str) -> list[onnx.NodeProto]:
    """Nodes from ``x{number}`` to the next; the middle block has what the fault needs."""
    x, here = f"x{number}", number == BLOCKS // 2
    tanh = "Sinh" if fault in TOGETHER and not here else "Tanh"
    soft = "Softplus" if here and fault not in TOGETHER else "Sigmoid"
    names = {n: f"{n}{number}" for n in "abcdefgh"}
    a, b, c, d, e, f, g = (names[n] for n in "abcdefg")
    return [
        node("MatMul", f"{x} w", a),
        node("Add", f"{a} bias", b),
        node(soft, b, c),
        node(tanh, c, d),
        node("Sin", b, e),
        node("Sub", f"{d} {e}", f),
        node("Mul", f"{f} half", g),
        node("LayerNormalization", f"{g} one", f"x{number + 1}"),
    ]


@pytest.fixture(scope="module")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    fault: str = request.param
    random = np.random.default_rng(0)
    weights = {
        "w": random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 5,
        "bias": random.standard_normal(WIDTH).astype(np.float32),
        "half": np.float32(0.5),
        "one": np.ones(WIDTH, np.float32),
    }
    nodes = [each for number in range(BLOCKS) for each in block(number, fault)]
    nodes.append(node("Identity", f"x{BLOCKS}", "y"))
    proto = model(
        nodes,
        [value("x0", FLOAT, ["n", WIDTH])],
        [value("y", FLOAT, ["n", WIDTH])],
        weights,
    )
    file = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(proto, file)
    return str(file)


def tenonnx(fault: str, command: str, *arguments: str, folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tenonnx", "--plugin", str(PLUGIN), command, *arguments],
        env={**os.environ, "FAULT": fault},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


OPTIONS = ("-p", "faulty", "--dim", "n=3", "--run-seconds", "4")

FAULTS = {
    "value": ("differs", "differs in"),
    "nan": ("differs", "NaN"),
    "raise": ("raises", "by the fault"),
    "compile": ("raises", "Softplus"),
    "crash": ("crashes", "SIGSEGV"),
    "exit": ("crashes", "exit code 3"),
    "hang": ("hangs", "no answer"),
    "dtype": ("differs", "the type is float64"),
    "shape": ("raises", "Sub"),
    "transform": ("differs", "differs in"),
}


@pytest.mark.parametrize(("path", "fault"), [(f, f) for f in FAULTS], indirect=["path"])
def test_reduce(path: str, fault: str, tmp_path: Path) -> None:
    kind, text = FAULTS[fault]
    code, out, said = tenonnx(fault, "reduce", path, *OPTIONS, folder=tmp_path)
    assert code == 1, said
    assert f"{kind}: " in out
    assert text in out
    small = onnx.load(tmp_path / "reduced.onnx")
    operators = [each.op_type for each in small.graph.node]
    assert operators == (TOGETHER | SEEN_LATER).get(fault, ["Softplus"])
    if fault == "hang":
        return
    shown = subprocess.run(
        [sys.executable, "reduced.py"],
        env={**os.environ, "FAULT": fault},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode != 0
    assert "Error" in shown.stderr or kind == "crashes"


@pytest.mark.parametrize(("path", "fault"), [(f, f) for f in ("value", "crash")], indirect=["path"])
def test_check_names_the_node_and_its_inputs(path: str, fault: str, tmp_path: Path) -> None:
    code, out, said = tenonnx(fault, "check", path, *OPTIONS, "--json", folder=tmp_path)
    assert code == 1, said
    report = json.loads(out)
    assert report["whole"]["kind"] == FAULTS[fault][0]
    (failure,) = report["failures"]
    assert failure["node"].startswith("Softplus")
    assert failure["number"] == BLOCKS // 2 * 8 + 2
    (fed,) = report["first_inputs"]
    assert (fed["name"], fed["dtype"], fed["shape"]) == (
        f"b{BLOCKS // 2}", "float32", f"[3, {WIDTH}]",
    )  # fmt: skip


@pytest.mark.parametrize("path", ["value"], indirect=True)
def test_a_node_with_a_tolerance_of_its_own(path: str, tmp_path: Path) -> None:
    for given, failing in (("Softplus=0,1", 0), ("Tanh=0,1", 1)):
        own = ("--node-tolerance", given, "--json")
        _, out, _ = tenonnx("value", "check", path, *OPTIONS, *own, folder=tmp_path)
        assert len(json.loads(out)["failures"]) == failing
    for wrong in ("Softplus", "Softplus=1,2,3", "=1", "Softplus=-1"):
        code, _, said = tenonnx(
            "value", "check", path, *OPTIONS, "--node-tolerance", wrong, folder=tmp_path
        )
        assert code == 2
        assert f"--node-tolerance {wrong}: expected NODE=RTOL or NODE=RTOL,ATOL" in said


@pytest.mark.parametrize("path", ["transform"], indirect=True)
def test_nodes_that_fail_together_alone(path: str, tmp_path: Path) -> None:
    code, out, _ = tenonnx("transform", "check", path, *OPTIONS, folder=tmp_path)
    assert code == 1
    assert "nodes fail together: tenonnx reduce finds which" in out


@pytest.mark.parametrize("path", ["transform"], indirect=True)
def test_a_step_that_is_wrong_as_a_whole(path: str, tmp_path: Path) -> None:
    code, out, _ = tenonnx("fused", "check", path, *OPTIONS, "--json", folder=tmp_path)
    report = json.loads(out)
    assert (code, report["failures"]) == (1, [])
    assert report["first_step"].startswith(f"CheckFailed: Tanh 'd{BLOCKS // 2}'")
    assert f"on FaultyExecutionProvider: 'f{BLOCKS // 2}' differs in" in report["first_step"]


@pytest.mark.parametrize("path", ["value"], indirect=True)
def test_without_a_fault(path: str, tmp_path: Path) -> None:
    code, out, _ = tenonnx("", "check", path, *OPTIONS, folder=tmp_path)
    assert (code, "every node alone agrees" in out) == (0, True)
    code, out, _ = tenonnx("", "reduce", path, *OPTIONS, folder=tmp_path)
    assert (code, "nothing to reduce" in out) == (0, True)
    assert not (tmp_path / "reduced.onnx").exists()


@pytest.mark.parametrize("path", ["value"], indirect=True)
def test_onnxruntime_as_the_reference(path: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="is the reference")
    against = ("--against", "onnxruntime")
    code, out, said = tenonnx("value", "reduce", path, *OPTIONS, *against, folder=tmp_path)
    assert code == 1, said
    assert "1 node of" in out
    assert "onnxruntime.InferenceSession" in (tmp_path / "reduced.py").read_text()
