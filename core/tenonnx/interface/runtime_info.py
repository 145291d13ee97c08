"""Version, build and settings of the module, by onnxruntime's names."""

from __future__ import annotations

import bisect
import itertools
import logging
import platform
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from tenonnx.errors import InvalidArgument, NotSupported, PluginError, page
from tenonnx.interface.devices import OrtEpDevice, ep_devices
from tenonnx.operators import Kernel
from tenonnx.options import PROCESS_DEFAULTS
from tenonnx.process.distributions import release
from tenonnx.provider import why_unusable

# Takes severity, category, session's id, place in the code and message.
LogCallback: TypeAlias = Callable[[int, str, str, str, str], object]

# Levels of Python's logging, by onnxruntime's numbers.
SEVERITIES: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_device() -> str:
    """Return ``GPU`` if a provider that is usable here runs on one, else ``CPU``."""
    kinds = {device.device.type.name for device in get_ep_devices()}
    return "GPU" if "GPU" in kinds else "CPU"


def get_ep_devices() -> list[OrtEpDevice]:
    """Return the providers that are usable here, each with its hardware."""
    from tenonnx.plugins.manager import default_plugins

    return ep_devices(default_plugins())


def get_version_string() -> str:
    """Return the version of tenonnx."""
    return release()


def get_available_providers() -> list[str]:
    """Return the names of the providers that are usable here, those of GPUs and NPUs first."""
    return [device.ep_name for device in get_ep_devices()]


def get_all_providers() -> list[str]:
    """Return the names of the registered providers, usable or not."""
    from tenonnx.plugins.manager import default_plugins

    return list(default_plugins().providers)


def kernels_by_provider() -> Iterator[tuple[str, list[Kernel]]]:
    """Yield, by provider and operator, the kernels of all versions in order."""
    from tenonnx.plugins.manager import default_plugins

    plugins = default_plugins()
    for provider in plugins.providers.values():
        if why_unusable(provider) is not None:
            continue
        options = provider.Options() if provider.Options else None
        table = getattr(provider(options, plugins.operators_for(provider)), "table", ())
        for _, kernels in itertools.groupby(sorted(table, key=_order), lambda k: _order(k)[:2]):
            yield provider.name, list(kernels)


def _order(kernel: Kernel) -> tuple[str, str, int]:
    return kernel.domain, kernel.op_type, kernel.since


def get_build_info() -> str:
    """Return versions and platform in one line."""
    return (
        f"tenonnx {get_version_string()}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}"
    )


def print_debug_info() -> None:
    """Print versions and providers; ``tenonnx doctor`` says more."""
    print(get_build_info())
    print(f"providers: {', '.join(get_available_providers())}")


def has_collective_ops() -> bool:
    """Return whether operators may span machines: no."""
    return False


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None
) -> None:
    """Do nothing: providers load their libraries when they start."""


def enable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Do nothing: there is no telemetry."""


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger ``tenonnx``.

    Raises:
        InvalidArgument: It is none of 0 (verbose), 1 (info), 2 (warning), 3 (error), 4 (fatal).
    """
    _check_severity(severity)
    logging.getLogger("tenonnx").setLevel(SEVERITIES[severity])


def _check_severity(severity: int) -> None:
    if severity not in range(len(SEVERITIES)):
        raise InvalidArgument(f"a severity goes from 0 (verbose) to 4 (fatal), not {severity!r}")


class _ToCallback(logging.Handler):
    """A handler that gives a function messages as onnxruntime does, but not those of its own."""

    def __init__(self, callback: LogCallback) -> None:
        super().__init__()
        self._callback = callback
        self._busy = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            severity = max(0, bisect.bisect(SEVERITIES, record.levelno) - 1)
            place = f"{record.filename}:{record.lineno} {record.funcName}"
            self._callback(severity, record.name, "", place, record.getMessage())
        except Exception:
            self.handleError(record)
        finally:
            self._busy.now = False


def set_default_logger_callback(callback: LogCallback | None, severity: int = 2) -> None:
    """Have a function called with every message of the logger ``tenonnx``, whose level is set.

    Args:
        callback: Gets the severity, the logger's name, an empty text, the place in the code and
            the message. ``None`` takes the last one away.
        severity: As ``set_default_logger_severity`` has it; looked at, but not set, without a
            callback.

    Raises:
        InvalidArgument: There is no such severity, or the callback cannot be called.
    """
    if callback is not None and not callable(callback):
        raise InvalidArgument(f"a callback is a function or None, not {callback!r}")
    _check_severity(severity)
    logger = logging.getLogger("tenonnx")
    for handler in [found for found in logger.handlers if isinstance(found, _ToCallback)]:
        logger.removeHandler(handler)
    if callback is not None:
        set_default_logger_severity(severity)
        logger.addHandler(_ToCallback(callback))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Do nothing: severity 0 logs all there is."""


def set_global_thread_pool_sizes(
    intra_op_num_threads: int = 0, inter_op_num_threads: int = 0
) -> None:
    """Set how many threads kernels take in sessions whose options do not say."""
    del inter_op_num_threads
    PROCESS_DEFAULTS["intra_op_num_threads"] = intra_op_num_threads


def register_execution_provider_library(name: str, path: str) -> None:
    """Register the plug-in in a Python file.

    Raises:
        NotSupported: The file is a shared library.
        PluginError: The plug-in is refused.
    """
    from tenonnx.plugins.manager import default_plugins

    if not str(path).endswith(".py"):
        raise NotSupported(
            f"{path} holds the provider {name} against onnxruntime's own interface",
            hint=f"a provider is a Python class here: see {page('plugins')}",
        )
    default_plugins().register_file(path)


def unregister_execution_provider_library(name: str) -> None:
    """Refuse: plug-ins stay as long as the process.

    Raises:
        PluginError: Always.
    """
    raise PluginError(
        f"{name} stays registered: sessions may be running on it",
        hint="give a session plug-ins of its own: SessionOptions(plugins=PluginSet())",
    )


def create_and_register_allocator(*arguments: Any) -> None:
    """Do nothing: there is no arena to configure."""


def create_and_register_allocator_v2(*arguments: Any) -> None:
    """Do nothing: there is no arena to configure."""
