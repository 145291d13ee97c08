"""The base class of execution providers: a name, a device, and steps for the supported nodes.

Two styles share one method. A *kernel* provider returns one step per node; a *compile* provider
returns one step for a whole segment. The runtime never calls a provider while a model runs, only
the steps it returned.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from tenonnx.operators import Host, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.records import record

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir


class Device(Protocol):
    """A memory for arrays. Two devices with the same ``id`` are the same memory.

    Attributes:
        id: The device's type and number: ``cpu``, ``cuda:0``.
    """

    id: str

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Returns the device's array for a numpy array, of the same shape and dtype.

        Args:
            array: Any shape, strides and dtype that ONNX has; read-only if it is a weight.
        """

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Returns the numpy array for a device's array, of the same shape and dtype."""

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Joins the device's arrays along a new axis, as ``numpy.stack`` does.

        Args:
            arrays: One or more, of one shape and dtype.
            axis: Where the new axis is in the result.
        """


class HostDevice:
    """The process's own memory, where arrays are numpy's and moving them is free."""

    id = "cpu"

    def upload(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns the array itself."""
        return array

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Returns the array itself."""
        return array  # type: ignore[no-any-return]  # whatever lives here is already numpy's

    def stack(self, arrays: list[Any], axis: int) -> np.ndarray[Any, Any]:
        """Joins arrays of one shape along a new axis."""
        if axis == 0 and not arrays[0].dtype.hasobject:
            return np.array(arrays)  # a fourth of what np.stack takes for small ones
        return np.stack(arrays, axis)


HOST = HostDevice()


@record
class Step:
    """One call on the run path: ``outputs = call(*inputs)``.

    Attributes:
        call: Takes the inputs in order; returns the output, or a tuple when ``multiple``.
        inputs: Values the call takes; ``None`` is passed for an absent optional one.
        outputs: Values the call produces; unused ones are dropped.
        multiple: The call returns a tuple.
        device: The device of inputs and outputs.
        host: Inputs (by position, or all) that the call takes as numpy arrays instead.
        host_output: The outputs are on the host instead.
        nodes: The nodes of the step; errors and profiles name them.
        bodies: Graph attributes of the node, for a step of one node, that the call takes as
            keywords, each a ``Body``.
        parts: Single steps with the same results, for runs with observers and for runs of some
            outputs. An error has the failed one as its attribute ``step``.
    """

    call: Callable[..., Any]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    nodes: tuple[ir.Node, ...]
    multiple: bool = False
    device: Device = HOST
    host: Host = ()
    host_output: bool = False
    bodies: tuple[str, ...] = ()
    parts: tuple[Step, ...] = ()

    def called(self, call: Callable[..., Any]) -> Step:
        """Returns the same step with another call."""
        return Step(**{**vars(self), "call": call})

    def device_of_input(self, position: int) -> Device:
        """Returns the device of an input."""
        return HOST if self.host == "all" or position in self.host else self.device

    @property
    def device_of_outputs(self) -> Device:
        """Returns the device of the outputs."""
        return HOST if self.host == "all" or self.host_output else self.device


@record
class Body:
    """A graph attribute, as the kernel of an operator that is not ai.onnx's control flow gets it.

    Attributes:
        function: Takes the graph's inputs and returns a tuple of its outputs, where the step's
            own inputs and outputs are. It may be called while the step runs, any number of times.
        graph: For the names, types and shapes of inputs and outputs.
    """

    graph: ir.Graph
    function: Callable[..., tuple[Any, ...]]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Runs the graph once."""
        return self.function(*inputs)


@record
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


