"""Rows that categories choose, and their sum, as CategoricalNB is exported, beside numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

from models import node
from tenonnx_cpu.ml.categories import CATEGORIES

require_kernels()

COLUMNS, KINDS, CLASSES = 8, 5, 3
TABLES = [floats(CLASSES, KINDS, seed=n) for n in range(COLUMNS)]


def naive_bayes(threads: int) -> Any:
    nodes = []
    for n in range(COLUMNS):
        nodes += [
            node("Gather", f"x at{n}", f"a{n}", axis=1),
            node("Cast", f"a{n}", f"b{n}", to=7),
            node("Reshape", f"b{n} flat", f"c{n}"),
            node("Gather", f"table{n} c{n}", f"d{n}", axis=1),
            node("Transpose", f"d{n}", f"e{n}", perm=[1, 0]),
        ]
    nodes.append(node("Sum", " ".join(f"e{n}" for n in range(COLUMNS)), "y"))
    weights = {"flat": np.array([-1])}
    weights |= {f"table{n}": table for n, table in enumerate(TABLES)}
    weights |= {f"at{n}": np.array([n]) for n in range(COLUMNS)}
    return session(nodes, {"x": np.zeros((1, COLUMNS), np.float32)}, "y", weights, threads=threads)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("rows", [1, 3000])
def test_rows_take_one_launch(rows: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Watch(CATEGORIES, monkeypatch)
    x = np.random.default_rng(2).integers(-KINDS, KINDS, (rows, COLUMNS))
    (y,) = naive_bayes(threads).run(None, {"x": x.astype(np.float32)})
    assert kernel.calls == 1
    expected = sum(table.T[x[:, n]].astype(np.float64) for n, table in enumerate(TABLES))
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("place", [KINDS, -KINDS - 1, 1e9])
def test_categories_that_there_are_not_are_an_error(place: float) -> None:
    x = np.zeros((3, COLUMNS), np.float32)
    x[1, 2] = place
    with pytest.raises(Exception, match="Gather"):
        naive_bayes(1).run(None, {"x": x})
