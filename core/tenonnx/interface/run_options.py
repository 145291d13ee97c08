"""Options of a single run, and limits that stop a run or a load."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from tenonnx import errors
from tenonnx.errors import InvalidArgument
from tenonnx.interface.config import RUN_KEYS, check_entry, found_entry
from tenonnx.process import interruption
from tenonnx.process.interruption import Stopped

if TYPE_CHECKING:
    from tenonnx.options import SessionOptions


class RunOptions:
    """Options of one run, or of several at once.

    Attributes:
        terminate: Set it to stop the runs that use these options, from any thread: each raises
            ``Fail`` before its next step or iteration, or within a long one. They can be used
            again once it is false.
        only_execute_path_to_fetches: Compute nothing but what the outputs asked for need.
        logid, log_severity_level, log_verbosity_level: Accepted for onnxruntime's sake, without
            effect.
    """

    __slots__ = (
        "_adapters",
        "_config",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "only_execute_path_to_fetches",
        "terminate",
    )

    def __init__(self) -> None:
        self.terminate = False
        self.only_execute_path_to_fetches = False
        self.logid = ""
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self._config: dict[str, str] = {}
        self._adapters: list[Any] = []

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Store a configuration entry; warn once of an unknown key.

        Args:
            key: A key of onnxruntime's run options; docs/onnxruntime.md lists them.
            value: Its value, as a string.

        Raises:
            InvalidArgument: Key or value are no strings.
        """
        check_entry(key, value, RUN_KEYS, "run")
        self._config[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Return a stored configuration entry.

        Raises:
            NotFound: There is none of that name.
        """
        return found_entry(key, self._config, "run")

    def add_active_adapter(self, adapter: Any) -> None:
        """Make the parameters of a ``LoraAdapter`` inputs of the run.

        Args:
            adapter: The adapter; its parameters have the names of the model's inputs.

        Raises:
            InvalidArgument: It is none.
        """
        if not hasattr(adapter, "parameters"):
            raise InvalidArgument(f"expected a LoraAdapter, got {adapter!r}")
        self._adapters.append(adapter)

    @property
    def adapters(self) -> tuple[Any, ...]:
        """The active adapters."""
        return tuple(self._adapters)


class Deadline:
    """A limit that stops a run after a time.

    Args:
        seconds: How long the run may take from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.perf_counter() + seconds

    def check(self) -> None:
        """Raise ``Stopped`` if the time is over."""
        if time.perf_counter() > self._end:
            raise Stopped(
                f"the run was stopped: it takes longer than {self.seconds} s",
                hint="the model may be endless; if not, give it more: SessionOptions.time_limit",
            )


class Terminator:
    """A limit that stops a run when ``terminate`` is set in its options."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options

    def check(self) -> None:
        """Raise ``Stopped`` if the run is to stop."""
        if self.options.terminate:
            raise Stopped("the run was stopped: terminate is set in its RunOptions")


class LoadLimit:
    """Stops the building of a session when it is cancelled or its time is over."""

    def __init__(self, options: SessionOptions) -> None:
        self._options = options
        seconds = options.time_limit
        self._end = None if seconds is None else time.perf_counter() + seconds

    def check(self) -> None:
        """Stop it.

        Raises:
            ModelLoadCanceled: The options say so.
            Stopped: The time is over.
        """
        if self._options._cancelled:
            raise errors.ModelLoadCanceled(
                "set_load_cancellation_flag(True) was called on the options"
            )
        if self._end is not None and time.perf_counter() > self._end:
            raise Stopped(
                f"loading was stopped while {interruption.stage()}: it takes longer than "
                f"{self._options.time_limit} s",
                hint="give it more: SessionOptions.time_limit",
            )


def wants_embedded_options(asked: bool) -> bool:
    """Return whether models may say with which options to run them."""
    return asked or os.environ.get("ORT_LOAD_CONFIG_FROM_MODEL") == "1"
