"""``tenonnx convert`` and ``tenonnx memory``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from small import Cli

from models import FLOAT, model, node, value
from tenonnx.cli.output import size
from tenonnx.operators import OperatorTable
from tenonnx_bench.memory_page import POINTS, _thinned


def test_convert_says_what_it_wrote(cli: Cli, mlp: str, folder: Path) -> None:
    result = cli("convert", mlp, "out.onnx", "--threshold", "16")
    assert result.exit_code == 0
    assert "wrote out.onnx.data" in result.stdout
    assert (folder / "out.onnx").is_file()
    assert cli("run", "out.onnx", "--input", "random").exit_code == 0


def test_convert_refuses_unknown_endings(cli: Cli, mlp: str) -> None:
    result = cli("convert", mlp, "out.h5")
    assert result.exit_code == 2
    assert "no format of that ending" in result.stderr


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs smaps_rollup")
def test_memory_of_several_processes(cli: Cli, mlp: str) -> None:
    result = cli("memory", mlp, "--processes", "2", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert len(found["processes"]) == 2
    for row in found["processes"]:
        assert 0 < row["base"]["private"] <= row["run"]["private"] <= row["run"]["resident"]
    assert "mapped" in found["report"]


def test_memory_tells_why_a_process_failed(cli: Cli) -> None:
    result = cli("memory", "nowhere.onnx")
    assert result.exit_code != 0
    assert "nowhere.onnx" in result.stderr


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs smaps_rollup")
def test_memory_is_drawn_on_a_page_of_its_own(cli: Cli, folder: Path) -> None:
    side = 1024
    weight = np.ones((side, side), np.float32)
    x, y = value("x", FLOAT, [1, side]), value("y", FLOAT, [1, side])
    proto = model([node("MatMul", "x w", "y")], [x], [y], {"w": weight})
    onnx.save(proto, folder / "one & only.onnx", save_as_external_data=True, location="w.data")
    arguments = ("one & only.onnx", "--processes", "2", "--no-peer", "--html", "out.html", "--json")
    result = cli("memory", *arguments)
    assert result.exit_code == 0, result.stderr
    page = (folder / "out.html").read_text()
    assert "one &amp; only.onnx" in page
    assert not re.search(r"https?://|src=|@import|url\(", page)
    svgs = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(svgs) == 3
    found = json.loads(result.stdout)
    assert found["steady"]["mapped"] >= weight.nbytes
    assert f"{size(found['peak']['private'])} private" in page
    bars = [float(r.attrib["width"]) for r in svgs[0].iter("rect")]
    share = found["peak"]["private"] / (found["peak"]["private"] + found["peak"]["mapped"])
    assert bars[0] / sum(bars) == pytest.approx(share, abs=1e-3)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs smaps_rollup")
def test_memory_is_compared_with_the_peer(cli: Cli, mlp: str, folder: Path) -> None:
    pytest.importorskip("onnxruntime", reason="compares with onnxruntime")
    result = cli("memory", mlp, "--html", "out.html", "--json")
    assert result.exit_code == 0, result.stderr
    peer = json.loads(result.stdout)["peer"]["onnxruntime"]
    assert peer["peak"]["private"] >= peer["steady"]["private"] >= 0
    assert "onnxruntime" in (folder / "out.html").read_text()


def test_the_highest_point_of_a_line_is_drawn() -> None:
    points = [(float(x), 0.0 if x == 3 else 100.0) for x in range(10_000)]
    thinned = _thinned(points)
    assert len(thinned) <= POINTS + 1
    assert (3.0, 0.0) in thinned
    assert thinned[-1] == points[-1]


def test_compile_writes_one_file_and_replaces_none(
    cli: Cli, mlp: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenonnx.custom_ops.GLOBAL", OperatorTable())  # of other tests
    result = cli("compile", mlp, "--provider", "cpu", "--threads", "1", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    target = folder / "mlp.tenonnx"
    assert found["written"] == {"mlp.tenonnx": target.stat().st_size}
    assert found["facts"]["the option intra_op_num_threads"] == "1"
    assert cli("run", "mlp.tenonnx", "--input", "random").exit_code == 0
    again = cli("compile", mlp)
    assert again.exit_code != 0
    assert "mlp.tenonnx is there already" in again.stderr
    assert "--force" in again.stderr
    text = cli("compile", mlp, "--output", "mlp.tenonnx", "--force").stdout
    assert text.startswith("wrote mlp.tenonnx, ")
    assert "trust_compiled_plan" in cli("compile", "--help").stdout


def test_compile_takes_no_plug_ins_of_the_command_line(cli: Cli, mlp: str, double: str) -> None:
    result = cli("--plugin", double, "compile", mlp)
    assert result.exit_code == 2
    assert "Install the plug-in" in result.stderr
