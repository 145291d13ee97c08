from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest
from small import Cli, mlp_model

from tenonnx.cli import timing
from tenonnx_bench import profile, profile_page
from tenonnx_bench.hot import Watched


def test_nodes_and_operators_are_listed(cli: Cli, mlp: str) -> None:
    result = cli("profile", mlp, "--runs", 3, "--top", 3, "--level", "none")
    assert result.exit_code == 0, result.output
    assert "a run takes " in result.stdout
    assert "watched, 3 runs of" in result.stdout
    assert any(f"\n{name} " in result.stdout for name in ("ArgMax", "Gemm", "MatMul", "Relu"))
    assert "CPUExecutionProvider" in result.stdout
    assert "more; --top" in result.stdout


def test_operators_and_the_rest_add_up_to_a_run(cli: Cli, mlp: str) -> None:
    result = cli("profile", mlp, "--runs", 3, "--json", "--dim", "batch=4")
    found = json.loads(result.stdout)
    assert found["runs"] == 3
    operators = sum(row["seconds"] for row in found["operators"]) / 3
    assert operators > 0
    assert found["rest_seconds"] > 0
    assert found["watching_seconds"] > 0
    assert operators + found["rest_seconds"] == pytest.approx(found["run_seconds"])
    shares = sum(row["share"] for row in found["operators"])
    assert shares + found["rest_seconds"] / found["run_seconds"] == pytest.approx(1)
    assert all(row["calls"] == 3 for row in found["nodes"])
    assert sum(row["output_bytes"] for row in found["nodes"]) > 0
    times = found["unwatched"]
    assert 0 < times["min"] <= times["median"] <= times["p99"]
    assert times["runs_per_second"] > 0


@pytest.mark.parametrize(("watched", "warned"), [(2.1e-3, True), (2.1e-4, False)])
def test_shares_of_slower_runs_are_said_to_be_theirs(watched: float, warned: bool) -> None:
    settling = timing.Settling(1.0, 10, settled=True)
    unwatched = {"median": 2e-4, "p99": 2e-4, "runs_per_second": 5e3}
    told = profile.Profile(
        "m.onnx", 3, settling, unwatched, Watched(watched, 1e-5, 1e-5), [], [], []
    )
    found = [line for line in profile.summary(told) if line.startswith("shares are of watched")]
    assert len(found) == warned
    if warned:
        assert "take 10.5 times as long" in found[0]


def test_nodes_of_a_loop_are_no_part_of_another_node(cli: Cli, folder: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 21]>
    repeated (float[4] x, int64 n) => (float[4] y) {
      go = Constant<value: tensor = bool {1}>()
      y = Loop(n, go, x) <body = body (int64 i, bool more, float[4] h) => (bool on, float[4] g) {
        on = Identity(more)  s = Sin(h)  g = Cos(s)
        } >
    }"""
    onnx.save(onnx.parser.parse_model(text), folder / "loop.onnx")
    result = cli("profile", "loop.onnx", "-i", "random", "-i", "n=5", "--runs", 2, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert max(row["calls"] for row in found["nodes"]) == 10
    assert found["rest_seconds"] > 0


def test_traces_and_pages_are_written(cli: Cli, folder: Path) -> None:
    proto = mlp_model()
    proto.graph.node[0].name = "</script><b>"
    onnx.save(proto, folder / "hostile.onnx")
    options = ("--runs", 2, "--level", "none", "--trace", "t.json", "--html", "hot.html")
    result = cli("profile", "hostile.onnx", *options)
    assert result.exit_code == 0, result.output
    events = json.loads(Path("t.json").read_text())
    assert [event["name"] for event in events].count("model_run") == 2
    page = Path("hot.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "MatMul" in page
    assert page.count("http") == page.count("https://ui.perfetto.dev") == 1  # on a click alone
    assert page.count("</script>") == 2
    data = re.search('id="data">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    shown = json.loads(data[1])
    assert shown["trace"] == events
    assert shown["run"][1] in {event["dur"] for event in events if event["name"] == "model_run"}
    assert shown["colors"].keys() == {e["args"]["op_name"] for e in events if e["cat"] == "Node"}
    assert "the rest, between operators" in page


def test_pages_go_to_folders_that_are_there(cli: Cli, mlp: str) -> None:
    for option in ("--trace", "--html"):
        refused = cli("profile", mlp, option, "no/such/folder/out")
        assert refused.exit_code == 2
        assert "cannot write no/such/folder/out: there is no folder" in refused.stderr
        assert "running" not in refused.stderr


def test_long_traces_are_cut_at_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_page, "MAX_EVENTS", 5)
    run = [{"name": "node"}, {"name": "model_run"}]
    assert profile_page._whole_runs(run * 4) == run * 2
    long = [{"name": "node"}] * 9 + [{"name": "model_run"}]
    assert profile_page._whole_runs(long * 2) == long
