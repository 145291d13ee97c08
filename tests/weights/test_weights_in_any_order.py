"""Any order of asking and forgetting keeps what holds of weights."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)
from places import (
    FILE_BYTES,
    PACKED,
    mapped_paths,
    places,
)

from tenonnx.weights.registry import Weight, WeightRegistry
from tenonnx.weights.sidefile import SideFiles


class RegistryMachine(RuleBasedStateMachine):
    """Any order of asking and forgetting keeps: one weight for one place, right bytes, no leak."""

    weights = Bundle("weights")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["TENONNX_CACHE_DIR"]))
        self.registry = WeightRegistry(SideFiles(self.folder / "cache"))
        self.paths = [self.folder / name for name in "ab"]
        for path in self.paths:
            path.write_bytes(np.random.default_rng(ord(path.name)).bytes(FILE_BYTES))
        self.alive: dict[str, weakref.ref[Weight]] = {}

    def know(self, weight: Weight) -> Weight:
        known = self.alive.get(weight.key)
        assert known is None or known() in (None, weight)
        self.alive[weight.key] = weakref.ref(weight)
        return weight

    @rule(target=weights, number=st.integers(0, 1), place=places())
    def view(self, number: int, place: tuple[Any, ...]) -> Weight:
        path = self.paths[number]
        weight = self.know(self.registry.view(self.registry.map(path), *place))
        assert weight.array.tobytes() == path.read_bytes()[place[0] : place[0] + place[1]]
        return weight

    @rule(target=weights, weight=weights)
    def reverse(self, weight: Weight) -> Weight:
        expected = weight.array.reshape(-1)[::-1].tobytes()
        derived = self.registry.derive(
            f"reverse:{weight.key}", lambda: weight.array.reshape(-1)[::-1], [weight]
        )
        assert derived.array.tobytes() == expected
        return self.know(derived)

    @rule(target=weights, weight=weights)
    def copy(self, weight: Weight) -> Weight:
        dtype = ir.DataType.UINT8 if weight.dtype in PACKED else weight.dtype
        derived = self.registry.derive(
            f"copy:{weight.key}", lambda: np.array(weight.array), [weight], dtype
        )
        assert derived.array.tobytes() == weight.array.tobytes()
        return self.know(derived)

    @rule(target=weights, weight=weights)
    def align(self, weight: Weight) -> Weight:
        aligned = self.know(self.registry.aligned(weight))
        assert aligned.is_aligned
        assert aligned.array.tobytes() == weight.array.tobytes()
        return aligned

    @rule(weight=consumes(weights))
    def forget(self, weight: Weight) -> None:
        del weight

    @invariant()
    def only_what_is_alive_is_there(self) -> None:
        living = [w for ref in self.alive.values() if (w := ref()) is not None]
        report = self.registry.report()
        storages = {id(w.storage): w.storage for w in living}
        assert sum(row.size for row in report.storages) == sum(s.size for s in storages.values())
        maps = mapped_paths()
        assert all(maps.count(str(path)) <= 1 for path in self.paths)
        assert len([p for p in maps if p in map(str, self.paths)]) == sum(
            s.kind == "mapped" for s in storages.values()
        )


def test_any_order_of_asking_and_forgetting() -> None:
    Path(os.environ["TENONNX_CACHE_DIR"]).mkdir()
    run_state_machine_as_test(
        RegistryMachine, settings=settings(max_examples=10, stateful_step_count=20, deadline=None)
    )
