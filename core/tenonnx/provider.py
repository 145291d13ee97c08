"""The base class of execution providers: a name, a device, and steps for the supported nodes.

Two styles share one method. A *kernel* provider returns one step per node; a *compile* provider
returns one step for a whole segment. The runtime never calls a provider while a model runs, only
the steps it returned.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from tenonnx.operators import Kernel, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.planning.step import HOST as HOST
from tenonnx.planning.step import Body as Body
from tenonnx.planning.step import Device as Device
from tenonnx.planning.step import HostDevice as HostDevice
from tenonnx.planning.step import Step as Step

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir


@dataclass(frozen=True)
class Segment:
    """Consecutive nodes that one provider runs.

    Attributes:
        nodes: In an order in which they can run.
        escaping: Values that something outside the segment reads.
    """

    nodes: tuple[ir.Node, ...]
    escaping: frozenset[ir.Value]

    @cached_property
    def inputs(self) -> tuple[ir.Value, ...]:
        """Values that the nodes read and none of them produces, constants among them."""
        made = {output for node in self.nodes for output in node.outputs}
        read = (value for node in self.nodes for value in node.inputs)
        return tuple(dict.fromkeys(v for v in read if v is not None and v not in made))

    @cached_property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Values that the nodes produce and something outside reads."""
        made = (output for node in self.nodes for output in node.outputs)
        return tuple(value for value in made if value in self.escaping)


@dataclass(frozen=True)
class KernelState:
    """The state of a kernel of a session.

    Attributes:
        state: ``prebuilt`` (installed), ``cached`` or ``compiled`` (for this process) if it is
            ready; ``numpy`` if not: numpy computes instead.
        reason: Why not.
    """

    state: str
    reason: str = ""


