"""The choice of fusions depends on priorities alone, not on names or the order of imports."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

pytest.importorskip("numba")

from compared import ALL, PLUGINS, base
from drafts import drawn
from test_steps import ROWS, off
from test_transforms import ROWS as TRANSFORMED

import tenonnx
from tenonnx.errors import PluginError
from tenonnx.planning.fusion import Fusions, Scope
from tenonnx_cpu import fuse
from tenonnx_cpu.lazy_import import import_all

EXPORTS = sorted((Path(__file__).parents[1] / "exports").glob("*.onnx"))


@pytest.fixture(autouse=True)
def on_kernels(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_cache is None  # it says otherwise, before
    monkeypatch.setenv("TENONNX_JIT", "1")
    import_all()


def plan(model: Any, disabled: Any = ()) -> list[list[str]]:
    """Return the nodes of each step of a model's plan."""
    options = tenonnx.SessionOptions(
        plugins=PLUGINS, graph_optimization_level=ALL, disabled_transforms=tuple(disabled)
    )
    made = tenonnx.InferenceSession(model, options, providers=["cpu"])
    return [[node.op_type for node in step.nodes] for step in made.plan.steps]


def plans() -> dict[str, list[list[str]]]:
    """Return the plans of models that fusions and transforms are for, and of exported ones."""
    drafts = {name: plan(drawn(row, base).model, off(name)) for name, row in ROWS.items()}
    graphs = {name: plan(drawn(row, base).model) for name, row in TRANSFORMED.items()}
    return drafts | graphs | {path.stem: plan(path) for path in EXPORTS}


def shuffled(seed: int) -> Fusions[fuse.Scope]:
    """Return the provider's fusions, registered in another order and under other names."""
    entries = list(fuse.FUSIONS)
    random.Random(seed).shuffle(entries)
    made = Fusions[fuse.Scope]()
    for entry in entries:
        domain, name = entry.place

        def renamed(node: Any, scope: Any, fusion: Any = entry.fusion) -> Any:
            return fusion(node, scope)

        renamed.__module__ = f"m{random.Random(name + str(seed)).random()}"
        made.add(name, domain=domain, priority=entry.priority, takes=entry.takes)(renamed)
    return made


def test_names_and_imports_change_no_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plans()
    assert any(len(nodes) > 1 for steps in expected.values() for nodes in steps)
    for seed in range(2):
        monkeypatch.setattr("tenonnx_cpu.fuse.FUSIONS", shuffled(seed))
        assert plans() == expected


def test_transforms_of_a_level_have_numbers_of_their_own() -> None:
    """So that names decide nothing about their order."""
    numbers = Counter((t.level == "required", t.order) for t in PLUGINS.transforms.values())
    assert max(numbers.values()) == 1


def test_two_fusions_that_start_alike_say_which_is_first() -> None:
    fusions = Fusions[Scope]()

    def first(node: ir.Node, scope: Scope) -> None:
        del node, scope

    def second(node: ir.Node, scope: Scope) -> None:
        del node, scope

    fusions.add("Neg", "Abs")(first)
    fusions.add("Neg", priority=60)(second)
    with pytest.raises(PluginError, match="both start from Abs at priority 50"):
        fusions.add("Abs")(second)
