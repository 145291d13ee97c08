"""Support vector machines: the probabilities of their classes on a JIT kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenonnx.by_name import cacheable
from tenonnx_array.ml.svm import Decisions, coupled
from tenonnx_cpu.buffers import contiguous
from tenonnx_cpu.jit.runtime import JitKernel
from tenonnx_cpu.kernel_selection import NDArray, Site, specialize

COUPLE = JitKernel("ml.svm", "couple")


@specialize("SVMClassifier", domain="ai.onnx.ml")
def specialize_classes(site: Site, plain: Any) -> None:  # noqa: ARG001 - of the node there is no need
    """Have the kernel couple chances, step by step for each row; the rest is numpy's."""
    if isinstance(plain, Decisions):
        COUPLE.request()
        plain.couple = couple


@cacheable
def couple(chances: NDArray, classes: int) -> NDArray:
    """Do what ``coupled`` does."""
    run = COUPLE.run
    if run is None:
        made: NDArray = coupled(chances, classes)
        return made
    p = np.empty((len(chances), classes))
    run(contiguous(chances), p, np.empty((classes + 1, classes)), max(100, classes))
    return p
