"""Ray Data runs models: columns in, columns out, in actors that map the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="ray is not installed; tox -e ray")

import ray.data

from tenonnx_ray import Predictor

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # those of Ray about itself are many
    pytest.mark.usefixtures("cluster"),
]

X = np.arange(80, dtype=np.float32).reshape(20, 4)


def mapped(path: object, batch_size: int = 8, **how: Any) -> list[dict[str, Any]]:
    ray.data.DataContext.get_current().enable_progress_bars = False
    rows = ray.data.from_items([{"id": i, "x": row} for i, row in enumerate(X)])
    return rows.map_batches(
        Predictor,
        fn_constructor_args=(path,),
        fn_constructor_kwargs=how,
        batch_size=batch_size,
        compute=ray.data.ActorPoolStrategy(size=2),
    ).take_all()


def test_columns_become_columns(path: Path, weight: Any) -> None:
    rows = mapped(str(path), keep=["id"])
    assert all(row.keys() == {"id", "y"} for row in rows)
    found = np.stack([row["y"] for row in sorted(rows, key=lambda row: row["id"])])
    np.testing.assert_allclose(found, X @ weight, rtol=1e-6)


def test_what_went_wrong_reaches_the_driver(path: Path) -> None:
    with pytest.raises(Exception, match="there is no model at"):
        mapped(str(path.parent / "none.onnx"))
