"""The benchmark on a GPU: what it says without one, and that its networks have their twins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.cuda import __main__ as command
from bench.cuda.kernels import cases
from bench.cuda.measure import report
from bench.cuda.page import page
from bench.cuda.processes import Runs
from bench.cuda.results import Results
from bench.cuda.table import ROWS


def with_root() -> dict[str, str]:
    """Return an environment in which ``bench`` is found, and what is found here."""
    before = os.environ.get("PYTHONPATH")
    places = filter(None, (str(Path(__file__).parents[2]), before))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places)}


def test_help_lists_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown and row.about in shown for name, row in ROWS.items())


def test_without_a_gpu_it_says_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reason = why_unusable(CUDAExecutionProvider)
    if reason is None:
        pytest.skip("there is a GPU")
    assert command.main(["bert-base", "--output", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    assert capsys.readouterr().err == f"error: CUDA cannot be used here: {reason}\n"


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["bert"])
    assert "'bert' is not one of decode-nbits-fp16" in capsys.readouterr().err


def test_the_page_says_who_is_ahead_and_what_failed() -> None:
    row = {"tenonnx": 3.0, "tenonnx graph": 2.0, "torch eager": 2.5, "torch.compile": 1.6,
           "torch graph": 1.25, "tenonnx: first": 9.0, "tenonnx: weights MiB": 7.0,
           "tenonnx: error": 1e-3, "tenonnx graph: error": 0.02}  # fmt: skip
    decoder = {"tenonnx": 1.5, "memory GB/s": 2097.152, "tenonnx: weights MiB": 2e3}
    content = {
        "device": "Chip",
        "driver": 13000,
        "found": {
            "tests": {"passed": 5, "failures": 1, "errors": 0, "skipped": 2, "seconds": 3.0},
            "conformance": {"cases": 7, "passed, all on the device": 3, "passed, none": 2},
            "kernels": {"copy": 12.0, "copy GB/s": 2345.6, "it": 3.0, "it GB/s": 1876.5},
            "bert-base": row,
            "resnet50": {"torch eager": 1.0},
            "decode-fp16": decoder,
            "small resnet50": {"tenonnx": 1.0, "tenonnx: error": 1e-5},
        },
        "failed": {"tests": {}, "resnet50": {"tenonnx": "ValueError: no"}},
    }  # fmt: skip
    lines = page(content).splitlines()
    assert lines[0] == "# Chip"
    assert "tests/cuda: 5 passed, 1 failures, 0 errors, 2 skipped; 3 s." in lines
    where = "3 passed, all on the device; 2 passed, none"
    assert f"ONNX's backend tests: 5 of 7 ({where})." in lines
    cells = "3 | 2 | 2.5 | 1.6 | 1.25 | – | 0.80 | **1.25** | 1.60 | – | **0.02** | 9 | 7 | – | –"
    assert f"| BERT-base, 128 tokens | TF32 | {cells} |" in lines
    cells = "– | – | 1 | – | – | – | – | – | – | – | – | – | – | – | –"
    assert f"| ResNet-50, one image | TF32 | {cells} |" in lines
    cells = "1.5 | – | – | – | – | 1 | – | – | – | **1.50** | – | – | 2000 | – | –"
    assert f"| {ROWS['decode-fp16'].about} | float16 | {cells} |" in lines
    assert "| it | 3 | 1876 | – | – | 80 % |" in lines
    assert "Small networks, and their errors: resnet50 (1e-05)." in lines
    assert "- `resnet50`, tenonnx: ValueError: no" in lines


def heard(run: Runs, *arguments: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a process found, and what of it failed."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}

    def both(some: Any, others: Any) -> None:
        found.update(some)
        failed.update(others)

    run.run(arguments, both)
    return found, failed


def test_a_row_that_ends_or_hangs_keeps_what_it_found(tmp_path: Path) -> None:
    run = Runs({}, 2.0, tmp_path / "log")
    said = 'print(\'{"found": {"a": 1}}\\n{"failed": {"b": "no"}}\', flush=True)'
    found, failed = heard(run, "-c", f"{said}; raise SystemExit('the end')")
    assert (found, failed) == ({"a": 1}, {"b": "no", "process": "1: the end"})
    found, failed = heard(run, "-c", f"{said}; import time; time.sleep(60)")
    assert found == {"a": 1}
    assert failed["process"].startswith("no end after 2 s")
    assert "the end" in (tmp_path / "log").read_text()


def test_lines_of_others_are_no_figures(tmp_path: Path) -> None:
    run = Runs({}, 20.0, tmp_path / "log", budget=20.0)
    assert heard(run, "-c", "print('{x', '[1]', '{\\'a\\': 1}', '3', sep='\\n')") == ({}, {})
    run = Runs({}, 20.0, tmp_path / "log", budget=0.0)
    assert heard(run, "-c", "") == ({}, {"process": "no time was left"})


def test_figures_are_kept_as_they_come(tmp_path: Path) -> None:
    """Half a line is none yet; a page is there while what is measured goes on."""
    results = Results(tmp_path, {"device": "A Chip (TM) 80GB", "driver": 13000})
    code = (
        "import pathlib, sys, time\n"
        'sys.stdout.write(\'{"found": {"copy": 1}}\\n{"found": {"copy\'); sys.stdout.flush()\n'
        f"page = pathlib.Path({str(tmp_path)!r}, 'cuda-a-chip-tm-80gb.md')\n"
        "while not page.exists(): time.sleep(0.01)\n"
        "sys.stdout.write(' GB/s\": 2}}\\n')\n"
    )
    command.measure(Runs({}, 20.0, tmp_path / "log"), "kernels", ["-c", code], results)
    assert json.loads(results.path.read_text())["found"] == {"kernels": {"copy": 1, "copy GB/s": 2}}
    assert "| copy | 1 | 2 | – | – | 100 % |" in results.path.with_suffix(".md").read_text()


def test_results_of_a_device_are_gone_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = {"device": "Chip", "cupy": "14"}
    ran: list[str] = []

    def run(_: Any, arguments: list[str], told: Any, **_times: int) -> None:
        ran.append(arguments[2])
        told({"tenonnx": float(len(ran))}, {"torch.compile": "no"} if len(ran) == 1 else {})

    monkeypatch.setattr(Runs, "look", lambda _: (device, None))
    monkeypatch.setattr(Runs, "run", run)
    rows, output = ["bert-base", "resnet50"], ["--output", str(tmp_path)]
    assert command.main([*rows, *output]) == 1
    assert command.main([*rows, "decode-fp16", *output, "--skip-done"]) == 0
    assert ran == [*rows, "bert-base", "decode-fp16"]
    kept = {"bert-base": {"tenonnx": 3.0}, "resnet50": {"tenonnx": 2.0}}
    content = json.loads((tmp_path / "cuda-chip.json").read_text())
    assert content["found"] == {**kept, "decode-fp16": {"tenonnx": 4.0}}
    assert content["failed"] == {}
    command.main(["decode-fp16", "--quick", *output])
    content = json.loads((tmp_path / "cuda-chip.json").read_text())
    assert content["found"] == {**kept, "decode-fp16": {"tenonnx": 4.0},
                                "small decode-fp16": {"tenonnx": 5.0}}  # fmt: skip
    ran.clear()
    device["device"] = "another"
    command.main([*rows, *output, "--skip-done"])
    assert ran == rows


def test_what_hangs_takes_its_children_along(tmp_path: Path) -> None:
    run = Runs({}, 1.0, tmp_path / "log")
    child = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, file=sys.stderr)"
    heard(run, "-c", f"{child}; sys.stderr.flush(); import time; time.sleep(60)")
    number = int((tmp_path / "log").read_text().split()[-1])
    for _ in range(50):
        state = Path(f"/proc/{number}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the child lives on")


def test_one_way_that_fails_costs_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> dict[str, float]:
        raise ValueError("no")

    report({"one": fails, "two": lambda: {"two": 2.0}})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"failed": {"one": "ValueError: no"}}, {"found": {"two": 2.0}}]


def test_tests_are_told_of_as_they_end(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2, 'no'\n"
        "@pytest.mark.skip\ndef test_c(): pass\n@pytest.fixture\ndef x(): raise ValueError('x')\n"
        "def test_d(x): pass\n"
    )
    code = (
        "import sys, pytest; from bench.cuda.tests import Account; a = Account(sys.stderr);"
        "pytest.main(['-q', '-p', 'no:cacheprovider', 'test_it.py'], plugins=[a]); a.tell()"
    )
    environment = with_root()
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert [line["failed"] for line in lines if "failed" in line] == [
        {"test_it.py::test_b": "AssertionError: no"},
        {"test_it.py::test_d": "ValueError: x"},
    ]
    counts = {"passed": 1, "failures": 1, "errors": 1, "skipped": 1}
    assert {name: lines[-1]["found"][name] for name in counts} == counts
    assert ">   def test_b(): assert 1 == 2, 'no'" in done.stderr


def test_a_process_goes_on_after_what_broke_its_device(tmp_path: Path) -> None:
    code = """
