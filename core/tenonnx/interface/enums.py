"""onnxruntime's enumerations, with its names and numbers."""

from __future__ import annotations

import enum


class GraphOptimizationLevel(enum.IntEnum):
    """Levels of graph transforms: those of a level and of all lower levels run."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted for onnxruntime's sake; nodes run in order, parallel inside their kernels."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted for onnxruntime's sake; nodes run in the model's order."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2
