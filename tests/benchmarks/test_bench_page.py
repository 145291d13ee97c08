"""Tables of the CPU's kind, and the page of all results."""

from __future__ import annotations

import dataclasses
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def bench(module: str) -> Any:
    return importlib.import_module(f"bench.{module}")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def timing(*turns: float) -> Any:
    kind = importlib.import_module("tenonnx.cli.timing").Timing
    return kind(min(turns), sorted(turns)[len(turns) // 2], turns[0], turns)


def test_all_corners_are_run_by_both() -> None:
    """Small models in one process; the table itself takes minutes."""
    import onnxruntime

    import tenonnx

    rows = bench("corners.table").ROWS
    for name, row in rows.items():
        if row.missing:
            continue
        proto, feeds = row.small()
        feeds = {k: v.astype(object) if v.dtype.kind == "U" else v for k, v in feeds.items()}
        sessions = [
            engine.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
            for engine in (tenonnx, onnxruntime)
        ]
        for mine, theirs in zip(*(each.run(None, feeds) for each in sessions), strict=True):
            assert mine.shape == theirs.shape, name
            if mine.dtype.kind == "O":
                np.testing.assert_array_equal(mine, theirs, err_msg=name)
            else:
                atol = row.tolerance * float(np.abs(theirs).max(initial=0))
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol, err_msg=name)


def test_corners_and_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = ("hashing", "forest-load", "forest-load-kept")
    run("corners", "--quick", "--threads", "1", "--output", str(tmp_path), *names)
    (tmp_path / "cpu-quick.json").write_text('{"machine": {}, "rows": [], "roofline": []}')
    done = run("all", "--from-results", "--quick", "--output", str(tmp_path))
    rows = json.loads((tmp_path / "corners-quick.json").read_text())["rows"]
    assert {row["name"] for row in rows} == set(names)
    assert all(row["ratios"]["turn"] > 0 for row in rows)
    page = (tmp_path / "README-quick.md").read_text()
    assert page.index("## What is lost") < page.index("## In short") < page.index("## What few")
    assert "| FeatureHasher, 1,000 x 2 words | a run, 1 thread |" in page
    assert "| forest of 100 trees, loaded first | a first session, 1 thread |" in page
    assert "corners-quick.png" in page
    assert "README-quick.md" in done.stderr


@pytest.mark.parametrize("engine", ["openvino", "torch"])
def test_other_engines_take_turns(engine: str, tmp_path: Path) -> None:
    pytest.importorskip(engine)
    done = run(
        "corners", "--quick", "--threads", "1", "--output", str(tmp_path), "partial-rotary", "qmoe"
    )
    rows = json.loads((tmp_path / "corners-quick.json").read_text())["rows"]
    (peer,) = (e for e, package in bench("corners.__main__").PEERS.items() if package == engine)
    told = {row["name"]: (peer in row["peers"], peer in row["declined"]) for row in rows}
    assert told == {"partial-rotary": (True, False), "qmoe": (False, True)}
    assert peer in done.stdout.partition("not taken by ")[2]


def test_throughput_of_threads_and_processes(tmp_path: Path) -> None:
    names = ["forest-threads", "forest-processes"]
    done = run("throughput", "--quick", "--threads", "2", "--output", str(tmp_path), *names)
    for row in json.loads((tmp_path / "throughput-quick.json").read_text())["rows"]:
        assert row["threads"] == 2
        assert all(0 < row[engine]["fastest"] < 1 for engine in ("mine", "theirs"))
        engines = {"tenonnx", "onnxruntime"} if row["name"] == "forest-processes" else set()
        assert row["private_mib"].keys() == engines
        assert all(5 < mib < 500 for mib in row["private_mib"].values())
    assert "processes | 2 |" in done.stdout
    assert " / s | " in done.stdout


def test_callers_share_the_time() -> None:
    import time

    turn_at_once = bench("cpu.child").turn_at_once
    running: list[int] = []
    most: list[int] = []

    def call() -> None:
        running.append(1)
        most.append(len(running))
        time.sleep(0.01)
        running.pop()

    turn = turn_at_once(call, 4, 0.05)
    assert turn.runs == len(most) >= 4
    assert turn.fastest == turn.median
    assert max(most) == 4, "four of them sleep at once"


def test_serving_and_capacity_are_on_the_page(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    run("serve", "--quick", "--output", str(tmp_path), "http", "memory")
    run("capacity", "--output", str(tmp_path))
    (tmp_path / "serve-quick.json").rename(tmp_path / "serve.json")
    run("all", "--from-results", "--output", str(tmp_path))
    page = (tmp_path / "README.md").read_text()
    assert "| a trivial model over HTTP, binary tensors | a request, 4 clients; a bare" in page
    assert "| private MiB that it adds to each of 2 |" in page
    assert "| Ray Serve | replicas in 60 GiB, one model | 494 | 176, copied | 0.356 |" in page
    assert "| row | measured | tenonnx | the other |" in page


def test_language_models_are_told_beside_genai_and_themselves(tmp_path: Path) -> None:
    columns = ("import", "load", "first token", "prompt", "token", "private", "private of four")
    mine, theirs = (dict.fromkeys(columns, float(n << 20)) for n in (1, 2))
    mine["tokens"], theirs["tokens"] = [1, 2, 3], [1, 2, 4]
    turns = {"tenonnx_generate": [mine], "onnxruntime_genai": [theirs]}
    own = {"cached prefix": [1.0, 8.0], "growth": 3 << 20}
    path = tmp_path / "generate.json"
    path.write_text(json.dumps({"rows": [{"folder": "tiny", "turns": turns, "own": own}]}))
    found = {figure.kind: figure for figure in bench("generate.report").read(path)}
    assert found["opening a folder"].ratio == 0.5
    assert found["first token, 480 of 512 tokens cached"].ratio == 0.125
    assert found["growth of 200 generators"].mine == "3.0 MiB"
    assert found["equal tokens, greedy"].mine == "2 of 3"


def test_a_folder_gets_adapters_of_its_rows(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    folder = ROOT / "examples" / "generate" / "model"
    module = bench("generate.adapted")
    products = module.write_adapted(folder, tmp_path / "without")
    assert len({name for name, *_ in products}) == len(products) > 1
    adapted = module.Adapted(folder, tmp_path / "with")
    assert adapted.step(different=True) > 0
    assert adapted.step(different=False) > 0
    asked = {arg.name for arg in adapted.model.session.get_inputs() if "lora" in arg.name}
    assert len(asked) == 2 * len(products)


def test_serving_is_held_to_its_bounds() -> None:
    report = bench("serve.report")

    def line(server: str, rate: float, p99: float = 1.0) -> dict[str, Any]:
        asked = {"row": "http", "clients": 1, "server": server, "rates": [rate], "rate": rate}
        return asked | {"p50": 1.0, "p99": p99}

    lines = [line("tenonnx", 71), line("bare", 100), line("KServe's server", 36)]
    (told,) = report.broken(lines)
    assert told == "http, 1 clients, KServe's server: 1.97 of its rate, expected 2"
    assert report.broken([line("tenonnx", 71, 1.1), *lines[1:]])[1].endswith("is faster")
    mib = 1 << 20
    held = {"row": "memory", "server": "tenonnx", "weights": 128 * mib, "private": [40 * mib] * 8}
    held |= {"empty": 32 * mib, "more": 16 * mib, "pss": 1009 * mib, "theirs": 130 * mib}
    assert len(report.broken([held])) == 2
    assert report.broken([held | {"more": 15 * mib, "pss": 1008 * mib}]) == []


def test_the_best_of_the_others_counts() -> None:
    outcome = bench("cpu.compare").Outcome("lstm", 1, 1.0, timing(1.0, 0.9), timing(1.0, 1.0))
    assert outcome.holds
    assert outcome.best is None
    assert outcome.spread == (0.9, 1.0)
    peers = {"slow": timing(2.0, 2.0), "fast": timing(0.5, 0.5)}
    beaten = dataclasses.replace(outcome, peers=peers)
    assert beaten.best == ("fast", pytest.approx(1.9))
    assert not beaten.holds
    reasons = {"one": "not installed", "two": "not asked for", "three": "unknown operator"}
    assert dataclasses.replace(outcome, declined=reasons).refusing == ["three"]


def test_what_is_lost_comes_first() -> None:
    figures, markdown = bench("page.figures"), bench("page.markdown")
    told = [
        figures.Figure("a", "won", "1 thread", "1 ms", "2 ms", 0.5, (0.4, 0.6)),
        figures.Figure("b", "lost", "1 thread", "3 ms", "2 ms", 1.5, (1.4, 1.6)),
        figures.Figure(
            "c", "beaten", "1 thread", "1 ms", "2 ms", 0.5, None,
            figures.Other("OpenVINO", "0.25 ms", 4.0),
        ),
        figures.Figure("d", "failed", "all threads", note="it | failed"),
        figures.Figure("e", "alone", "all threads", "1 ms", "takes more than 5 s"),
    ]  # fmt: skip
    assert [figure.lost for figure in told] == [False, True, True, True, False]
    section = markdown.Section("cpu", Path("cpu.json"), told, {"cpu": "of 1 GHz"})
    reasons = {"cpu": {"b": "for a reason", "d": "for none"}}
    tried = {"cpu": {"b": ["one design: 1.1", "another: 1.2"], "a": ["what won"]}}
    page = markdown.as_markdown([section], reasons, tried)
    lost = page.partition("## In short")[0]
    assert lost.index("| failed |") < lost.index("| beaten |") < lost.index("| lost |")
    assert (
        "| lost | 1 thread | 3 ms | 2 ms | onnxruntime | 1.5 | 1.4 to 1.6 | for a reason |" in lost
    )
    assert "| beaten | 1 thread | 1 ms | 0.25 ms | OpenVINO | 4 |  |  |" in lost
    assert f"- {section.area.title}, lost: one design: 1.1; another: 1.2.\n" in lost
    assert "won" not in lost
    assert "it / failed" in page
    assert "| alone | all threads | 1 ms | takes more than 5 s |  |  |  |" in page
    assert "| 5 | 3 | 0.721 | 0.5 | 1.5 |" in page
    assert "cpu of 1 GHz." in page


def test_reasons_are_of_rows_that_there_are() -> None:
    areas, module = bench("page.areas").AREAS, bench("page.reasons")
    for area, reasons in module.read().items():
        figures = areas[area].read(ROOT / "bench" / "results" / f"{area}.json")
        for name, why in reasons.items():
            assert any(module.matches(name, figure) for figure in figures), (area, name)
            assert 0 < len(why) <= 120, (area, name)
    for area, tried in module.read_tried().items():
        names = {figure.name for figure in areas[area].read(ROOT / f"bench/results/{area}.json")}
        assert tried.keys() <= names
        assert all(len(designs) > 1 for designs in tried.values())


def test_reasons_of_a_row_go_before_those_of_its_kind() -> None:
    module, figure = bench("page.reasons"), bench("page.figures").Figure
    known = {"first": {"* second process": "imports", "bert": "its weights"}}
    second = "import, session and first run, second process"
    assert module.why(known, "first", figure("bert", "BERT", second)) == "its weights"
    assert module.why(known, "first", figure("lstm", "LSTM", second)) == "imports"
    assert module.why(known, "first", figure("lstm", "LSTM", "a run")) == ""
    assert module.why(known, "cpu", figure("bert", "BERT", second)) == ""


def test_a_busy_machine_is_told_of(tmp_path: Path) -> None:
    machine, markdown = bench("machine"), bench("page.markdown")
    now, before = {"commit": "a", machine.BUSY: 0.1}, {"commit": "b", machine.BUSY: 1.5}
    both = machine.joined(now, before)
    assert both == {"commit": "b and a", machine.BUSY: 1.5}
    assert machine.joined(now, {}) == now
    for told, said in ((now, False), (both, True)):
        section = markdown.Section("cpu", tmp_path / "cpu.json", [], told)
        assert ("busy machine" in markdown.as_markdown([section], {})) is said


def test_pictures_have_a_line_per_row(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure, other = bench("page.figures").Figure, bench("page.figures").Other
    told = [
        figure("a", "one", "1 thread", ratio=0.5, spread=(0.4, 3.0), peer=other("P", "", 2.0)),
        figure("a", "one", "all threads", ratio=1.5),
        figure("b", "none", "1 thread", note="failed"),
    ]
    bench("picture").draw(tmp_path / "it.png", told, "Title")
    assert (tmp_path / "it.png").read_bytes().startswith(b"\x89PNG")


def test_sums_of_many_weights() -> None:
    proto, _ = bench("models").sums(1234)
    assert len(proto.graph.initializer) == 1234
    assert len(proto.graph.node) == 15


def test_pages_of_kept_results_can_be_made() -> None:
    found = list(bench("page.markdown").sections(ROOT / "bench" / "results"))
    assert {"cpu", "first", "weights", "weight_sharing", "architectures"} <= {s.name for s in found}
    assert all(section.figures for section in found)


def test_strings_are_compared(tmp_path: Path) -> None:
    child, turns = bench("child"), bench("cpu.turns")
    for name, words in (("a", ["x", "y"]), ("b", ["x", "y"]), ("c", ["x", "z"])):
        child.write_outputs(str(tmp_path / f"{name}.npz"), [[np.array(words, object)]])
    a, b, c = (tmp_path / f"{name}.npz" for name in "abc")
    assert turns.difference(a, b, 0.0) == (0.0, "")
    assert turns.difference(a, c, 0.0)[1] == "output 0:0 has other strings"
