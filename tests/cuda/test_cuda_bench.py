"""The benchmark on a GPU: what it says without one, and that its networks have their twins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tenonnx.provider import why_unusable
from tenonnx_cuda.provider import CUDAExecutionProvider

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.cuda import __main__ as command
from bench.cuda.table import ROWS


def test_help_lists_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown and row.about in shown for name, row in ROWS.items())


def test_without_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    reason = why_unusable(CUDAExecutionProvider)
    if reason is None:
        pytest.skip("there is a GPU")
    assert command.main(["bert-base"]) == 2
    assert capsys.readouterr().err == f"error: CUDA cannot be used here: {reason}\n"


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["bert"])
    assert "'bert' is not one of bert-base" in capsys.readouterr().err


def test_the_table_says_who_is_ahead() -> None:
    row = {"tenonnx": 3.0, "tenonnx graph": 2.0, "torch eager": 2.5, "torch.compile": 1.5,
           "torch graph": 1.4, "tenonnx: first": 9.0, "tenonnx: weights MiB": 7.0}  # fmt: skip
    assert command.too_slow(row) == ["torch.compile"]
    line = command.table("Chip", {"bert-base": row}).splitlines()[-1]
    assert line == "| BERT-base, 128 tokens | 3 | 2 | 2.5 | 1.5 | 1.4 | 9 | 7 | torch.compile |"
