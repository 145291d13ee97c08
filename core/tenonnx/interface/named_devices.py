"""Devices by onnxruntime's names, which bindings and values take."""

from __future__ import annotations

import os
import weakref
from typing import Any

from tenonnx.errors import EPFail, InvalidArgument, did_you_mean
from tenonnx.provider import HOST, Device, why_unusable

DEVICE_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "npu": 3, "cann": 3, "dml": 4, "webgpu": 1}
"""onnxruntime's numbers of device types, by the names it takes."""


def find_device(name: str, number: int = 0) -> Device:
    """Returns the device of a type and number.

    Raises:
        InvalidArgument: There is no such type, or no provider for it.
        EPFail: Its provider cannot be used here.
    """
    if name == "cpu":
        return HOST
    from tenonnx.plugins.choosing import choose_providers
    from tenonnx.plugins.manager import default_plugins

    if name not in DEVICE_TYPES:
        raise InvalidArgument(f"no device type {name!r}{did_you_mean(name, DEVICE_TYPES)}")
    key = default_plugins(), name, number, os.getpid()
    if (device := _found.get(key)) is None:
        if (missing := why_unusable(key[0].provider(name))) is not None:
            raise EPFail(f"there is no device {name!r} here: {missing}")
        (provider,) = choose_providers(key[0], [(name, {"device_id": str(number)})])
        device = _found[key] = provider.device
    return device


_found: weakref.WeakValueDictionary[tuple[Any, str, int, int], Device] = (
    weakref.WeakValueDictionary()
)
"""Devices that values are on, or bindings name: a provider takes longer to make than they do."""
