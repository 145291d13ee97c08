"""Discovery of plug-ins, and calling their hooks.

A plug-in that fails is set aside with its error and never stops the others. Which plug-ins load
is for the user to say: ``TENONNX_PLUGINS`` is an allow-list of names (empty: none but the
built-ins), ``TENONNX_BLOCK_PLUGINS`` a block-list.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from tenonnx import hookspecs
from tenonnx.errors import InvalidArgument, PluginError, did_you_mean
from tenonnx.plugins.catalogue import DISTRIBUTION, Catalogue, PluginRecord, one_line
from tenonnx.plugins.checks import check_api, check_hooks, refused
from tenonnx.process import distributions

if TYPE_CHECKING:
    from tenonnx.planning.plan import Observer, Plan

ENTRY_POINT_GROUP = hookspecs.NAMESPACE
# The entry points of plug-ins that programs without a command line need not import.
COMMANDS = f"{ENTRY_POINT_GROUP}.commands"

# The variable with the names of installed plug-ins with active observers.
OBSERVE = "TENONNX_OBSERVE"

# Seconds that a plug-in may load before the log names it as the cause of waiting.
SLOW_SECONDS = 5.0

# The level of that name in ``logging``.
DEBUG = 10

log = logging.getLogger("tenonnx")
trace = logging.getLogger("tenonnx.hooks")


class PluginSet(Catalogue):
    """The plug-ins in use and what they registered.

    Args:
        autoload: Discover installed plug-ins; the built-ins among them come first.
        allow: Names of the only plug-ins to load besides the built-ins; ``None`` for all.
        block: Names of plug-ins not to load.
    """

    def __init__(
        self,
        *,
        autoload: bool = True,
        allow: Iterable[str] | None = None,
        block: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self._manager = pluggy.PluginManager(hookspecs.NAMESPACE)
        self._manager.add_hookspecs(hookspecs)
        self._allow, self._block = None if allow is None else set(allow), set(block)
        self._undiscovered = [COMMANDS] if autoload else []
        if autoload:
            self._discover(ENTRY_POINT_GROUP)
            self._tell_missing()

    def load_commands(self) -> None:
        """Discover the plug-ins that bring subcommands alone; only the command line needs them."""
        while self._undiscovered:
            self._discover(self._undiscovered.pop())

    def _discover(self, group: str) -> None:
        allow = self._allow
        for entry in _entry_points(group):
            record = PluginRecord(entry.name, f"{entry.distribution} {entry.version}")
            record.version, record.given = entry.version, False
            self.records.append(record)
            if entry.name in self._block:
                record.error = "blocked by TENONNX_BLOCK_PLUGINS"
                continue
            if not (record.builtin or allow is None or entry.name in allow):
                record.error = "blocked by TENONNX_PLUGINS, which does not list it"
                continue
            with contextlib.nullcontext() if record.builtin else _watched(record):
                self._add(record, entry.load)

    def _tell_missing(self) -> None:
        there = {record.name for record in self.records}
        if missing := (self._allow or set()) - there:
            there |= {entry.name for entry in _entry_points(COMMANDS)}
        for name in sorted(missing - there):
            error = "TENONNX_PLUGINS names it, but no such plug-in is installed"
            error += did_you_mean(name, sorted(there))
            self.records.append(PluginRecord(name, "not installed", error=error))

    def register(self, plugin: Any, name: str | None = None) -> PluginRecord:
        """Add a plug-in: a module, or an object with hook implementations.

        Args:
            plugin: The module or object.
            name: What listings and block-lists call it; its own name if ``None``.

        Raises:
            PluginError: It takes a name that is taken, misspells a hook, or registers what does
                not fit the hook. Nothing that it registered stays.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        return self._add_now(PluginRecord(name, "registered by the program"), plugin)

    def register_file(self, path: str | os.PathLike[str]) -> PluginRecord:
        """Add a plug-in from a Python file.

        Raises:
            PluginError: The file is missing, fails to import, or is refused by ``register``.
        """
        path = Path(path)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise PluginError(f"no plug-in file {path}", hint="give the path of a .py file")
        if any(each.distribution == str(path) and not each.error for each in self.records):
            raise PluginError(f"{path} is loaded already", hint="name it once")
        module = importlib.util.module_from_spec(spec)
        # Its dataclasses look their module up; a module of that name that is there already stays.
        ours = sys.modules.setdefault(path.stem, module) is module
        record, start = PluginRecord(path.stem, str(path)), time.perf_counter()
        try:
            with _watched(record):
                spec.loader.exec_module(module)
            imported = time.perf_counter() - start
            self._add_now(record, module)
            record.load_seconds += imported
            return record
        except (Exception, SystemExit) as error:
            if ours:
                del sys.modules[path.stem]
            if isinstance(error, PluginError):
                raise
            raise PluginError(f"plug-in file {path} failed: {one_line(error)}") from error

    def observing(self, names: Iterable[str] = ()) -> list[PluginRecord]:
        """Return the plug-ins with active observers.

        Those that are installed have to be asked for, by an option or ``TENONNX_OBSERVE``; those
        that the program registers, or that are given as files, do not.

        Args:
            names: Of those that are asked for, besides the variable's.

        Raises:
            InvalidArgument: One of the names is no plug-in with an observer.
        """
        able = [r for r in self.records if "create_observer" in r.hooks and not r.error]
        asked = {*names, *_names(os.environ.get(OBSERVE, ""))}
        if unknown := sorted(asked - {record.name for record in able}):
            known = did_you_mean(unknown[0], [record.name for record in able])
            raise InvalidArgument(f"no plug-in {unknown[0]!r} has an observer{known}")
        return [record for record in able if record.given or record.name in asked]

    def create_observers(self, plan: Plan, names: Iterable[str] = ()) -> list[Observer]:
        """Ask every plug-in whose observer is on for one of a plan.

        Raises:
            PluginError: One failed; the message names it.
            InvalidArgument: As ``observing`` does.
        """
        observers: list[Observer] = []
        for record in self.observing(names):
            plugin = self._manager.get_plugin(record.name)
            try:
                observer = self._call(plugin, "create_observer", plan=plan)
                if observer is not None and not callable(getattr(observer, "on_step", None)):
                    raise PluginError(f"expected a tenonnx.Observer or None, got {observer!r}")
            except (Exception, SystemExit) as error:  # the process is not a plug-in's to end
                raise PluginError(
                    f"plug-in {record.name!r} failed to create an observer: {one_line(error)}",
                    hint=f"do without it: TENONNX_BLOCK_PLUGINS={record.name}",
                ) from error
            if observer is not None:
                observers.append(observer)
        return observers

    def _add_now(self, record: PluginRecord, plugin: Any) -> PluginRecord:
        self._add(record, lambda: plugin)
        if record.error:
            error, _, hint = record.error.partition("\nHint: ")
            raise PluginError(f"plug-in {record.name!r}: {error}", hint=hint or None)
        self.records.append(record)
        return record

    def _add(self, record: PluginRecord, load: Callable[[], Any]) -> None:
        """Load a plug-in and let it register; whatever goes wrong ends in ``record.error``."""
        start = time.perf_counter()
        try:
            plugin = load()
            check_api(plugin, record)
            self._refuse_twice(plugin, record)
            with self.all_or_nothing(record):
                self._enlist(plugin, record)
        except (Exception, SystemExit) as error:  # a stranger's code may raise anything
            record.error = one_line(error)
        record.load_seconds = time.perf_counter() - start

    def _refuse_twice(self, plugin: Any, record: PluginRecord) -> None:
        if self._manager.has_plugin(record.name):
            holder = next(r for r in self.records if r.name == record.name and not r.error)
            raise PluginError(
                f"two plug-ins are named {record.name!r}: one of {holder.distribution}, "
                f"one of {record.distribution}",
                hint="uninstall one of them, or register it under another name",
            )
        if self._manager.is_registered(plugin):
            raise PluginError(f"it is registered already, as {self._manager.get_name(plugin)!r}")

    def _enlist(self, plugin: Any, record: PluginRecord) -> None:
        try:
            try:
                self._manager.register(plugin, name=record.name)
            except pluggy.PluginValidationError as error:
                raise refused(plugin, error) from error
            callers = self._manager.get_hookcallers(plugin) or []
            record.hooks = tuple(sorted(caller.name for caller in callers))
            check_hooks(plugin, record)
            for hook, registrar in self.registrars(record).items():
                if hook in record.hooks:
                    self._call(plugin, hook, register=registrar)
        except BaseException:
            if self._manager.is_registered(plugin):
                self._manager.unregister(plugin)
            raise

    def _call(self, plugin: Any, hook: str, **arguments: Any) -> Any:
        """Call one plug-in's implementation of a hook, so that a failure has a name."""
        for found in getattr(self._manager.hook, hook).get_hookimpls():
            if found.plugin is plugin:
                if found.wrapper or found.hookwrapper:
                    raise PluginError(f"its {hook} is a wrapper; there is nothing to wrap")
                start = time.perf_counter()
                result = found.function(*(arguments[name] for name in found.argnames))
                if trace.isEnabledFor(DEBUG):
                    seconds = time.perf_counter() - start
                    name = self._manager.get_name(plugin)
                    trace.debug("%s of plug-in %s took %.1f ms", hook, name, seconds * 1e3)
                return result
        return None


@contextlib.contextmanager
def _watched(record: PluginRecord) -> Iterator[None]:
    """Log a plug-in whose import takes long."""
    told = (
        "plug-in %r of %s has been loading for %g s; TENONNX_BLOCK_PLUGINS=%s does without it",
        *(record.name, record.distribution, SLOW_SECONDS, record.name),
    )
    timer = threading.Timer(SLOW_SECONDS, lambda: log.warning(*told))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _entry_points(group: str) -> list[distributions.EntryPoint]:
    """Installed plug-ins, each once, the built-ins first."""
    found = {(e.name, e.value): e for e in distributions.entry_points(group)}
    return sorted(found.values(), key=lambda e: e.distribution != DISTRIBUTION)


_default: PluginSet | None = None
_lock = threading.RLock()


def default_plugins() -> PluginSet:
    """Return the process's plug-ins, discovered when first asked for."""
    global _default
    with _lock:
        if _default is None:
            allow = os.environ.get("TENONNX_PLUGINS")
            block = os.environ.get("TENONNX_BLOCK_PLUGINS", "")
            _default = PluginSet(
                allow=None if allow is None else _names(allow), block=_names(block)
            )
        return _default


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
