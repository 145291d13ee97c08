"""CUDA's parts on this machine, found without starting CUDA.

Neither cupy nor a CUDA context is loaded: providers are listed in processes that never use a GPU,
and in some that fork.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.metadata
import os
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LEAST_DRIVER: Final = (12, 0)
LEAST_CUPY: Final = (14, 0)
LEAST_CAPABILITY: Final = (7, 0)
# Of the CUDA toolkit, those that cupy loads and does not bring.
CUDA_LIBRARIES: Final = ("nvrtc", "cublas")

INSTALL: Final = "pip install 'tenonnx[cuda]'"
INSTALL_12: Final = "pip install 'cupy-cuda12x[ctk]'"


@dataclass(frozen=True)
class Machine:
    """The parts that were found.

    Attributes:
        driver: The CUDA version of the driver; ``None`` without a driver.
        devices: Compute capabilities of the devices that this process may see.
        hidden: ``CUDA_VISIBLE_DEVICES``, if it is set.
        cupy: Versions of the installed distributions of cupy, by name.
        libraries: Which of ``CUDA_LIBRARIES`` can be found, as ``nvrtc.13``.
    """

    driver: tuple[int, int] | None = None
    devices: tuple[tuple[int, int], ...] = ()
    hidden: str | None = None
    cupy: Mapping[str, str] = field(default_factory=dict)
    libraries: frozenset[str] = frozenset()

    def missing(self) -> str | None:
        """Return what is missing and how to mend it; ``None`` if CUDA can be used."""
        return self._missing_hardware() or self._missing_cupy() or self._missing_libraries()

    def _missing_hardware(self) -> str | None:
        if self.driver is None:
            return (
                "no NVIDIA driver: libcuda.so.1 is not found; install the driver of your system, "
                "or start the container with `--gpus all`"
            )
        if self.driver < LEAST_DRIVER:
            return (
                f"the NVIDIA driver is for CUDA {_dotted(self.driver)}, expected "
                f"{_dotted(LEAST_DRIVER)} or newer; update the driver"
            )
        if not self.devices and self.hidden is not None:
            return (
                f"CUDA_VISIBLE_DEVICES={self.hidden} leaves no device to see; "
                "`unset CUDA_VISIBLE_DEVICES`"
            )
        if not self.devices:
            return "the NVIDIA driver sees no device; see what `nvidia-smi` says"
        if max(self.devices) < LEAST_CAPABILITY:
            return (
                f"the device has compute capability {_dotted(max(self.devices))}, expected "
                f"{_dotted(LEAST_CAPABILITY)} or newer; another GPU is needed"
            )
        return None

    def _missing_cupy(self) -> str | None:
        assert self.driver is not None, "the driver was looked at first"
        mend = INSTALL if self.driver >= (13, 0) else INSTALL_12
        if not self.cupy:
            return f"cupy is not installed; `{mend}`"
        if len(self.cupy) > 1:
            names = " and ".join(sorted(self.cupy))
            return f"{names} get into each other's way; `pip uninstall {names.split()[0]}`"
        ((name, version),) = self.cupy.items()
        if _numbers(version) < LEAST_CUPY:
            least = _dotted(LEAST_CUPY)
            return f"{name} is {version}, expected {least} or newer; `pip install -U {name}`"
        if (built_for := _major(name)) and built_for > self.driver[0]:
            return (
                f"{name} needs a driver for CUDA {built_for}, and this one is for "
                f"{_dotted(self.driver)}; `pip uninstall {name} && {mend}`, or update the driver"
            )
        return None

    def _missing_libraries(self) -> str | None:
        ((name, _),) = self.cupy.items()
        if (major := _major(name)) is None:
            return None
        absent = [lib for lib in CUDA_LIBRARIES if f"{lib}.{major}" not in self.libraries]
        if absent:
            files = ", ".join(f"lib{lib}.so.{major}" for lib in absent)
            return f"{files} of the CUDA runtime not found; `pip install '{name}[ctk]'`"
        return None


@functools.cache
def this_machine() -> Machine:
    """Return what is here; looked at once."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (driver := _driver()) is None:
        return Machine(hidden=hidden)  # the rest does not matter, and takes a while to find
    return Machine(
        driver=driver,
        devices=_devices(hidden),
        hidden=hidden,
        cupy=_installed_cupy(),
        libraries=_libraries(),
    )


def _driver() -> tuple[int, int] | None:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _devices(hidden: str | None) -> tuple[tuple[int, int], ...]:
    """Ask NVML, which starts no CUDA: a process that did cannot use it in its forks."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return (LEAST_CAPABILITY,)  # a driver without NVML, as on a Jetson: it has its one GPU
    if nvml.nvmlInit_v2() != 0:
        return ()
    try:
        count = ctypes.c_uint()
        nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
        found = tuple(_capability(nvml, number) for number in range(count.value))
    finally:
        nvml.nvmlShutdown()
    return found if hidden is None else found[: visible(hidden, len(found))]


def _capability(nvml: ctypes.CDLL, number: int) -> tuple[int, int]:
    handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    nvml.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
    nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def visible(listed: str, count: int) -> int:
    """Return how many of some devices ``CUDA_VISIBLE_DEVICES`` shows: up to its first mistake."""
    shown = 0
    for entry in listed.split(","):
        name = entry.strip()
        if not name.startswith(("GPU-", "MIG-")) and not (name.isdigit() and int(name) < count):
            break
        shown += 1
    return min(shown, count)


def _installed_cupy() -> dict[str, str]:
    found = {}
    for name in ("cupy", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _libraries() -> frozenset[str]:
    """Look where cupy does: NVIDIA's wheels, the toolkit's folder, and the loader's own paths."""
    folders = [*Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib"), Path(sys.prefix) / "lib"]
    roots = [os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME")]
    folders += [Path(root) / "lib64" for root in (*roots, "/usr/local/cuda") if root]
    files = {
        path.name
        for at in folders
        for name in CUDA_LIBRARIES
        for path in at.glob(f"lib{name}.so.*")
    }
    files |= {ctypes.util.find_library(name) or "" for name in CUDA_LIBRARIES}
    return frozenset(
        f"{name}.{major}"
        for name in CUDA_LIBRARIES
        for major in ("12", "13")
        if any(file.startswith(f"lib{name}.so.{major}") for file in files)
    )


def _major(distribution: str) -> int | None:
    """Return the CUDA version of a wheel of cupy; ``None`` for one built here."""
    digits = distribution.removeprefix("cupy-cuda").removesuffix("x")
    return int(digits) if digits.isdigit() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
