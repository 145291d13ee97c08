"""What an execution provider is: a name, a device, and steps for the nodes it supports.

Two styles share one method. A *kernel* provider returns one step per node; a *compile* provider
returns one step for a whole segment. The runtime never calls a provider while a model runs, only
the steps it returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from tenonnx.operators import Host, OperatorTable
from tenonnx.options import SessionOptions
from tenonnx.records import record

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir


class Device(Protocol):
    """Where arrays live. Two devices with one ``id`` are the same memory."""

    id: str

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """Returns the device's array for a numpy array."""

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Returns the numpy array for a device's array."""

    def stack(self, arrays: list[Any], axis: int) -> Any:
        """Joins the device's arrays of one shape along a new axis."""


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
        device: Where inputs are expected and outputs appear.
        host: Inputs (by position, or all) that the call takes as numpy arrays instead.
        host_output: The outputs appear on the host instead.
        nodes: The nodes that the step stands for; errors and profiles name them.
        bodies: Graph attributes of the node, for a step of one node, that the call takes as
            keywords, each a ``Body``.
        parts: Steps that do the same one after another, for runs that are watched, or that want
            some of the outputs. An error of one of them has it as its attribute ``step``.
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
        """Returns the same step by another call."""
        return Step(**{**vars(self), "call": call})

    def device_of_input(self, position: int) -> Device:
        """Where the call expects an input."""
        return HOST if self.host == "all" or position in self.host else self.device

    @property
    def device_of_outputs(self) -> Device:
        """Where the call leaves its outputs."""
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
    """How far a kernel is that nodes of a session are computed by, once it is ready.

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
        operators: Kernels that plugins added for this provider.
        session_options: The session's, such as how many threads a kernel may use.
    """

    name: ClassVar[str]
    """The name users select it by, onnxruntime's style: ``CPUExecutionProvider``."""

    aliases: ClassVar[tuple[str, ...]] = ()
    """Short names: ``cpu``."""

    Options: ClassVar[type | None] = None
    """A dataclass of the options it takes; ``None`` if it takes none."""

    unasked: ClassVar[bool] = True
    """Whether sessions that name no provider use it; if not, it runs where it is named."""

    domains: ClassVar[frozenset[str] | None] = None
    """Domains of the operators that it runs, ``""`` for ONNX's own; ``None`` if it may be any.
    A transform whose operators it does not run is left out where the provider is preferred."""

    device: Device = HOST

    look_up: Callable[[], OperatorTable]
    """Finds the kernels that plugins added, where the provider is a copy of another process's."""

    def __init__(
        self,
        options: Any = None,
        operators: OperatorTable | None = None,
        session_options: SessionOptions | None = None,
    ) -> None:
        self.options = options
        self.operators = operators or OperatorTable()
        self.session_options = session_options or SessionOptions()

    @cached_property
    def operators(self) -> OperatorTable:
        """Kernels that plugins added for this provider; looked up where it is a copy."""
        return self.look_up()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a plan keeps of it, which leaves out what plug-ins added."""
        return {k: v for k, v in vars(self).items() if k not in ("look_up", "operators", "table")}

    @classmethod
    def check(cls) -> str | None:
        """Says what is missing here and how to mend it; ``None`` when the provider is usable."""
        return None

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Compiles ahead what it keeps on disk, so that later processes find it; nothing at first.

        Args:
            tell: Takes what is being compiled, and which share of all is done.
            everything: Whatever it may ever need, and not only what sessions asked for so far.

        Returns:
            For everything by name, whether it is there now.
        """
        del tell, everything
        return {}

    @classmethod
    def remarks(cls) -> Iterable[tuple[str, str | None]]:
        """Returns what to know of how it computes here, for ``tenonnx doctor``; nothing at first.

        Each with a way to mend it, if there is something to mend.
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
        """Says whether the provider runs a node, or in a few words why it does not.

        ``node.version`` is the opset version that the node is written in.
        """

    def has_operator(self, node: ir.Node) -> bool:
        """Says whether a node's operator is known, whatever else stands in the node's way.

        The hint of an error then says to mend the node rather than to look for its operator.
        """
        return self.operators.find(node.domain, node.op_type, node.version or 1) is not None

    def declines(self, transform: str) -> str | None:
        """Says why a transform of this name is of no use to it; ``None`` if it may be.

        Such as that it does the same as it compiles. The provider that a session prefers is asked,
        for every transform but those that are required.
        """
        del transform
        return None

    @abstractmethod
    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns the steps that run a segment of nodes it supports, in order."""

    def opened(self, model: str) -> None:
        """Hears that a session is complete that it compiled segments of.

        Args:
            model: What messages call its model.
        """
        del model

    @classmethod
    def depends_on(cls) -> tuple[Any, ...] | None:
        """Returns what its steps depend on besides code and options, such as the processor.

        ``None``, as at first, if they mean nothing to another process: plans that have such steps
        are not kept.
        """
        return None

    def reopened(self) -> str | None:
        """Hears that steps are used again which it compiled in another process.

        It is a copy of the provider that did. Returns why they cannot be used, if they cannot.
        """
        return None

    def kernels(self) -> Mapping[str, KernelState]:
        """Returns the kernels that what it compiled asked for, by name; none at first."""
        return {}


def why_unusable(provider: type[Provider]) -> str | None:
    """Returns what ``check`` says is missing, or how it failed; ``None`` for a usable provider."""
    try:
        return provider.check()
    except Exception as error:  # a stranger's code may raise anything
        return f"its check failed: {type(error).__name__}: {error}"


def resolve_provider_name(name: str, providers: Iterable[type[Provider]]) -> type[Provider] | None:
    """Finds a provider class by name or alias, ignoring case."""
    wanted = name.lower()
    for provider in providers:
        if wanted in (provider.name.lower(), *(alias.lower() for alias in provider.aliases)):
            return provider
    return None
