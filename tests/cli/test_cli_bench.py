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
from tenonnx.cli import timing
from tenonnx_bench.measure import open_all, race


def test_contenders_are_measured_and_compared(cli: Cli, adder: str, double: str) -> None:
    options = ("-p", "cpu", "-p", "slow:milliseconds=5", "--repeat", 4, "-i", "x=[1, 2]")
    result = cli("--plugin", double, "bench", adder, *options, "--json")
    assert result.exit_code == 4, result.output  # "slow" alone cannot run Neg
    cpu, slow = json.loads(result.stdout)["results"]
    assert cpu["runs"] == 4
    assert 0 < cpu["min"] <= cpu["median"] <= cpu["p90"] < cpu["load_seconds"] + 1
    assert cpu["ratio"] == 1
    assert "does not Neg" in slow["error"]
    assert "slow:milliseconds=5:" in result.stderr


def test_ratios_and_differences_are_to_the_first(cli: Cli, folder: Path, double: str) -> None:
    proto = model([node("Add", "x x", "y")], [value("x", FLOAT, [1])], [value("y", FLOAT, [1])])
    onnx.save(proto, folder / "add.onnx")
    names = ("-p", "slow:milliseconds=5", "-p", "slow:milliseconds=15", "-p", "cpu")
    command = ("--plugin", double, "bench", "add.onnx", *names, "-i", "x=[3]", "--repeat", 5)
    result = cli(*command, "--json")
    assert result.exit_code == 0, result.output
    five, fifteen, cpu = json.loads(result.stdout)["results"]
    assert five["ratio"] == 1
    assert fifteen["median"] > 0.015
    assert fifteen["ratio"] == pytest.approx(fifteen["median"] / five["median"])
    assert cpu["ratio"] < 1
    assert (five["difference"], fifteen["difference"], cpu["difference"]) == (None, 0, 1)
    lines = cli(*command).stdout.splitlines()
    assert lines[0].split() == ["provider", "load", "first"]
    assert lines[5].split() == ["provider", "min", "p50", "p99", "runs/s", "ratio", "differs"]
    assert lines[8].split()[0] == "cpu"
    assert lines[-1] == "5 runs each, in turn"


def test_time_decides_without_repeat(cli: Cli, adder: str) -> None:
    result = cli("bench", adder, "-p", "cpu", "--seconds", 0.2, "--json", "--threads", 1)
    (cpu,) = json.loads(result.stdout)["results"]
    assert cpu["runs"] >= 5
    assert cpu["min"] * cpu["runs"] < 1
    assert "running in turn" in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("onnxruntime") is None, reason="needs onnxruntime")
def test_onnxruntime_is_a_contender(cli: Cli, mlp: str) -> None:
    command = ("bench", mlp, "-p", "cpu", "-p", "onnxruntime", "--repeat", 2, "--dim", "batch=4")
    result = cli(*command, "--json")
    assert result.exit_code == 0, result.output
    _, peer = json.loads(result.stdout)["results"]
    assert peer["runs"] == 2
    assert peer["difference"] < 1e-5
    wrong = cli("bench", mlp, "-p", "onnxruntime:providers=CPU")
    assert wrong.exit_code == 2
    assert "did you mean 'provider'?" in wrong.stderr


def test_onnxruntime_is_not_installed(cli: Cli, mlp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenonnx_bench.peers.is_installed", lambda _: False)
    result = cli("bench", mlp, "-p", "onnxruntime")
    assert result.exit_code == 2
    assert result.stderr == ("error: onnxruntime is not installed\nhint: pip install onnxruntime\n")


def test_a_wrong_name_stops_before_anything_is_measured(cli: Cli, mlp: str) -> None:
    result = cli("bench", mlp, "-p", "cpu", "-p", "cpuu")
    assert result.exit_code == 2
    assert "unknown provider 'cpuu'" in result.stderr
    assert "loading" not in result.stderr


def test_contenders_run_in_turn() -> None:
    calls: list[str] = []

    def opener(name: str) -> Callable[[str | bytes], Any]:
        def run(feeds: Mapping[str, Any]) -> list[Any]:
            if "real" in feeds:
                calls.append(name)
            return [np.zeros(1)]

        def open_model(model: str | bytes) -> Any:
            del model
            return run

        return open_model

    feeds = {"real": 1}

    def show(doing: str, done: float) -> None:
        del doing, done

    results = open_all({"a": opener("a"), "b": opener("b")}, "model", feeds, show)
    race(results, feeds, repeat=2, seconds=1, show=show)
    turn = ["a"] * 3 + ["b"] * 3  # the first of each does not count
    assert calls == ["a", "b", *turn]
    assert [len(result.seconds) for result in results] == [2, 2]


def test_all_providers_take_part_each_with_the_cpu_behind_it(
    cli: Cli, adder: str, double: str
) -> None:
    result = cli("--plugin", double, "bench", adder, "--all-providers", "--repeat", 2, "--json")
    rows = {row["provider"]: row for row in json.loads(result.stdout)["results"]}
    assert {"cpu", "slow"} <= rows.keys()
    assert "gone" not in rows
    assert rows["slow"]["error"] is None  # it adds only; Neg is the CPU's
    assert next(iter(rows)) == "cpu"


def test_a_call_settles_when_it_gets_no_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([9.0, 5.0, 3.0, 2.9, 3.1, *[1.0] * 9])
    times = [timing.Turn(4, fastest, fastest, 0.0) for fastest in speeds]
    monkeypatch.setattr(timing, "turn", lambda *_: times.pop(0))
    settled = timing.settle(lambda: None, 60)
    assert (settled.runs, settled.settled) == (4 * 8, True)  # 2.9 is a gain, 3.1 none, 1.0 is
    times[:] = [timing.Turn(1, 1 / n, 1 / n, 0.0) for n in range(1, 100)]
    monkeypatch.setattr(timing, "clock", iter(range(100)).__next__)
    given_up = timing.settle(lambda: None, 5)
    assert (given_up.runs, given_up.settled) == (4, False)


def test_who_still_got_faster_is_told(cli: Cli, adder: str) -> None:
    options = ("-p", "cpu", "--repeat", 1, "--settle", 0)
    assert "cpu still got faster after" in cli("bench", adder, *options).stdout
    (row,) = json.loads(cli("bench", adder, *options, "--json").stdout)["results"]
    assert row["settled"] is False
