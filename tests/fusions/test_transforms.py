"""Every graph transform on models that break what it may assume, against models as they are.

A row of the tables writes a model with choices; the first of each is what exporters write, and is
transformed. What it then gives has the dtype, shape and values that the nodes give one by one, and
errors only where these err, whichever other choice is made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import attention_rows
import classical_rows
import graph_rows
import layer_rows
import pytest
from compared import ALL, PLUGINS, base, deviations, differing, session
from drafts import Row, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("TENONNX_EXAMPLES", "2"))
"""Models drawn of each row; ``TENONNX_EXAMPLES=500`` draws more."""

ROWS: dict[str, Row] = {
    **attention_rows.ROWS,
    **graph_rows.ROWS,
    **classical_rows.ROWS,
    **layer_rows.ROWS,
}

FORGIVING = {
    "redundant-nodes": "what is left out refuses nothing any more",
    "redundant-nodes, reshaped": "likewise",
    "redundant-nodes, squeezed": "likewise",
}
"""Rows that may answer where a node would have refused its input, and why."""

ELSEWHERE = {
    "caches-in-place": "only where a session asks for it: tests/fuse/test_caches_in_place.py",
    "conv-bias": "its row is that of conv-batchnorm, which folds sums before it",
    "last-row": "only where a session's configuration names an output: tests/fuse/test_last_row.py",
    "lift-constants": "constants are lifted in all rows that have Constant nodes",
    "lower-gradients": "no optimization: the operator has no other meaning",
    "lower-nchwc": "likewise",
    "openvino-ranks": "of another provider",
    "row-matrices": "only where a session asks for it: tests/fuse/test_row_matrices.py",
    "remove-unused": "takes out what others leave, in nearly all rows",
}
"""Transforms without a row of their own, and why."""


def test_every_transform_has_a_row() -> None:
    rows = {name.partition(",")[0] for name in ROWS}
    assert set(PLUGINS.transforms) - ELSEWHERE.keys() <= rows
    assert rows - {"conv-bias"} <= set(PLUGINS.transforms) - ELSEWHERE.keys()


@pytest.mark.parametrize("name", ROWS)
def test_what_exporters_write_is_transformed(name: str) -> None:
    made = session(drawn(ROWS[name], base), "plain", ALL)
    modified = {report.name for report in made.transforms if report.modified}
    wanted = {"conv-bias": "conv-batchnorm"}.get(name, name.partition(",")[0])
    assert wanted in modified


def wrong(name: str, case: Any, provider: str) -> str | None:
    found = differing(case, provider)
    return None if found and name in FORGIVING and " -> [" in found else found


@pytest.mark.parametrize("name", ROWS)
def test_another_choice_gives_what_its_nodes_give(name: str) -> None:
    found = {what: wrong(name, case, "plain") for what, case in deviations(ROWS[name])}
    assert not {what: each for what, each in found.items() if each}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("provider", ["plain", "cpu"])
@settings(max_examples=EXAMPLES, derandomize=True)
@given(data=st.data())
def test_other_choices_give_what_their_nodes_give(
    name: str, provider: str, data: st.DataObject
) -> None:
    def choose(options: Sequence[Any]) -> Any:
        return options[data.draw(st.integers(0, len(options) - 1))]

    assert wrong(name, drawn(ROWS[name], choose), provider) is None