@record
class KernelState:
    """The state of a kernel of a session.

    Attributes:
        state: ``prebuilt`` (installed), ``cached`` or ``compiled`` (for this process) if it is
            ready; ``compiling`` if it is going to be; ``numpy`` if not: numpy computes instead.
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
        self.operators = operators or OperatorTable()
        self.session_options = session_options or SessionOptions()

    @staticmethod
    def later(place: str, name: str, *aliases: str) -> LaterProvider:
        """Returns what stands for the class at ``module:name`` until it is asked for.

        Args:
            place: Where the class is. No session without a list of providers uses it.
            name: Its name.
            aliases: Its aliases.
        """
        return LaterProvider(place, name, aliases)

    @cached_property
    def operators(self) -> OperatorTable:
        """Kernels that plug-ins added for this provider; looked up where it is a copy."""
        return self.look_up()

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for a kept plan, without the kernels of plug-ins."""
        return {k: v for k, v in vars(self).items() if k not in ("look_up", "operators", "table")}

    @classmethod
    def check(cls) -> str | None:
        """Returns the missing dependency and its remedy; ``None`` if the provider is usable."""
        return None

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Compiles ahead what it keeps on disk, so that later processes find it; nothing at first.

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
        """Returns remarks on its speed on this machine, for ``tenonnx doctor``; none by default.

        Each remark has a remedy, if one is needed.
        """
        return ()

    @classmethod
    def kept_files(cls) -> Iterable[Path]:
        """Returns the files that it keeps on disk for later processes; none at first."""
        return ()

    @classmethod
    def forget_unused(cls) -> Iterable[Path]:
        """Deletes those of them that no process has used for a month; returns these."""
        return ()

    @abstractmethod
    def supports(self, node: ir.Node) -> Literal[True] | str:
        """Returns ``True`` if the provider runs a node, or the reason why not in a few words.

        Args:
            node: The node; ``node.version`` is its opset version. Shapes and dtypes of its values
                may be unknown.

        Returns:
            ``True``, or the reason, which ``session.placement`` and errors repeat.
        """

    def has_operator(self, node: ir.Node) -> bool:
        """Tells whether a node's operator is known, even if the node is not supported.

        The hint of an error is then to change the node, not to look for its operator.
        """
        return self.operators.find(node.domain, node.op_type, node.version or 1) is not None

    def declines(self, transform: str) -> str | None:
        """Returns the reason why a transform of this name is useless to it, or ``None``.

        For example, ``compile`` does the same. Called for a session's preferred provider, with
        every transform but the required ones.

        Args:
            transform: The transform's name; docs/transforms.md lists them.
        """
        del transform
        return None

    @abstractmethod
    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns the steps that run a segment of nodes it supports, in order.

        Args:
            segment: Nodes in an order in which they can run, all of them supported. It says which
                values come from outside of it and which are wanted.

        Returns:
            Steps that produce every wanted value: one for each node, or one for all of them.

        Raises:
            EPFail: It cannot run the segment after all; the session is then not made.
        """

    def opened(self, model: str) -> None:
        """Called when a session with segments of this provider is complete.

        Args:
            model: The model's name in messages.
        """
        del model

    @classmethod
    def depends_on(cls) -> tuple[Any, ...] | None:
        """Returns the dependencies of its steps besides code and options, such as the processor.

        ``None``, the default, if another process cannot use them: plans with such steps are not
        kept.
        """
        return None

    def reopened(self) -> str | None:
        """Called when steps that it compiled in another process are used again.

        It is a copy of the provider that did. Returns why they cannot be used, if they cannot.
        """
        return None

    def kernels(self) -> Mapping[str, KernelState]:
        """Returns the kernels that what it compiled asked for, by name; none at first."""
        return {}


@record
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
        """Imports the class."""
        module, _, name = self.place.partition(":")
        found: type[Provider] = getattr(importlib.import_module(module), name)
        return found

    def unlike(self, found: type[Provider]) -> bool:
        """Says whether a class is not what was announced."""
        return (self.name, self.aliases, False) != (found.name, found.aliases, found.unasked)


Announced = TypeVar("Announced", bound="type[Provider] | LaterProvider")


def why_unusable(provider: type[Provider]) -> str | None:
    """Returns what ``check`` says is missing, or how it failed; ``None`` for a usable provider."""
    try:
        return provider.check()
    except Exception as error:  # a stranger's code may raise anything
        return f"its check failed: {type(error).__name__}: {error}"


def resolve_provider_name(name: str, providers: Iterable[Announced]) -> Announced | None:
    """Finds a provider by name or alias, ignoring case."""
    wanted = name.lower()
    for provider in providers:
        if wanted in (provider.name.lower(), *(alias.lower() for alias in provider.aliases)):
            return provider
    return None
