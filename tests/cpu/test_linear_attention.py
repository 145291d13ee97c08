"""Linear attention on a kernel, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from running import Watch, floats, require_kernels, session

from models import node
from tenonnx_cpu.attention.linear import ATTEND

require_kernels()

RULES = {"linear": "", "gated": "d", "delta": "b", "gated_delta": "db"}


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("length", "heads", "groups", "keys", "wide", "past"),
    [(1, 4, 2, 2, True, True), (7, 2, 2, 2, False, False), (5, 2, 4, 2, True, True)],
)
def test_rules(
    domain: str, rule: str, length: int, heads: int, groups: int, keys: int, wide: bool, past: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if not domain:  # there are as many heads of keys as of values, and no less of queries
        heads, keys = max(heads, groups), groups
    depth, width = 8, 20
    feeds: dict[str, Any] = {
        "q": floats(2, length, heads * depth),
        "k": floats(2, length, keys * depth, seed=1, scale=0.3),
        "v": floats(2, length, groups * width, seed=2),
    }
    if past:
        feeds["s"] = floats(2, groups, depth, width, seed=3)
    if "d" in RULES[rule]:
        feeds["d"] = -np.abs(floats(2, length, groups * depth if wide else groups, seed=4))
    if "b" in RULES[rule]:
        feeds["b"] = np.abs(floats(2, length, groups if wide else 1, seed=5))
    names = " ".join(name if name in feeds else "_" for name in "qkvsdb").rstrip("_ ")
    made = node(
        "LinearAttention", names, "y t", domain=domain,
        q_num_heads=heads, kv_num_heads=groups, update_rule=rule,
    )  # fmt: skip
    given = [made], feeds, "y t"
    options: dict[str, Any] = {"domains": {"com.microsoft": 1}} if domain else {"opset": 27}
    with monkeypatch.context() as patch:
        patch.setenv("TENONNX_JIT", "0")
        expected = session(*given, **options).run(None, feeds)
    watch = Watch(ATTEND, monkeypatch)
    found = session(*given, **options).run(None, feeds)
    assert watch.calls == 1
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