import sys
from types import SimpleNamespace
from bench.cuda.measure import report
def broken(): raise RuntimeError("lost")
def breaks():
    runtime = SimpleNamespace(CUDARuntimeError=RuntimeError, deviceSynchronize=broken)
    sys.modules["cupy"] = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    raise RuntimeError("wild access")
after = sys.argv[2] if "--after" in sys.argv else ""
report({"a": lambda: {"a": 1}, "b": breaks, "c": breaks, "d": lambda: {"d": 4}}, after)
"""
    path = tmp_path / "measure.py"
    path.write_text(code)
    environment = with_root()
    done = subprocess.run(
        [sys.executable, path], env=environment, capture_output=True, text=True, check=True
    )
    assert [next(iter(json.loads(line).values())) for line in done.stdout.splitlines()] == [
        {"a": 1}, {"b": "RuntimeError: wild access"}, {"c": "RuntimeError: wild access"}, {"d": 4}
    ]  # fmt: skip


def test_kernels_are_named_as_their_figures() -> None:
    assert {"copy", "int4 [N, K] float16 x 1", "cuBLAS float16 x 512"} <= cases().keys()


def test_it_starts_where_tenonnx_is_not_installed_yet() -> None:
    """Wheels are installed by it, for the processes that it starts."""
    root = Path(__file__).parents[2]
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from bench.cuda import __main__;"
        "assert not [name for name in sys.modules if name.startswith('tenonnx')]"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)
