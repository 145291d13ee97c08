"""The application: options that all subcommands share, the subcommands, and those of plug-ins."""

from __future__ import annotations

import contextlib
import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from tenonnx.cli import doctor, inspect, plugins, providers, run
from tenonnx.cli.arguments import NO_VALUES
from tenonnx.cli.failures import EXIT_CODE_MEANINGS, explained, quiet_end
from tenonnx.cli.output import UNWRAPPED_COLUMNS, say
from tenonnx.cli.state import State, state_of
from tenonnx.cli.usage import Command, FittingHelp, plain_error
from tenonnx.errors import EPFail
from tenonnx.process.distributions import version

EXIT_CODE_LINES = "\n".join(
    f"  {code.value:>3}  {meaning}" for code, meaning in EXIT_CODE_MEANINGS.items()
)

HELP = f"""Runs, inspects, measures and serves ONNX models.

\b
Examples:
  tenonnx run model.onnx --input x=random --dim batch=8
  tenonnx inspect model.onnx
  tenonnx compare model.onnx --with onnxruntime
  tenonnx --plugin my_provider.py run model.onnx --provider mine --input feeds.npz

\b
Exit codes:
{EXIT_CODE_LINES}
"""

# Subcommands of distributions beside the runtime.
COMMAND_DISTRIBUTIONS = {"generate": "tenonnx-generate", "serve": "tenonnx-serve"}


class Group(FittingHelp, TyperGroup):
    """The subcommands, those of plug-ins among them, and what becomes of their failures."""

    _merged = False

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line."""
        state = State()
        with quiet_end(), explained(state):
            return super().main(*args, obj=state, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand.

        Raises:
            InvalidArgument: An option has a value that it does not take.
        """
        with quiet_end():
            try:
                return super().invoke(ctx)
            except typer.BadParameter as error:
                if (plain := plain_error(error)) is not None:
                    raise plain from error
                raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a subcommand; plug-ins are asked when it is none of the built-in ones.

        Raises:
            EPFail: It is of a distribution that is not installed.
        """
        if cmd_name not in self.commands:
            self._merge(ctx)
        found = super().get_command(ctx, cmd_name)
        product = COMMAND_DISTRIBUTIONS.get(cmd_name)
        if found is None and product is not None and version(product) is None:
            folder = f"./plugins/{product.replace('-', '_')}"
            raise EPFail(
                f"tenonnx {cmd_name} is a command of {product}, which is not installed",
                hint=f"pip install {product}; in a clone of tenonnx: pip install {folder}",
            )
        return found

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the subcommands' names."""
        self._merge(ctx)
        return super().list_commands(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the subcommands, each with the whole first sentence of its help."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [
            (name, command.get_short_help_str(UNWRAPPED_COLUMNS)) for name, command in found.items()
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _merge(self, ctx: Any) -> None:
        """Add the plug-ins' subcommands: those of an app without a name, or the named app."""
        if self._merged:
            return
        self._merged = True
        for record, given in state_of(ctx).plugins.commands:
            try:
                app = given if isinstance(given, typer.Typer) else given()
                group = typer.main.get_group(app)
            except Exception as error:  # a stranger's code may raise anything
                what = f"{type(error).__name__}: {error}"
                say("warning", f"the subcommands of plug-in {record.name!r} are left out: {what}")
                continue
            found = {group.name: group} if group.name else group.commands
            for name, command in found.items():
                if name in self.commands:
                    say("warning", f"a plug-in's subcommand {name!r} is left out: there is one")
                else:
                    self.add_command(command, name)


app = typer.Typer(
    cls=Group,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _take_plugins(context: typer.Context, values: list[str]) -> list[str]:
    state_of(context).files = list(values)
    return values


def _take_without(context: typer.Context, values: list[str]) -> list[str]:
    state_of(context).without = list(values)
    return values


def _take_observers(context: typer.Context, values: list[str]) -> list[str]:
    state_of(context).observe = list(values)
    return values


class _Told(logging.Handler):
    """A handler for whatever standard error is by then: it may outlive a stream."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        with contextlib.suppress(ValueError):  # another thread's, and the stream is closed by then
            typer.echo(self.format(record), err=True)


def _trace_hooks(context: typer.Context, value: bool) -> None:
    """Send the log of hooks to standard error while the command runs."""
    if not value:
        return
    handler = _Told()
    handler.setFormatter(logging.Formatter("hook: %(message)s"))
    log = logging.getLogger("tenonnx.hooks")
    level, propagate = log.level, log.propagate

    def stop() -> None:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = propagate

    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    context.call_on_close(stop)


def _show_version(value: bool) -> None:
    if value:
        import tenonnx

        typer.echo(f"tenonnx {tenonnx.__version__}")
        raise typer.Exit


@app.callback()
def tenonnx_options(
    context: typer.Context,
    # Eager, because --help lists the subcommands that plug-ins bring.
    plugin: Annotated[
        list[str],
        typer.Option(
            metavar="FILE.py",
            help="Load a plug-in from a file; may be repeated.",
            is_eager=True,
            callback=_take_plugins,
        ),
    ] = NO_VALUES,
    no_plugin: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Do not load a plug-in; may be repeated. `tenonnx plugins` lists them.",
            is_eager=True,
            callback=_take_without,
        ),
    ] = NO_VALUES,
    observe: Annotated[
        list[str],
        typer.Option(
            metavar="NAME",
            help="Have an installed plug-in's observer see the runs; may be repeated.",
            is_eager=True,
            callback=_take_observers,
        ),
    ] = NO_VALUES,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Print the log, and tracebacks of errors; twice for more.",
        ),
    ] = 0,
    trace_hooks: Annotated[
        bool,
        typer.Option(
            "--trace-hooks",
            help="Print every call of a plug-in's hook, and its time.",
            is_eager=True,
            callback=_trace_hooks,
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    """Take the options before the subcommand."""
    del plugin, no_plugin, observe, trace_hooks, version
    state = state_of(context)
    state.verbosity = verbose
    context.call_on_close(state.start_logging())


for name, command, text in (
    ("run", run.run, run.HELP),
    ("inspect", inspect.inspect, inspect.HELP),
    ("plugins", plugins.plugins, plugins.HELP),
    ("providers", providers.providers, providers.HELP),
    ("doctor", doctor.doctor, doctor.HELP),
):
    app.command(name, cls=Command, help=text)(command)
