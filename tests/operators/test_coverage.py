"""Every operator at every version runs, and some test runs it."""

from __future__ import annotations

import onnx
import pytest
from cases import CASES
from pairs import Pair, all_pairs, pairs_of_cases, pairs_of_suite

from tenonnx.graph import CONTROL_FLOW
from tenonnx_array import TABLE

pytestmark = pytest.mark.skipif(
    not all(case.is_known for case in CASES), reason="the installed onnx is older than the cases"
)

LOWERED: set[Pair] = {("ai.onnx.preview.training", "Gradient", 1)}
"""Operators that a transform replaces."""


def has_body(pair: Pair) -> bool:
    domain, op, version = pair
    schema = onnx.defs.get_schema(op, version, domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def test_every_pair_has_someone_to_run_it() -> None:
    pairs = all_pairs()
    assert len(pairs) >= 659
    kernels = {pair for pair in pairs if TABLE.find(*pair) is not None}
    control = {pair for pair in pairs if pair[0] == "" and pair[1] in CONTROL_FLOW}
    bodies = {pair for pair in pairs if has_body(pair)}
    assert sorted(pairs - kernels - control - bodies - LOWERED) == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_every_pair_is_run_by_a_test() -> None:
    assert sorted(all_pairs() - pairs_of_cases() - pairs_of_suite()) == []
