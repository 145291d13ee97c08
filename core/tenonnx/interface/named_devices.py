"""Devices by onnxruntime's names, which bindings and values take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tenonnx.errors import EPFail, InvalidArgument, did_you_mean
from tenonnx.process.weak import WeakTable
from tenonnx.provider import HOST, Device, why_unusable

if TYPE_CHECKING:
    from tenonnx.interface.devices import OrtDevice

# onnxruntime's numbers of device types, by the names it takes.
DEVICE_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "npu": 3, "cann": 3, "dml": 4, "webgpu": 1}


def find_device(name: str | OrtDevice, number: int = 0) -> Device:
    """Return the device of a type and number, or of an ``OrtDevice``, which has both.

    Raises:
        InvalidArgument: There is no such type, or no provider for it.
        EPFail: Its provider cannot be used here.
    """
    if not isinstance(name, str):
        return find_device(name.name, name.device_id())
    if name == "cpu":
        return HOST
    from tenonnx.plugins.choosing import choose_providers
    from tenonnx.plugins.manager import default_plugins

    require_type(name)
    key = default_plugins(), name, number, os.getpid()
    if (device := _found.get(key)) is None:
        cls = key[0].provider(name)
        if (missing := why_unusable(cls)) is not None:
            raise EPFail(f"there is no device {name!r} here: {missing}")
        counted = number or hasattr(cls.Options, "device_id")
        options = {"device_id": str(number)} if counted else {}
        (provider,) = choose_providers(key[0], [(name, options)])
        device = _found[key] = provider.device
    return device


def require_type(name: str) -> None:
    """Raise InvalidArgument if a name is neither a type of devices nor a plug-in's device."""
    if name in DEVICE_TYPES:
        return
    from tenonnx.plugins.manager import default_plugins

    names = dict.fromkeys(DEVICE_TYPES)
    for provider in default_plugins().providers.values():
        if provider.device is not HOST:
            names.update(dict.fromkeys(provider.aliases))
    if name not in names:
        raise InvalidArgument(f"no device type {name!r}{did_you_mean(name, names)}")


# Devices that values are on, or bindings name: a provider takes longer to make than they do.
_found = WeakTable[tuple[Any, str, int, int], Device]()
