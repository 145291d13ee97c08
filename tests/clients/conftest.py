"""Clients of onnxruntime, run with tenonnx in its place.

``python -m tenonnx.as_onnxruntime -m pytest tests/clients``, or ``tox -e clients``.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

HOW = "needs python -m tenonnx.as_onnxruntime -m pytest tests/clients"


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Skip what would run with the real onnxruntime."""
    stand_in = type(sys.modules.get("onnxruntime")).__name__ == "Stand"
    for item in items:
        if "clients" in item.path.parts and not stand_in:
            item.add_marker(pytest.mark.skip(reason=HOW))
