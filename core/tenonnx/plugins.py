"""Discovery and registration of plugins, and the catalogue of what they brought.

A plugin that fails is set aside with its error and never stops the others. Which plugins load
is for the user to say: ``TENONNX_PLUGINS`` is an allow-list of names (empty: none but the
built-ins), ``TENONNX_BLOCK_PLUGINS`` a block-list.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from tenonnx import hookspecs
from tenonnx.errors import InvalidArgument, PluginError
from tenonnx.operators import OperatorTable
from tenonnx.options import did_you_mean
from tenonnx.provider import Provider, resolve_provider_name

if TYPE_CHECKING:
    from tenonnx.formats import Format
    from tenonnx.transforms import Transform

GROUP = hookspecs.NAMESPACE
DISTRIBUTION = "tenonnx"


@dataclass
class PluginRecord:
    """One plugin, loaded or not.

    Attributes:
        name: Entry point's name, or the module's.
        distribution: Distribution and version it came from.
        hooks: Hooks it implements.
        registered: What it registered, as ``provider CPUExecutionProvider``.
        load_seconds: How long it took to import.
        error: Why it is not in use.
    """

    name: str
    distribution: str
    hooks: tuple[str, ...] = ()
    registered: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    error: str | None = None


class PluginSet:
    """The plugins in use and what they registered.

    Args:
        autoload: Discover installed plugins; the built-ins among them come first.
        allow: Names of the only plugins to load besides the built-ins; ``None`` for all.
        block: Names of plugins not to load.
    """

    def __init__(
        self,
        *,
        autoload: bool = True,
        allow: Iterable[str] | None = None,
        block: Iterable[str] = (),
    ) -> None:
        self.records: list[PluginRecord] = []
        self.providers: dict[str, type[Provider]] = {}
        self.transforms: dict[str, Transform] = {}
        self.formats: dict[str, Format] = {}
        self.commands: list[Any] = []
        self._operators: list[tuple[str | None, OperatorTable]] = []
        self._owners: dict[tuple[str, str], PluginRecord] = {}
        self._manager = pluggy.PluginManager(hookspecs.NAMESPACE)
        self._manager.add_hookspecs(hookspecs)
        if autoload:
            self._discover(None if allow is None else set(allow), set(block))

    def _discover(self, allow: set[str] | None, block: set[str]) -> None:
        for entry in _entry_points():
            builtin = entry.dist is not None and entry.dist.name == DISTRIBUTION
            record = PluginRecord(entry.name, _describe(entry.dist))
            self.records.append(record)
            if entry.name in block or not (builtin or allow is None or entry.name in allow):
                record.error = "blocked by TENONNX_BLOCK_PLUGINS or TENONNX_PLUGINS"
                continue
            self._add(record, entry.load)

    def register(self, plugin: Any, name: str | None = None) -> PluginRecord:
        """Adds a plugin: a module, or an object with hook implementations.

        Raises:
            PluginError: It takes a name that is taken, or misspells a hook.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        record = PluginRecord(name, "registered by the program")
        self._add(record, lambda: plugin)
        if record.error:
            raise PluginError(f"plugin {name!r}: {record.error}")
        self.records.append(record)
        return record

    def register_file(self, path: str | os.PathLike[str]) -> PluginRecord:
        """Adds a plugin from a Python file.

        Raises:
            PluginError: The file is missing, fails to import, or is refused by ``register``.
        """
        path = Path(path)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise PluginError(f"no plugin file {path}", hint="give the path of a .py file")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise PluginError(f"plugin file {path} failed: {_one_line(error)}") from error
        return self.register(module, name=path.stem)

    def _add(self, record: PluginRecord, load: Callable[[], Any]) -> None:
        """Loads a plugin and lets it register; whatever goes wrong ends in ``record.error``."""
        start = time.perf_counter()
        plugin: Any = None
        try:
            plugin = load()
            self._manager.register(plugin, name=record.name)
            callers = self._manager.get_hookcallers(plugin) or []
            record.hooks = tuple(sorted(caller.name for caller in callers))
            self._check_hooks(plugin, record)
            self._collect(plugin, record)
        except Exception as error:  # a stranger's code may raise anything
            record.error = _one_line(error)
            self._forget(plugin, record)
        record.load_seconds = time.perf_counter() - start

    def _check_hooks(self, plugin: Any, record: PluginRecord) -> None:
        known = [name for name in vars(hookspecs) if hasattr(vars(hookspecs)[name], "tenonnx_spec")]
        for name in record.hooks:
            if name not in known:
                raise PluginError(f"there is no hook {name!r}{did_you_mean(name, known)}")
        if not record.hooks:
            raise PluginError(
                f"{getattr(plugin, '__name__', plugin)!r} implements no hook",
                hint="decorate its functions with tenonnx.hookimpl",
            )

    def _collect(self, plugin: Any, record: PluginRecord) -> None:
        others = [p for p in self._manager.get_plugins() if p is not plugin]
        registrars: dict[str, Callable[..., None]] = {
            "register_providers": functools.partial(self._take_provider, record),
            "register_operators": functools.partial(self._take_operators, record),
            "register_transforms": functools.partial(self._take_transform, record),
            "register_formats": functools.partial(self._take_format, record),
            "register_commands": functools.partial(self._take_commands, record),
        }
        for hook in record.hooks:
            if hook in registrars:
                caller = self._manager.subset_hook_caller(hook, others)
                caller(register=registrars[hook])

    def _claim(self, record: PluginRecord, kind: str, name: str) -> None:
        holder = self._owners.setdefault((kind, name), record)
        if holder is not record:
            raise PluginError(
                f"the {kind} {name!r} is registered by {holder.name!r} ({holder.distribution}) "
                f"and again by {record.name!r} ({record.distribution})",
                hint="uninstall one of them, or block one with "
                f"TENONNX_BLOCK_PLUGINS={record.name}",
            )
        record.registered.append(f"{kind} {name}")

    def _take_provider(self, record: PluginRecord, provider: type[Provider]) -> None:
        if not (isinstance(provider, type) and issubclass(provider, Provider)):
            raise PluginError(
                f"expected a subclass of tenonnx.Provider to be registered, got {provider!r}"
            )
        for name in (provider.name, *provider.aliases):
            self._claim(record, "provider", name)
        self.providers[provider.name] = provider

    def _take_operators(
        self, record: PluginRecord, table: OperatorTable, *, provider: str | None = None
    ) -> None:
        if not isinstance(table, OperatorTable):
            raise PluginError(f"expected an OperatorTable to be registered, got {table!r}")
        domains = sorted({kernel.domain or "ai.onnx" for kernel in table})
        record.registered.append(f"operators of {', '.join(domains) or 'no domain'}")
        self._operators.append((provider, table))

    def _take_transform(self, record: PluginRecord, transform: Transform) -> None:
        self._claim(record, "transform", transform.name)
        self.transforms[transform.name] = transform

    def _take_format(self, record: PluginRecord, model_format: Format) -> None:
        self._claim(record, "format", model_format.name)
        self.formats[model_format.name] = model_format

    def _take_commands(self, record: PluginRecord, app: Any) -> None:
        record.registered.append("commands")
        self.commands.append(app)

    def _forget(self, plugin: Any, record: PluginRecord) -> None:
        """Takes back everything a plugin registered before it failed."""
        if plugin is not None and self._manager.is_registered(plugin):
            self._manager.unregister(plugin)
        record.registered.clear()
        for (kind, name), owner in list(self._owners.items()):
            if owner is record:
                del self._owners[kind, name]
                catalogue: dict[str, Any] = getattr(self, f"{kind}s")
                catalogue.pop(name, None)

    def operators_for(self, provider: type[Provider]) -> OperatorTable:
        """Returns the kernels that plugins added for a provider."""
        names = {None, provider.name, *provider.aliases}
        return OperatorTable().update(*(t for name, t in self._operators if name in names))

    def provider(self, name: str) -> type[Provider]:
        """Returns a provider class by name or alias.

        Raises:
            InvalidArgument: There is none; the message says which there are, and which plugins
                failed.
        """
        found = resolve_provider_name(name, self.providers.values())
        if found is not None:
            return found
        broken = [f"{r.name} ({r.distribution}): {r.error}" for r in self.records if r.error]
        known = [n for p in self.providers.values() for n in (p.name, *p.aliases)]
        raise InvalidArgument(
            f"unknown provider {name!r}{did_you_mean(name, known)}",
            hint=f"these plugins did not load: {'; '.join(broken)}" if broken else None,
        )

    @property
    def hook(self) -> Any:
        """The hook callers, for the hooks that are called later than at discovery."""
        return self._manager.hook


def _entry_points() -> list[importlib.metadata.EntryPoint]:
    """Installed plugins, each once, the built-ins first."""
    found = {(e.name, e.value): e for e in importlib.metadata.entry_points(group=GROUP)}
    return sorted(found.values(), key=lambda e: e.dist is None or e.dist.name != DISTRIBUTION)


def _describe(distribution: importlib.metadata.Distribution | None) -> str:
    return f"{distribution.name} {distribution.version}" if distribution else "unknown"


def _one_line(error: BaseException) -> str:
    text = str(error)
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}"


_default: PluginSet | None = None
_lock = threading.Lock()


def default_plugins() -> PluginSet:
    """Returns the process's plugins, discovered when first asked for."""
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
