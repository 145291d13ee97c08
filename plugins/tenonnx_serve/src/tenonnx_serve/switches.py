"""The trace and log settings that clients may read and change, in Triton's form.

OpenTelemetry's variables say where traces go when the server starts, so Triton's trace settings are
off here and cannot be changed. Of the log, clients can switch details, notes and warnings.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from tenonnx_serve.errors import BadRequest, Unsupported
from tenonnx_serve.requests import Parameters, quoted

LOG: Final = logging.getLogger("tenonnx.serve")

TRACE: Final[Parameters] = {
    "trace_level": ["OFF"],
    "trace_rate": "0",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}

# From the gravest on: a level that is logged includes those before it.
LOG_LEVELS: Final = {
    "log_error": logging.ERROR,
    "log_warning": logging.WARNING,
    "log_info": logging.INFO,
}

# Settings that are fixed when the server starts.
FIXED: Final = {"log_file": "", "log_format": "default"}


def trace(asked: Parameters) -> Parameters:
    """Return the trace settings.

    Raises:
        BadRequest: A setting does not exist.
        Unsupported: A setting would change.
    """
    for key, value in asked.items():
        if key not in TRACE:
            raise BadRequest(f"there is no trace setting {quoted(key)}")
        if value is not None and value != TRACE[key]:
            raise Unsupported(f"{key} is fixed at the server's start; clients cannot change it")
    return TRACE


def log(asked: Parameters) -> Parameters:
    """Change the log's settings, and return them.

    Raises:
        BadRequest: A setting or its value does not exist.
        Unsupported: Clients cannot change this setting.
    """
    said = _logged()
    for key, value in asked.items():
        if key in FIXED:
            if value != FIXED[key]:
                raise Unsupported(f"{key} is fixed at the server's start; clients cannot change it")
        elif key not in said or type(value) is not type(said[key]):
            raise BadRequest(f"there is no log setting {quoted(key)} with value {quoted(value)}")
        elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < 1 << 32:
            raise BadRequest(f"{key} is {quoted(value)}; expected a level of 0 or more")
        else:
            said[key] = value
    if asked:
        LOG.setLevel(_level(said))
    return said


def _logged() -> dict[str, Any]:
    level = LOG.getEffectiveLevel()
    return {
        **FIXED,
        **{key: level <= number for key, number in LOG_LEVELS.items()},
        "log_verbose_level": int(level <= logging.DEBUG),
    }


def _level(said: Parameters) -> int:
    if said["log_verbose_level"]:
        return logging.DEBUG
    wanted = [number for key, number in LOG_LEVELS.items() if said[key]]
    return min(wanted, default=logging.CRITICAL)
