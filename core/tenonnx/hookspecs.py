"""All hooks. A plug-in is a module or object that implements some of them.

Register through an entry point in the group ``tenonnx``, by ``PluginSet.register`` or as a file
given to ``--plugin``. Hooks run when plug-ins are discovered, a model is loaded or a plan is
compiled, never per node. Importing a plug-in must be cheap: import heavy modules when they are
first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pluggy

from tenonnx.operators import OperatorTable
from tenonnx.provider import LaterProvider, Provider

if TYPE_CHECKING:
    import typer

    from tenonnx.formats import Format
    from tenonnx.planning.plan import Observer, Plan
    from tenonnx.transforms import Transform

NAMESPACE = "tenonnx"
# The version of the plug-in interface; it changes when older plug-ins stop working.
#
# A plug-in with ``tenonnx_api = 1`` is disabled by a tenonnx with another version.
API_VERSION = 1

hookspec = pluggy.HookspecMarker(NAMESPACE)
hookimpl = pluggy.HookimplMarker(NAMESPACE)

RegisterCommands: TypeAlias = "Callable[[typer.Typer | Callable[[], typer.Typer]], Any]"


class RegisterOperators(Protocol):
    """A function that adds kernels to one provider by its name, or to all that take kernels."""

    def __call__(self, table: OperatorTable, *, provider: str | None = None) -> None:
        """Add a table's kernels."""


@hookspec
def register_providers(register: Callable[[type[Provider] | LaterProvider], None]) -> None:
    """Add execution providers: ``register(MyProvider)``.

    ``register(Provider.later("my.module:MyProvider", "MyExecutionProvider", "mine"))`` has the
    module imported for those who ask for the provider alone.
    """


@hookspec
def register_operators(register: RegisterOperators) -> None:
    """Add operators of your own domains, or replace a provider's kernels: ``register(table)``."""


@hookspec
def register_transforms(register: Callable[[Transform], None]) -> None:
    """Add graph transforms: ``register(Transform("fold", fold, level="basic", order=20))``."""


@hookspec
def register_formats(register: Callable[[Format], None]) -> None:
    """Add model file formats: ``register(Format("ort", load, sniff=..., suffixes=(".ort",)))``."""


@hookspec
def register_commands(register: RegisterCommands) -> None:
    """Add subcommands to the ``tenonnx`` command: ``register(app)`` merges a typer app.

    You may register a function that makes the app instead: only the command line calls it, so no
    other program imports typer.
    """


@hookspec
def create_observer(plan: Plan) -> Observer | None:
    """Return an object that is called after every step of a plan, or ``None``.

    Called once per compiled plan. Plans without observers run code without these calls.
    """
