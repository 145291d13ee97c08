from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tenonnx_cpu.jit import library

for needed in ("onnxruntime", "matplotlib", "pytest_benchmark"):
    pytest.importorskip(needed)

ROOT = Path(__file__).parents[2]
# pytest-benchmark does not measure in what it takes for a worker of xdist.
VARIABLES = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
MIB = 1 << 20
CASES = {
    "external-1g",
    "inline-aligned-1g",
    "inline-unaligned-1g first",
    "inline-unaligned-1g second",
    "ten-sessions",
    "tied-if-1g",
    "dispatch",
    "mlp",
    "digits",
    "encoder",
    "decoder",
    "resnet50",
    "mobilenet-v2",
    "forest",
}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


def bench(module: str) -> Any:
    return importlib.import_module(f"bench.{module}")


def test_quick_run(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--output", str(tmp_path)],
        cwd=ROOT,
        env=VARIABLES | {"TMPDIR": str(tmp_path / "temporary")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "all-quick.json").read_text())["rows"]
    for engine in ("tenonnx", "onnxruntime"):
        measured = {row["case"]: row["values"] for row in rows if row["engine"] == engine}
        assert measured.keys() >= CASES
        for case in CASES:
            times = {key for key, value in measured[case].items() if value > 0}
            assert times >= {"import_s", "load_s", "first_s", "run_s", "median_s", "base_mib"}
    suites = {row["case"].partition(":")[0] for row in rows if ":" in row["case"]}
    assert suites == {"dispatch", "load", "models"}
    assert done.stdout.count("run min") == 1
    assert (tmp_path / "all-quick.png").read_bytes().startswith(b"\x89PNG")
    assert "| tied-if-1g | all |" in (tmp_path / "all-quick.md").read_text()
    assert not list((tmp_path / "temporary").iterdir())


def test_table_of_the_cpu_provider(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "cpu", "--quick", "--threads", "1"]
    command += ["--output", str(tmp_path)]
    for names in (["forest-1"], ["mlp-five-nodes", "forest-1"]):
        done = subprocess.run(
            [*command, *names], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "cpu-quick.json").read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert list(rows) == ["forest-1", "mlp-five-nodes"]
    for row in rows.values():
        assert row["error"] < 1e-4
        assert {"turn", "fastest", "median", "processor"} <= row["ratios"].keys()
        assert all(row[engine]["fastest"] > 0 for engine in ("mine", "theirs"))
    assert "| MLP of 5 nodes, 1 row | 1 |" in (tmp_path / "cpu-quick.md").read_text()
    assert (tmp_path / "cpu-quick.png").read_bytes().startswith(b"\x89PNG")


