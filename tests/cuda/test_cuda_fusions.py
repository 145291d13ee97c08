"""Every fusion of the provider, on models that break what it may assume.

As in ``tests/fusions``, whose rows these are. Transforms are off, so that fusions see what
exporters write.
"""

from __future__ import annotations

from typing import Any, ClassVar

import hosted
import layer_rows
import pytest
import step_rows
from compared import ALL, PLUGINS, base, deviations, differing, session
from drafts import Draft, Row, drawn
from emulated import EmulatedProvider, Plugin

from tenonnx_cuda.fuse import FUSIONS
from tenonnx_cuda.kernel_selection import choices
from tenonnx_cuda.options import CudaOptions

pytestmark = pytest.mark.skipif(hosted.COMPILER is None, reason="no C++ compiler")


class Exact(EmulatedProvider):
    """One that rounds no factors."""

    name: ClassVar[str] = "ExactProvider"
    aliases: ClassVar[tuple[str, ...]] = ("exact",)

    def __init__(self, options: Any = None, *given: Any, **settings: Any) -> None:
        del options
        super().__init__(CudaOptions(use_tf32=False), *given, **settings)


PLUGINS.register(Plugin(Exact))

OFF = [name for name, transform in PLUGINS.transforms.items() if transform.level != "required"]


def rms_skip(d: Draft) -> None:
    """A sum that is read besides, and its norm."""
    d.opset = 23
    shapes = [(2, 3, 8), (1, 3, 8), (8,), ()]
    total = d.both("Add", d.input("x", *d.choose(shapes)), d.input("z", *d.choose(shapes)))
    d.outputs = [total, d.add("RMSNormalization", total, d.weight(d.floats(8)), axis=-1)]


ROWS: dict[str, Row] = {
    "fuse_rotary": step_rows.rotary,
    "fuse_conv": layer_rows.conv_activation,
    "fuse_residual": step_rows.skip,
    "fuse_residual, read": rms_skip,
    "fuse_chain": step_rows.chain,
    "fuse_chain, biased": layer_rows.bias_gelu,
}

ELSEWHERE = {
    "fuse_caches": "tests of generation have caches",
    "fuse_linear": "tests of products have a cuBLASLt",
}


def test_every_fusion_has_a_row() -> None:
    choices()
    found = {entry.fusion.__name__ for entry in FUSIONS}
    assert found == {name.partition(",")[0] for name in ROWS} | ELSEWHERE.keys()


@pytest.mark.parametrize("name", ROWS)
def test_what_exporters_write_is_fused(name: str) -> None:
    made = session(drawn(ROWS[name], base), "exact", ALL, OFF)
    assert max(len(step.nodes) for step in made.plan.steps) > 1


@pytest.mark.parametrize("name", ROWS)
def test_another_choice_gives_what_its_nodes_give(name: str) -> None:
    found = {c: differing(case, "exact", OFF) for c, case in deviations(ROWS[name])}
    assert not {choice: each for choice, each in found.items() if each}
