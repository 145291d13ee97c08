"""The function that looks at an operator's nodes."""

from __future__ import annotations

import pytest

from tenonnx_cpu.kernel_selection import SPECIALIZATIONS, specialize
from tenonnx_cpu.lazy_import import import_all


def test_an_operator_has_one_specialization() -> None:
    import_all()
    before = dict(SPECIALIZATIONS)
    with pytest.raises(ValueError, match=r"ReduceSum has .* already, in tenonnx_cpu\.reduce"):
        specialize("ReduceSum")(lambda _, plain: plain)
    assert before == SPECIALIZATIONS
