"""The objects that plug-ins registered, by name, and the plug-in of each."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tenonnx.errors import InvalidArgument, PluginError, did_you_mean
from tenonnx.operators import OperatorTable
from tenonnx.provider import LaterProvider, Provider, resolve_provider_name

# The runtime's own.
DISTRIBUTION = "tenonnx"

if TYPE_CHECKING:
    from tenonnx.formats import Format
    from tenonnx.transforms import Transform


@dataclass
class PluginRecord:
    """One plug-in, loaded or not.

    Attributes:
        name: Entry point's name, or the module's.
        distribution: Distribution and version it came from.
        hooks: Hooks it implements.
        registered: What it registered, as ``provider CPUExecutionProvider``.
        load_seconds: How long it took to import.
        error: Why it is not in use.
        version: The distribution's.
        api: Version of the plug-in API that it says it was written for.
        given: Whether the program or the command line gave it, rather than an installed
            distribution: nobody has to ask for its observer.
    """

    name: str
    distribution: str
    hooks: tuple[str, ...] = ()
    registered: list[str] = field(default_factory=list)
    load_seconds: float = 0.0
    error: str | None = None
    version: str = ""
    api: int | None = None
    given: bool = True

    @property
    def builtin(self) -> bool:
        """Whether it comes with the runtime."""
        return self.distribution.partition(" ")[0] == DISTRIBUTION


class Catalogue:
    """The objects that plug-ins registered, by name. Each name is taken once."""

    def __init__(self) -> None:
        self.records: list[PluginRecord] = []
        self._providers: dict[str, type[Provider] | LaterProvider] = {}
        self.transforms: dict[str, Transform] = {}
        self.formats: dict[str, Format] = {}
        self.commands: list[tuple[PluginRecord, Any]] = []
        self._operators: list[tuple[str | None, OperatorTable]] = []
        self._owners: dict[tuple[str, str], PluginRecord] = {}

    @property
    def providers(self) -> dict[str, type[Provider]]:
        """All providers by name; those that were announced for later are imported now."""
        self.import_all()
        found = self._providers.items()
        return {name: p for name, p in found if not isinstance(p, LaterProvider)}

    def import_all(self) -> None:
        """Import the providers that were announced for later, so that records tell of failures."""
        for provider in list(self._providers.values()):
            self._loaded(provider)

    def unasked(self) -> list[type[Provider]]:
        """Return the providers that sessions without a list of them use, if they can."""
        now = [p for p in self._providers.values() if not isinstance(p, LaterProvider)]
        return [provider for provider in now if provider.unasked]

    def knows(self, name: str) -> bool:
        """Return whether a provider of a name or alias is registered; import none."""
        return resolve_provider_name(name, self._providers.values()) is not None

    def provider(self, name: str) -> type[Provider]:
        """Return a provider class by name or alias.

        Raises:
            InvalidArgument: There is none; the message says which there are, and which plug-ins
                failed.
        """
        announced = resolve_provider_name(name, self._providers.values())
        if announced is not None and (found := self._loaded(announced)) is not None:
            return found
        broken = [f"{r.name} ({r.distribution}): {r.error}" for r in self.records if r.error]
        known = [n for p in self._providers.values() for n in (p.name, *p.aliases)]
        raise InvalidArgument(
            f"unknown provider {name!r}{did_you_mean(name, known)}",
            hint=f"these plug-ins did not load: {'; '.join(broken)}" if broken else None,
        )

    def operators_for(self, provider: type[Provider]) -> OperatorTable:
        """Return the kernels that plug-ins added for a provider.

        One added for this provider by name wins over one added for every provider.
        """
        names = {provider.name, *provider.aliases}
        shared = (table for name, table in self._operators if name is None)
        own = (table for name, table in self._operators if name in names)
        return OperatorTable().update(*shared, *own)

    def owner(self, kind: str, name: str) -> str:
        """Return the name of the plug-in that registered something; ``""`` if none did."""
        record = self._owners.get((kind, name.lower()))
        return record.name if record else ""

    def registrars(self, record: PluginRecord) -> dict[str, Callable[..., None]]:
        """Return, by hook, what a plug-in registers its things with."""
        return {
            "register_providers": functools.partial(self._take_provider, record),
            "register_operators": functools.partial(self._take_operators, record),
            "register_transforms": functools.partial(self._take_transform, record),
            "register_formats": functools.partial(self._take_format, record),
            "register_commands": functools.partial(self._take_command, record),
        }

    @contextmanager
    def all_or_nothing(self, record: PluginRecord) -> Iterator[None]:
        """Take back everything a plug-in registered in the block if the block fails."""
        names = ("_providers", "transforms", "formats", "commands", "_operators", "_owners")
        before = {name: copy.copy(vars(self)[name]) for name in names}
        try:
            yield
        except BaseException:
            record.registered.clear()
            vars(self).update(before)
            raise

    def _claim(self, record: PluginRecord, kind: str, name: str) -> None:
        holder = self._owners.setdefault((kind, name.lower()), record)
        if holder is not record:
            raise PluginError(
                f"the {kind} {name!r} is registered by {holder.name!r} ({holder.distribution}) "
                f"and again by {record.name!r} ({record.distribution})",
                hint="uninstall one of them, or block one with "
                f"TENONNX_BLOCK_PLUGINS={record.name}",
            )

    def _loaded(self, provider: type[Provider] | LaterProvider) -> type[Provider] | None:
        """Import a provider that was announced; if that fails, its record tells why."""
        if not isinstance(provider, LaterProvider):
            return provider
        record = self._owners["provider", provider.name.lower()]
        try:
            found = provider.load()
            _check_provider(found)
            if provider.unlike(found):
                raise PluginError(
                    f"{provider.place} was announced as {provider.name!r}, for those who ask for "
                    f"it, and is {found.name!r}",
                    hint="say the class's own name and aliases, and that it is not `unasked`",
                )
        except (Exception, SystemExit) as error:  # a stranger's code may raise, or end the program
            record.error = one_line(error)
            self._providers.pop(provider.name, None)
            return None
        self._providers[provider.name] = found
        return found

    def _take_provider(
        self, record: PluginRecord, provider: type[Provider] | LaterProvider
    ) -> None:
        if not isinstance(provider, LaterProvider):
            _check_provider(provider)
        for name in (provider.name, *provider.aliases):
            self._claim(record, "provider", name)
            record.registered.append(f"provider {name}")
        self._providers[provider.name] = provider

    def _take_operators(
        self, record: PluginRecord, table: OperatorTable, *, provider: str | None = None
    ) -> None:
        _expect(OperatorTable, table)
        domains = set()
        for kernel in table.names():
            self._claim(record, "kernel", f"{kernel} for {provider or 'every provider'}")
            domains.add(kernel.partition("::")[0])
        listed = f"operators of {', '.join(sorted(domains)) or 'no domain'}"
        record.registered.append(listed if provider is None else f"{listed} for {provider}")
        self._operators.append((provider, table))

    def _take_transform(self, record: PluginRecord, transform: Transform) -> None:
        # Whoever made a transform imported these already; a listing of providers need not.
        from tenonnx.transforms import Transform

        _expect(Transform, transform)
        self._claim(record, "transform", transform.name)
        record.registered.append(f"transform {transform.name}")
        self.transforms[transform.name] = transform

    def _take_format(self, record: PluginRecord, model_format: Format) -> None:
        from tenonnx.formats import Format

        _expect(Format, model_format)
        self._claim(record, "format", model_format.name)
        record.registered.append(f"format {model_format.name}")
        self.formats[model_format.name] = model_format

    def _take_command(self, record: PluginRecord, app: Any) -> None:
        if not callable(app):
            raise PluginError(
                f"expected a typer.Typer to be registered, or what makes one, got {app!r}"
            )
        record.registered.append("commands")
        self.commands.append((record, app))
        # A command of a name that is taken is left out: built-in ones take theirs first.
        self.commands.sort(key=lambda command: not command[0].builtin)


def one_line(error: BaseException) -> str:
    """Return what a plug-in's exception says, for its record."""
    text = str(error)
    return text if isinstance(error, PluginError) else f"{type(error).__name__}: {text}"


def _expect(kind: type, given: object) -> None:
    if not isinstance(given, kind):
        raise PluginError(f"expected a tenonnx.{kind.__name__} to be registered, got {given!r}")


def _check_provider(provider: object) -> None:
    if not (isinstance(provider, type) and issubclass(provider, Provider)):
        raise PluginError(
            f"expected a subclass of tenonnx.Provider to be registered, got {provider!r}",
            hint="register the class; sessions make the instances",
        )
    if inspect.isabstract(provider):
        missing = ", ".join(sorted(provider.__abstractmethods__))
        raise PluginError(f"provider {provider.__name__} does not implement {missing}")
    if not isinstance(getattr(provider, "name", None), str):
        raise PluginError(f"provider {provider.__name__} has no name")
    if not isinstance(provider.aliases, list | tuple):
        raise PluginError(
            f"expected the aliases of provider {provider.name} in a tuple, got {provider.aliases!r}"
        )
    if provider.Options is not None and not dataclasses.is_dataclass(provider.Options):
        raise PluginError(f"the Options of provider {provider.name} are not a dataclass")
