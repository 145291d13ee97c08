"""Every hook there is. A plugin is a module or object that implements any of them.

Register through an entry point in the group ``tenonnx``, by ``PluginSet.register`` or as a file
given to ``--plugin``. Hooks run when plugins are discovered, a model is loaded or a plan is
compiled, never per node. Importing a plugin must be cheap: import heavy modules when they are
first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from tenonnx.operators import OperatorTable
from tenonnx.provider import Provider

if TYPE_CHECKING:
    import typer

    from tenonnx.formats import Format
    from tenonnx.planning.plan import Observer, Plan
    from tenonnx.transforms import Transform

NAMESPACE = "tenonnx"
API_VERSION = 1
"""What plugins are written against; it changes when an older plugin could not go on as it is.

A plugin that says ``tenonnx_api = 1`` is set aside by a tenonnx of another one.
"""

F = TypeVar("F", bound=Callable[..., Any])


def hookspec(function: F) -> F:
    """Declares a hook, as pluggy's marker would, which a session may do without importing."""
    told = dict.fromkeys(("firstresult", "historic"), False)
    setattr(function, f"{NAMESPACE}_spec", {**told, "warn_on_impl": None})
    return function


class _Hookimpl:
    """Decorates what implements a hook; the options are those of ``pluggy.HookimplMarker``."""

    @overload
    def __call__(self, function: F) -> F: ...
    @overload
    def __call__(
        self,
        *,
        hookwrapper: bool = ...,
        optionalhook: bool = ...,
        tryfirst: bool = ...,
        trylast: bool = ...,
        specname: str | None = ...,
        wrapper: bool = ...,
    ) -> Callable[[F], F]: ...
    def __call__(self, function: F | None = None, **options: Any) -> F | Callable[[F], F]:
        """Marks a function, or returns what does."""
        if options or function is None:
            import pluggy  # for those who say more

            return pluggy.HookimplMarker(NAMESPACE)(function, **options)
        flags = dict.fromkeys(
            ("hookwrapper", "optionalhook", "tryfirst", "trylast", "wrapper"), False
        )
        setattr(function, f"{NAMESPACE}_impl", {**flags, "specname": None})
        return function


hookimpl = _Hookimpl()


RegisterCommands: TypeAlias = "Callable[[typer.Typer | Callable[[], typer.Typer]], Any]"


class RegisterOperators(Protocol):
    """Adds kernels to one provider by its name, or to every provider that takes kernels."""

    def __call__(self, table: OperatorTable, *, provider: str | None = None) -> None:
        """Adds a table's kernels."""


@hookspec
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Announce execution providers: ``register(MyProvider)``."""


@hookspec
def register_operators(register: RegisterOperators) -> None:
    """Add operators, of domains of your own or in place of a provider's: ``register(table)``."""


@hookspec
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Add graph transforms: ``register(Transform("fold", fold, level="basic", order=20))``."""


@hookspec
def register_formats(register: Callable[[Format], None]) -> None:
    """Add model file formats: ``register(Format("ort", load, sniff=..., suffixes=(".ort",)))``."""


@hookspec
def register_commands(register: RegisterCommands) -> None:
    """Add subcommands to the ``tenonnx`` command: ``register(app)`` merges a typer app.

    A function that makes one may be registered instead; it is called by the command line alone, so
    that no other program imports typer.
    """


@hookspec
def create_observer(plan: Plan) -> Observer | None:
    """Return an object that watches every step of a plan, or ``None``.

    Called once per compiled plan. A plan that nobody observes runs code without a trace of it.
    """
