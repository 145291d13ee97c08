"""The table of first runs: a new installation, as its user finds it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def first(module: str) -> Any:
    return importlib.import_module(f"bench.first.{module}")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", "first", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_states_beside_onnxruntime(tmp_path: Path) -> None:
    states = ("onnxruntime", "again", "numpy")
    done = run("--quick", "digits", "--states", *states, "--output", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "first-quick.json").read_text())["rows"]
    assert tuple(row["state"] for row in rows) == states
    for row in rows:
        (trial,) = row["trials"]
        assert 0 < trial["import_s"] < trial["answer_s"]
        assert trial["second_s"] > 0 < trial["answer_cpu_s"]
        assert trial["cpu_ratio"] > 0
        assert trial["ratio"] == pytest.approx(trial["second_s"] / trial["warm_s"])
        assert 5 < trial["ran_mib"] < 100
    assert "| digits of `examples`, 1 image | onnxruntime |" in done.stdout


def test_results_are_replaced_row_by_row(tmp_path: Path) -> None:
    report, outcome = first("report"), first("outcome")
    results = report.Results(
        {"cpu": "one"}, installs={"it": {"seconds": 2.0, "cpu_s": 1.5, "disk_mib": 30.0}}
    )
    for name, state, warm in (
        ("lstm", "numpy", 1.0),
        ("bert", "again", 2.0),
        ("lstm", "numpy", 3.0),
    ):
        results.add([outcome.Outcome(name, state, state, [{"warm_s": warm}])])
    report.save(results, tmp_path / "first.json")
    assert report.read(tmp_path / "first.json") == results
    found = [(each.name, each.median("warm_s")) for each in results.rows]
    assert found == [("bert", 2.0), ("lstm", 3.0)]
    assert "| it | 2.0 | 1.5 | 30 |  |" in (tmp_path / "first.md").read_text()


def test_full_speed_is_found() -> None:
    """By several runs: one alone may be as fast by chance, and one of many slow."""
    until = first("outcome").until_full_speed
    assert until([1.0] * 9, 1.0) == 0
    assert until([5.0, 1.0, 5.0, 5.0, 5.0, 1.0, 1.0, 9.0, *[1.0] * 9], 1.0) == 16.0
    assert until([5.0] * 9, 1.0) == 45.0


def opened(**seconds: float) -> dict[str, Any]:
    trial = {"load_s": 0.02, "first_s": 0.01, "opened_s": 0.0}
    kind = first("outcome").Outcome
    return {s: kind("lstm", s, s, [trial | {"opened_s": t}]) for s, t in seconds.items()}


@pytest.mark.parametrize(
    ("name", "mine", "theirs", "said"),
    [
        ("lstm", 0.05, 0.06, {"import, session, first run 50 ms ≤ 120 ms": True}),
        ("lstm", 0.13, 0.06, {"import, session, first run 130 ms ≤ 120 ms": False}),
        ("lstm", 0.5, 0.4, {"import, session, first run 500 ms ≤ 520 ms": True}),
        (
            "resnet50-ort", 0.07, 0.08,
            {
                "import, session, first run 70 ms ≤ 140 ms": True,
                "session and first run 1.00 ≤ 1.5": True,
            },
        ),
    ],
)  # fmt: skip
def test_a_second_process_is_judged(
    name: str, mine: float, theirs: float, said: dict[str, bool]
) -> None:
    found = opened(again=mine, onnxruntime=theirs)
    first("outcome").judge(found, first("table").ROWS[name])
    assert found["again"].bounds == said


def test_a_first_process_is_judged() -> None:
    rows = first("table").ROWS
    found = opened(installed=0.7, onnxruntime=0.4)
    first("outcome").judge(found, rows["bert"])
    assert found["installed"].bounds == {"import, session, first run 700 ms ≤ 600 ms": False}
    assert not found["installed"].holds
    found = opened(installed=0.7, onnxruntime=0.4)
    found["installed"].trials[0] |= {"session_s": 0.34}
    first("outcome").judge(found, rows["digits"])
    assert found["installed"].bounds == {"answer after numpy 340 ms ≤ 350 ms": True}
    assert found["installed"].holds


def test_second_processes_are_judged_together() -> None:
    report = first("report")
    results = report.Results(rows=[*opened(again=0.02, onnxruntime=0.08).values()])
    assert results.opened == pytest.approx(0.25)
    assert results.holds
    results.rows = [*opened(again=0.06, onnxruntime=0.08).values()]
    assert not results.holds
    assert "FAILS: again, import, session, first run take 0.75 ≤ 0.7" in report.as_markdown(results)


def test_a_process_that_fails_has_a_note(tmp_path: Path) -> None:
    compare, states = first("compare"), first("states").STATES
    settings = compare.Settings(rounds=1, budget=0.01, small=True)
    chosen = {"numpy": states["numpy"]}
    row = first("table").ROWS["digits"]
    (found,) = compare.Comparison(chosen, settings, "false", tmp_path).run("digits", row)
    assert found.note == "the process ended"
    assert not found.holds


def test_help_names_rows_and_states(capsys: pytest.CaptureFixture[str]) -> None:
    parse = first("__main__").parse
    with pytest.raises(SystemExit):
        parse(["--help"])
    said = capsys.readouterr().out
    for word in ("mobilenet-v2", "int4-decode", "onnxruntime", "numpy alone", "--install"):
        assert word in said
    with pytest.raises(SystemExit):
        parse(["bart"])
    assert "'bart' is not one of" in capsys.readouterr().err
