"""What clients may ask of the server's traces and log, in Triton's words.

Traces go where the server was told to when it started (OpenTelemetry's variables), so that their
settings say that there is none here, and cannot be changed. Of the log, whether details, notes and
warnings are written can be.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from tenonnx_serve.errors import BadRequest, Unsupported
from tenonnx_serve.requests import Parameters, shown

LOG: Final = logging.getLogger("tenonnx.serve")

TRACE: Final[Parameters] = {
    "trace_level": ["OFF"],
    "trace_rate": "0",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}

LEVELS: Final = {
    "log_error": logging.ERROR,
    "log_warning": logging.WARNING,
    "log_info": logging.INFO,
}
"""From the gravest on: one is written where those before it are."""

FIXED: Final = {"log_file": "", "log_format": "default"}
"""What is as the server was started."""


def trace(asked: Parameters) -> Parameters:
    """Returns the trace settings.

    Raises:
        BadRequest: There is no such setting.
        Unsupported: One is to be changed.
    """
    for key, value in asked.items():
        if key not in TRACE:
            raise BadRequest(f"there is no trace setting {shown(key)}")
        if value is not None and value != TRACE[key]:
            raise Unsupported(f"{key} is as the server was started; clients do not change it")
    return TRACE


def log(asked: Parameters) -> Parameters:
    """Changes what is logged, and returns it.

    Raises:
        BadRequest: There is no such setting, or no such value of it.
        Unsupported: It is one that clients do not change.
    """
    said = _logged()
    for key, value in asked.items():
        if key in FIXED:
            if value != FIXED[key]:
                raise Unsupported(f"{key} is as the server was started; clients do not change it")
        elif key not in said or type(value) is not type(said[key]):
            raise BadRequest(f"there is no log setting {shown(key)} of {shown(value)}")
        elif isinstance(value, int) and not isinstance(value, bool) and not 0 <= value < 1 << 32:
            raise BadRequest(f"{key} is {shown(value)}; expected a level")
        else:
            said[key] = value
    if asked:
        LOG.setLevel(_level(said))
    return said


def _logged() -> dict[str, Any]:
    level = LOG.getEffectiveLevel()
    return {
        **FIXED,
        **{key: level <= number for key, number in LEVELS.items()},
        "log_verbose_level": int(level <= logging.DEBUG),
    }


def _level(said: Parameters) -> int:
    if said["log_verbose_level"]:
        return logging.DEBUG
    wanted = [number for key, number in LEVELS.items() if said[key]]
    return min(wanted, default=logging.CRITICAL)