class Provider(ABC):
    """Base class of execution providers; subclass it and register the class through a hook.

    Args:
        options: An instance of ``Options``.
        operators: Kernels that plug-ins added for this provider.
        session_options: The session's options, such as the number of threads.
    """

    name: ClassVar[str]
    """The name by which users select it, in onnxruntime's style: ``CPUExecutionProvider``."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Short names: ``cpu``."""

    Options: ClassVar[type | None] = None
    """A dataclass of its options; ``None`` if it has none."""

    unasked: ClassVar[bool] = True
    """Whether sessions without a list of providers use it."""

    min_group_nodes: ClassVar[int] = 1
    """Nodes that a claimed group has at least; smaller ones are left to the next provider."""

    needs_types: ClassVar[bool] = True
    """Whether it reads types and shapes of values. What a model leaves open is inferred for it
    before transforms run, and again before nodes are placed; that takes time, so that one whose
    kernels take what they get says ``False``."""

    domains: ClassVar[frozenset[str] | None] = None
    """Domains of the operators that it runs, ``""`` for ONNX's own; ``None`` if it may be any.
    A transform whose operators it does not run is left out where the provider is preferred."""

    device: Device = HOST

    look_up: Callable[[], OperatorTable]
    """Finds the kernels that plug-ins added, where the provider is a copy of another process's."""

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        self.options = options
        # It hides the cached property below, which only a copy from a cached plan evaluates.
        self.operators = operators or OperatorTable()
        self.session_options = session_options or SessionOptions()

    @staticmethod
    def later(place: str, name: str, *aliases: str) -> LaterProvider:
        """Return what stands for the class at ``module:name`` until it is asked for.

        Args:
            place: Where the class is. No session without a list of providers uses it.
            name: Its name.
            aliases: Its aliases.
        """
        return LaterProvider(place, name, aliases)

    @cached_property
    def operators(self) -> OperatorTable:
        """Kernels that plug-ins added for this provider; looked up where it is a copy.

        Raises:
            PluginError: It is no copy, and its ``__init__`` does not call the base class's.
        """
        if not hasattr(self, "look_up"):
            from tenonnx.errors import PluginError

            raise PluginError(
                f"{type(self).__name__}.__init__ does not call super().__init__",
                hint="def __init__(self, *arguments): super().__init__(*arguments)",
            )
        return self.look_up()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a cached plan, without the kernels of plug-ins."""
        return {k: v for k, v in vars(self).items() if k not in ("look_up", "operators", "table")}

    @classmethod
    def check(cls) -> str | None:
        """Return the missing dependency and its remedy; ``None`` if the provider is usable."""
        return None

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Compile kernels to the disk cache, for later processes. This one has none to compile.

        Args:
            tell: Called with the name of the part that is being compiled, and the share of all that
                is done.
            everything: Compile everything it may ever need, not only the requests of sessions so
                far.

        Returns:
            For everything by name, whether it is there now.
        """
        del tell, everything
        return {}

    @classmethod
    def remarks(cls) -> Iterable[tuple[str, str | None]]:
        """Return remarks on its speed on this machine, for ``tenonnx doctor``; none by default.

        Each remark has a remedy, if one is needed.
        """
        return ()

    @classmethod
    def kept_files(cls) -> Iterable[Path]:
        """Return the files that it keeps on disk for later processes; none at first."""
        return ()

    @classmethod
    def forget_unused(cls) -> Iterable[Path]:
        """Delete those of them that no process has used for a month; return these."""
        return ()

    @abstractmethod
    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Return ``True`` if the provider runs a node, or the reason why not in a few words.

        Args:
            node: The node; ``node.version`` is its opset version. Its values have the dtypes and
                shapes that the model says or that follow from them, if ``needs_types``; a shape's
                sizes are numbers, names, or unknown, and equal names are equal sizes.

        Returns:
            ``True``, or the reason, which ``session.placement`` and errors repeat.
        """

    def claim(self, nodes: Sequence[ir.Node]) -> Iterable[Sequence[ir.Node]] | None:
        """Return groups of nodes, each of which it compiles as a segment; ``None`` at first.

        Without groups it runs every node that ``supports`` accepts, and consecutive ones are a
        segment. The runtime cuts a group that would wait for itself, and reorders the graph so that
        a group's nodes are together. All nodes as one group give as few segments as there can be;
        ``tenonnx.segments.grouping`` has groups by pattern.

        Args:
            nodes: Those of one graph that it supports and that no provider before it runs, in an
                order in which they can run; none of them holds graphs.
        """
        del nodes
        return None

    def has_operator(self, node: ir.Node) -> bool:
        """Return whether a node's operator is known: errors then hint at changing the node."""
        return self.kernel_of(node) is not None

    def kernel_of(self, node: ir.Node) -> Kernel | None:
        """Return the kernel of a node's operator whose declarations the node must follow."""
        return self.operators.find(node.domain, node.op_type, node.version or 1)

    def declines(self, transform: str) -> str | None:
        """Return the reason why a transform of this name is useless to it, or ``None``.

        For example, ``compile`` does the same. Called for a session's preferred provider, with
        every transform but the required ones.

        Args:
            transform: The transform's name; docs/transforms.md lists them.
        """
        del transform
        return None

    @abstractmethod
    def compile(self, segment: Segment) -> Sequence[Step]:
        """Return the steps that run a segment of nodes it supports, in order.

        Args:
            segment: Nodes in an order in which they can run, all of them supported. It says which
                values come from outside of it and which are wanted.

        Returns:
            Steps that produce every wanted value: one for each node, or one for all of them.

        Raises:
            EPFail: It cannot run the segment after all; the session is then not made.
        """

    @classmethod
    def depends_on(cls) -> tuple[Any, ...] | None:
        """Return the dependencies of its steps besides code and options, such as the processor.

        ``None``, the default, if another process cannot use them: plans with such steps are not
        cached.
        """
        return None

    def reopened(self) -> str | None:
        """Called when steps that it compiled in another process are used again.

        It is a copy of the provider that did. Returns why they cannot be used, if they cannot.
        """
        return None

    def kernels(self) -> Mapping[str, KernelState]:
        """Return the kernels that what it compiled asked for, by name; none at first."""
        return {}


@dataclass(frozen=True)
class LaterProvider:
    """A provider's class that is not imported yet.

    Attributes:
        place: Where it is: ``module:name``.
        name: Its name.
        aliases: Its aliases.
    """

    place: str
    name: str
    aliases: tuple[str, ...] = ()

    def load(self) -> type[Provider]:
        """Import the class."""
        module, _, name = self.place.partition(":")
        found: type[Provider] = getattr(importlib.import_module(module), name)
        return found

    def unlike(self, found: type[Provider]) -> bool:
        """Return whether a class is not what was announced."""
        return (self.name, self.aliases, False) != (found.name, found.aliases, found.unasked)


Announced = TypeVar("Announced", bound="type[Provider] | LaterProvider")


def why_unusable(provider: type[Provider]) -> str | None:
    """Return what ``check`` says is missing, or how it failed; ``None`` for a usable provider."""
    try:
        reason: Any = provider.check()
        if reason is None or isinstance(reason, str):
            return reason
        return f"its check returned {reason!r}; expected None, or the reason as a string"
    except Exception as error:  # a stranger's code may raise anything
        return f"its check failed: {type(error).__name__}: {error}"


def resolve_provider_name(name: str, providers: Iterable[Announced]) -> Announced | None:
    """Find a provider by name or alias, ignoring case."""
    wanted = name.lower()
    for provider in providers:
        if wanted in (provider.name.lower(), *(alias.lower() for alias in provider.aliases)):
            return provider
    return None