def test_models_of_a_folder(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
        test (float[n, 3] x) => (float[n, 3] y) { y = Tanh(x) }"""
    models = tmp_path / "models"
    (models / "deeper").mkdir(parents=True)
    proto = onnx.parser.parse_model(text)
    onnx.save(proto, models / "deeper" / "tanh.onnx")
    onnx.save(proto, models / "beside.onnx")
    np.savez(models / "beside.npz", x=np.ones((5, 3), np.float32))
    (models / "none.onnx").write_bytes(b"no model")
    command = [sys.executable, "-m", "bench", "folder", str(models), "--quick", "--dim", "n=7"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "table.md")],
        cwd=ROOT,
        env=VARIABLES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    *_, first, second, third = done.stdout.splitlines()
    assert first.startswith("| beside.onnx | all | same outputs | ")
    assert second.startswith("| deeper/tanh.onnx | all | same outputs | ")
    assert third.startswith("| none.onnx | all | tenonnx: ")
    assert (tmp_path / "table.md").read_text() == done.stdout


def test_measures_of_numpy_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the table and the picture."""
    command = [sys.executable, "-m", "bench", "cpu", "forest-1", "--quick", "--threads", "1"]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        cwd=ROOT,
        env=VARIABLES | {"TENONNX_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    remark = done.stdout.splitlines()[0]
    assert remark.startswith("WITHOUT KERNELS: no kernels, because TENONNX_JIT is 0: numpy")
    assert remark.endswith("; unset TENONNX_JIT")
    monkeypatch.setenv("TENONNX_JIT", "0")
    titles: list[str] = []
    monkeypatch.setattr("matplotlib.figure.Figure.suptitle", lambda _, t, **__: titles.append(t))
    drawn = bench("page.figures").Figure("forest-1", "a forest", "1 thread", ratio=0.5)
    bench("picture").draw(tmp_path / "drawn.png", [drawn], "Ratios")
    assert titles == [f"{remark}\nRatios"]


def test_measures_of_kernels_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENONNX_JIT")
    if library.find() is None:
        pytest.skip("there are no kernels here")
    assert bench("kernels").without_kernels() == ""


def test_unknown_name_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "externl-1g"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "'externl-1g' is not one of" in done.stderr


def test_private_memory_of_another_process_is_followed() -> None:
    code = """
import mmap, sys
pages = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE)
def tell():
    print(flush=True)
    sys.stdin.readline()
tell()
pages.write(bytes(1 << 20) * 64)
tell()
pages.close()
tell()
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        memory = bench("measure").Memory(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        seen = []
        for _ in range(3):
            process.stdout.readline()
            seen.append(memory.read()["RssAnon"])
            process.stdin.write(b"\n")
            process.stdin.flush()
        peak = memory.take_peak()
        memory.close()
    before, held, after = seen
    assert held - before == pytest.approx(64 * MIB, abs=2 * MIB)
    assert after - before == pytest.approx(0, abs=2 * MIB)
    assert peak - before >= 60 * MIB


@pytest.mark.parametrize("offset", [0, 1])
def test_inline_weights_are_where_they_should_be(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "model.onnx"
    bench("big").save_inline(8, path, offset=offset)
    content = path.read_bytes()
    weights = [tensor.raw_data for tensor in onnx.load(path).graph.initializer]
    assert sum(map(len, weights)) == 8 * MIB
    assert {content.index(weight) % 4 for weight in weights} == {offset}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (np.array([1.0, 1000.05], np.float32), ""),
        (np.array([1.0, 1003.0], np.float32), "output 0:0 differs by 3 where values reach 1e+03"),
        (np.array([1.0, np.nan], np.float32), "differs"),
        (np.array([1.0, 1000.0]), "output 0:0 is float64(2,), not float32(2,)"),
    ],
)
def test_outputs_are_compared(tmp_path: Path, other: np.ndarray[Any, Any], said: str) -> None:
    child = bench("child")
    child.write_outputs(tmp_path / "mine.npz", [[other]])
    child.write_outputs(tmp_path / "theirs.npz", [[np.array([1.0, 1000.0], np.float32)]])
    difference = bench("compare").difference(tmp_path / "mine.npz", tmp_path / "theirs.npz")
    assert said in difference
    assert bool(said) == bool(difference)


def test_bounds_are_looked_at() -> None:
    compare, scenarios = bench("compare"), bench("scenarios")
    rows = {
        "tenonnx": compare.Row("case", 0, "tenonnx", {"load_s": 0.2, "loaded_mib": 7.0}),
        "onnxruntime": compare.Row("case", 0, "onnxruntime", {"load_s": 1.0}),
    }

    def holds(column: str, limit: float, of: str = "") -> list[bool]:
        return list(compare.check(scenarios.Bound(column, limit, of), rows).values())

    assert holds("loaded_mib", 8) == [True]
    assert holds("loaded_mib", 6) == [False]
    assert holds("load_s", 0.25, "onnxruntime") == [True]
    assert holds("load_s", 0.1, "onnxruntime") == [False]
    assert holds("ran_mib", 8) == []


def test_an_engine_that_fails_has_a_note_and_no_values() -> None:
    compare, scenarios = bench("compare"), bench("scenarios")
    told = {
        "tenonnx": [{"load_s": 1.0, "blas": []}, {"note": "output 0:0 differs"}],
        "onnxruntime": [{"load_s": 1.0, "blas": []}, {"load_s": 3.0, "blas": []}],
    }
    case = scenarios.Case("case", Path("model.onnx"), [])
    mine, theirs = compare.judged(case, 0, told, quick=True)
    assert (mine.note, mine.values) == ("output 0:0 differs", {})
    assert (theirs.note, theirs.values) == ("", {"load_s": 2.0})


def test_every_provider_on_the_same_models(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "providers", "--quick", "--output", str(tmp_path)]
    own = {**os.environ, "TENONNX_BLOCK_PLUGINS": "jax,openvino,torch"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=own)
    assert done.returncode == 0, done.stderr
    assert "| digits, 64 images | cpu |" in done.stdout
    assert (tmp_path / "providers.md").read_text() in done.stdout


def test_transforms_are_left_out_one_by_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "transforms", "--quick", "--output", str(tmp_path)]
    for name in ("decoder", "mlp"):
        done = subprocess.run(
            [*command, name], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "transforms-quick.json").read_text())["rows"]
    assert {row["model"] for row in rows} == {"decoder"}, "nothing matches the mlp"
    found = {row["transform"]: row for row in rows}
    assert found.keys() >= {"fold-constants", "rms-norm", "all of these"}
    before, after = found["rms-norm"]["matched"].split(" → ")
    assert int(after) < int(before)
    assert all(0 < row["mine_s"] < 1 > row["other_s"] > 0 for row in rows)
    assert "| decoder | rms-norm |" in (tmp_path / "transforms-quick.md").read_text()
    assert (tmp_path / "transforms-quick.png").read_bytes().startswith(b"\x89PNG")


def test_what_transforms_may_cost() -> None:
    row = bench("transforms_report").Row
    told = [
        row("model", "faster", "", mine_s=1.0, other_s=2.0, mine_mib=1.0, other_mib=1.0),
        row("model", "slower", "", mine_s=1.1, other_s=1.0, mine_mib=1.0, other_mib=1.0),
        row("model", "larger", "", mine_s=1.0, other_s=1.0, mine_mib=2.0, other_mib=1.0),
    ]
    assert [each.holds for each in told] == [True, False, False]
    assert told[1].least(mine_s=1.0, other_s=1.5).holds
    assert "1 are slower by more than 3%, 1 larger" in bench("transforms_report").summary(told)
