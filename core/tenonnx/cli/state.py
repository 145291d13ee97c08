"""What the options before the subcommand say."""

from __future__ import annotations

import logging
import os
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
        files: Plugins to add, as files.
        without: Names of plugins to do without.
        verbosity: 1 prints tracebacks and the log, 2 its details.
    """

    files: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    verbosity: int = 0

    @cached_property
    def plugins(self) -> PluginSet:
        """The process's plugins: whatever opens a session finds the same ones.

        Raises:
            InvalidArgument: There is no plugin of a name to do without.
            PluginError: A plugin file is refused.
        """
        from tenonnx.plugins.manager import default_plugins

        if self.without:
            # Said in the environment, it holds for processes that a command starts too.
            blocked = [os.environ.get(BLOCKED, ""), *self.without]
            os.environ[BLOCKED] = ",".join(filter(None, blocked))
        plugins = default_plugins()
        plugins.load_commands()
        names = [record.name for record in plugins.records]
        for name in self.without:
            if name not in names:
                raise InvalidArgument(f"no plugin {name!r}{did_you_mean(name, names)}")
        for file in self.files:
            plugins.register_file(file)
        return plugins

    def start_logging(self) -> None:
        """Sends the log to standard error: warnings, or more if it is to be verbose."""
        levels = (logging.WARNING, logging.INFO, logging.DEBUG)
        logging.basicConfig(
            level=levels[min(self.verbosity, 2)], format="%(levelname)s: %(name)s: %(message)s"
        )


def state_of(context: typer.Context) -> State:
    """Returns the state that belongs to a typer context."""
    found: Any = context.find_object(State)
    assert isinstance(found, State), "the application puts one into every context"
    return found
