"""Kernels that start while those before them end: by the driver's cuLaunchKernelEx."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.
FOLLOWS: Final = 6


class Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is 64 bytes."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("gap", ctypes.c_int),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class Launch(ctypes.Structure):
    """CUlaunchConfig, with the one attribute that it has."""

    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
        ("gap", ctypes.c_uint),
        ("attribute", Attribute),
    )

    @classmethod
    def of(cls, sizes: Sequence[int]) -> Launch:
        """Return one of a grid and a block: three numbers each."""
        made = cls((ctypes.c_uint * 6)(*sizes), 0, None, None, 1, 0, Attribute(FOLLOWS, 0, 1))
        made.attributes = ctypes.addressof(made) + cls.attribute.offset
        return made


def launch_function() -> Any:
    """Return the driver's function; ``None`` if it has none."""
    try:
        launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    launch.argtypes = [ctypes.c_void_p] * 4
    return launch


def launched(launch: Any, config: Launch, kernel: int, arguments: int, stream: int) -> None:
    """Start a kernel on a stream.

    Args:
        launch: The driver's function.
        config: The grid and the block; only one thread at a time may use it.
        kernel: The kernel's address.
        arguments: The address of the arguments' addresses.
        stream: The stream's address.

    Raises:
        RuntimeError: The driver refuses.
    """
    config.stream = stream
    if status := launch(ctypes.addressof(config), kernel, arguments, None):
        raise RuntimeError(f"the driver does not start a kernel: status {status}")
