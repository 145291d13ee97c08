"""The CPU provider: the operator library over numpy."""

from __future__ import annotations

from typing import ClassVar

from tenonnx.provider import HOST, Device
from tenonnx_array.provider import ArrayProvider


class CPUExecutionProvider(ArrayProvider):
    """Runs on the host, reading weights where they are mapped."""

    name: ClassVar[str] = "CPUExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("cpu",)
    device: Device = HOST
