"""The options before the subcommand."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidArgument, did_you_mean

if TYPE_CHECKING:
    import typer

    from tenonnx.plugins.manager import PluginSet

BLOCKED = "TENONNX_BLOCK_PLUGINS"


@dataclass
class State:
    """The options that all subcommands share.

    Attributes:
        files: Plug-ins to add, as files.
        without: Names of plug-ins to do without.
        observe: Names of plug-ins whose observers are asked for.
        verbosity: 1 prints tracebacks and the log, 2 its details.
    """

    files: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    observe: list[str] = field(default_factory=list)
    verbosity: int = 0

    @cached_property
    def plugins(self) -> PluginSet:
        """The process's plug-ins: every session finds the same ones.

        Raises:
            InvalidArgument: There is no plug-in of a name to do without, or to observe.
            PluginError: A plug-in file is refused.
        """
        from tenonnx.plugins.manager import OBSERVE, default_plugins

        if self.without:
            # Said in the environment, it holds for processes that a command starts too.
            blocked = [os.environ.get(BLOCKED, ""), *self.without]
            os.environ[BLOCKED] = ",".join(filter(None, blocked))
        plugins = default_plugins()
        plugins.load_commands()
        records = {record.name: record for record in plugins.records}
        for name in self.without:
            if name not in records:
                raise InvalidArgument(f"no plug-in {name!r}{did_you_mean(name, records)}")
            records[name].error = f"blocked by --no-plugin {name}"
        for file in self.files:
            plugins.register_file(file)
        if self.observe:
            plugins.observing(self.observe)  # refuses a name that has no observer
            asked = [os.environ.get(OBSERVE, ""), *self.observe]
            os.environ[OBSERVE] = ",".join(filter(None, asked))
        return plugins

    def start_logging(self) -> Callable[[], None]:
        """Send the log to standard error: warnings, or more if it is to be verbose.

        Returns:
            What ends that.
        """
        levels, handler = (logging.WARNING, logging.INFO, logging.DEBUG), _Sentences()
        logging.basicConfig(level=levels[min(self.verbosity, 2)], handlers=[handler])
        return functools.partial(logging.root.removeHandler, handler)


class _Sentences(logging.Handler):
    """Prints warnings as the command's own are printed, and the rest with where it is from."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        from tenonnx.cli.output import note, say

        kind, text = record.levelname.lower(), record.getMessage()
        with contextlib.suppress(ValueError):  # another thread's, and the stream is closed by then
            if record.levelno >= logging.WARNING:
                say(kind, text)
            else:
                note(f"{kind}: {record.name}: {text}")


def state_of(context: typer.Context) -> State:
    """Return the state that belongs to a typer context."""
    found: Any = context.find_object(State)
    assert isinstance(found, State), "the application puts one into every context"
    return found
