"""Writes the ``.npz`` files of this folder with onnxruntime; the tests do not need it.

``python tests/contrib/record.py [TOPIC ...]`` runs every row of ``rows_<topic>.py`` on
onnxruntime's CPU provider, unoptimized, and keeps inputs and answers in ``<topic>.npz``.
``--check`` has the installed onnxruntime answer what is kept, and prints where it differs.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from rows import Row, feeds_of, model_of, read, write  # noqa: E402 - needs the path


def run(row: Row) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model_of(row).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    # A value borrows the array's memory.
    arrays = {name: np.array(array) for name, array in feeds_of(row).items()}
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    caches = {f"y{output}": f"x{cache}" for cache, output in row.shared.items()}
    for output in session.get_outputs():
        if output.name in caches:
            binding.bind_ortvalue_output(output.name, values[caches[output.name]])
        else:
            binding.bind_output(output.name, "cpu")
    session.run_with_iobinding(binding)
    return [value.numpy().copy() for value in binding.get_outputs()]


def recorded(row: Row) -> Row:
    answers = run(row)
    if row.known is not None:
        for i, answer in zip(row.outputs, answers, strict=True):
            answer[~np.broadcast_to(row.known(i, answer), answer.shape)] = np.nan
    return dataclasses.replace(row, answers=answers)


def check(topic: str) -> None:
    """Print what the installed onnxruntime answers otherwise than the file says."""
    rows = {row.id: row for row in importlib.import_module(f"rows_{topic}").ROWS}
    kept = read(HERE / f"{topic}.npz")
    exact = 0
    for row in kept:
        answers = run(dataclasses.replace(row, shared=rows[row.id].shared))
        same = True
        for expected, answer in zip(row.answers, answers, strict=True):
            known = np.where(expected != expected, expected, answer).astype(expected.dtype)
            same = same and known.tobytes() == expected.tobytes()
            near = {} if expected.dtype == object else {"rtol": row.rtol, "atol": row.atol}
            if near and not np.allclose(known, expected, **near, equal_nan=True):
                print(f"{row.id} differs")
        exact += same
    print(f"{topic}: {exact} of {len(kept)} rows to the bit")


if __name__ == "__main__":
    checking = "--check" in sys.argv
    topics = [name for name in sys.argv[1:] if name != "--check"] or [
        path.stem[5:] for path in sorted(HERE.glob("rows_*.py"))
    ]
    for topic in topics:
        if checking:
            check(topic)
            continue
        rows = importlib.import_module(f"rows_{topic}").ROWS
        write(HERE / f"{topic}.npz", [recorded(row) for row in rows])
        size = (HERE / f"{topic}.npz").stat().st_size
        print(f"{topic}: {len(rows)} rows, {size} bytes")
