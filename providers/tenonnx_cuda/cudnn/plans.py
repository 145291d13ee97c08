"""Computations of cuDNN, and their plans, which are made once for shapes and kept."""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import math
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from tenonnx.operators import Array, Namespace
from tenonnx_cuda.capture.tracer import start
from tenonnx_cuda.cudnn.descriptors import Backend, CuDNNError, Descriptor, load
from tenonnx_cuda.cudnn.operations import Operations

# CUDNN_HEUR_MODE_A, then CUDNN_HEUR_MODE_FALLBACK.
HEURISTICS: Final = (3, 2)

# `CUDNN_NUMERICAL_NOTE_*`.
TENSOR_CORE, DOWN_CONVERT, REDUCED_SUMS, NONDETERMINISTIC = 0, 1, 2, 4

# The notes on FFT and on Winograd's tiles, whose factors are sums that were rounded.
TRANSFORMED: Final = (3, 5, 6, 7, 8)

# CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION.
RUNTIME_COMPILATION: Final = 0

# An engine's notes at most.
MAX_NOTES: Final = 16

# Ways that are asked for.
MAX_CONFIGURATIONS: Final = 24

# Ways that are tried.
MAX_CANDIDATES: Final = 6

# The number of times that a plan is timed.
TIMING_ROUNDS: Final = 3

# Plans that are kept: those that were asked for last.
MAX_PLANS: Final = 512

# Sets of addresses that are kept of a plan, for memory comes around again in the next run.
MOST_PACKS: Final = 8

log = logging.getLogger("tenonnx")


class Graph(NamedTuple):
    """Operations, and what they read and write.

    Attributes:
        operations: Them.
        names: The arrays in the device's memory.
        numbers: Numbers on the host, by name.
        serves_all: Its kernels are those of all of its family, and not compiled for its shapes.
    """

    operations: Operations
    names: tuple[int, ...]
    numbers: Mapping[int, ctypes.c_float | ctypes.c_int32] = {}
    serves_all: bool = False


class Notes(NamedTuple):
    """cuDNN's notes on an engine.

    Attributes:
        numerical: ``TENSOR_CORE`` and such.
        behavior: ``RUNTIME_COMPILATION``, or not.
    """

    numerical: set[int]
    behavior: set[int]

    @classmethod
    def of(cls, way: Descriptor) -> Notes:
        """Ask the engine of an engine configuration."""
        (engine,) = way.fill("ENGINE", "ENGINE", 1)
        kinds = ("NUMERICAL_NOTE", "BEHAVIOR_NOTE")
        return cls(*(set(engine.numbers(kind, MAX_NOTES)) for kind in kinds))


class Computation(Protocol):
    """Something for cuDNN: all that a plan depends on. Its text says what it is.

    Attributes:
        family: What all have in common that cuDNN has a way for, or for none of them.
        forms: How much of it may be done, or how: the one that is liked best first.
        measured: The fastest plan is looked for; otherwise cuDNN's first choice is taken.
        workspace: Bytes of working memory at most.
    """

    @property
    def family(self) -> Hashable: ...  # noqa: D102 - an attribute

    @property
    def forms(self) -> Iterable[int]: ...  # noqa: D102 - likewise

    @property
    def measured(self) -> bool: ...  # noqa: D102 - likewise

    @property
    def workspace(self) -> int: ...  # noqa: D102 - likewise

    def __hash__(self) -> int: ...

    def graph(self, backend: Backend, form: int) -> Graph:
        """Return what does it in one of the forms."""
        ...

    def suits(self, notes: Notes) -> bool:
        """Return whether an engine of which cuDNN says so may do it."""
        ...


@dataclass(frozen=True)
class CudnnPlan:
    """A way to compute something.

    Attributes:
        form: In which it is done.
        plan: cuDNN's.
        workspace: Bytes of working memory.
        names: The arrays that it takes.
        numbers: What else it reads, on the host.
        packs: What cuDNN is told of addresses, those of ``names`` and of the working memory.
    """

    form: int
    plan: Descriptor
    workspace: int
    names: tuple[int, ...]
    numbers: Mapping[int, ctypes.c_float | ctypes.c_int32]
    packs: dict[tuple[int, ...], Descriptor] = field(default_factory=dict)


class Cudnn:
    """cuDNN on a device, for all of its sessions.

    Args:
        cupy: The module, whose current device, stream and pool are used.
        backend: cuDNN.
    """

    def __init__(self, cupy: Any, backend: Backend) -> None:
        self._cupy = cupy
        self._backend = backend
        self._handle = backend.handle()
        self._plans: dict[Computation, CudnnPlan | None] = {}
        self._kernels: dict[Hashable, Descriptor] = {}
        self._refused: set[Hashable] = set()
        # Neither the handle, which has a stream, nor every plan is for several threads at once.
        self._lock = threading.Lock()

    def plan(self, what: Computation, addresses: dict[int, int]) -> CudnnPlan | None:
        """Return how something is computed; ``None`` if cuDNN has no way at all.

        Args:
            what: It.
            addresses: Of all arrays that a graph of it has.
        """
        with self._lock:
            if what.family in self._refused:
                return None
            if what not in self._plans and len(self._plans) == MAX_PLANS:
                del self._plans[next(iter(self._plans))]
            found = self._plans.pop(what) if what in self._plans else self._chosen(what, addresses)
            self._plans[what] = found
            return found

    def is_settled(self, what: Computation) -> bool:
        """Return whether it may be captured: cuDNN has no way for it, or has started its plan.

        The first start may do what no graph repeats.
        """
        with self._lock:
            plan = self._plans.get(what)
            return what.family in self._refused or (plan is not None and bool(plan.packs))

    def does(
        self, what: Computation, plan: CudnnPlan, arrays: Mapping[int, Array | None], xp: Namespace
    ) -> bool:
        """Start a plan on the current stream.

        Args:
            what: What is computed.
            plan: For it.
            arrays: By their names in graphs.
            xp: Their namespace, which working memory comes from.

        Returns:
            Whether cuDNN took it; it is not asked again for what it did not.
        """
        workspace = xp.empty((plan.workspace,), np.uint8) if plan.workspace else None
        try:
            run = functools.partial(self._start_plan, plan)
            start(run, *(arrays[name] for name in plan.names), workspace)
        except CuDNNError as why:
            with self._lock:
                self._refused.add(what.family)
            log.warning("cuDNN failed at %s (%s): a kernel of this provider's does it", what, why)
            return False
        return True

    def _start_plan(self, plan: CudnnPlan, *addresses: int) -> None:
        """Start a plan on the addresses of its arrays, and of its working memory."""
        with self._lock:
            self._start(plan, addresses)

    def _chosen(self, what: Computation, addresses: dict[int, int]) -> CudnnPlan | None:
        """Return a plan for the first form that has one; of several, the fastest."""
        # While a graph is captured nothing runs that could be timed.
        capturing = self._cupy.cuda.get_current_stream().is_capturing()
        few = MAX_CANDIDATES if what.measured and not capturing else 1
        for form in what.forms:
            found = list(itertools.islice(self._candidates(what, form), few))
            if few == 1 and found:
                return found[0]
            times = [self._seconds_of(plan, addresses) for plan in found]
            if times and min(times) < math.inf:
                return found[times.index(min(times))]
        self._refused.add(what.family)
        log.warning("cuDNN has no way for %s: a kernel of this provider's does it", what)
        return None

    def _seconds_of(self, plan: CudnnPlan, addresses: dict[int, int]) -> float:
        """Return how long a plan takes; for ever if it fails, as for want of memory."""
        cuda, names = self._cupy.cuda, plan.names
        try:
            space = self._cupy.empty(plan.workspace, np.uint8) if plan.workspace else None
            given = (*(addresses[name] for name in names), 0 if space is None else space.data.ptr)
            self._start(plan, given)
            times = []
            for _ in range(TIMING_ROUNDS):
                before, after = cuda.Event(), cuda.Event()
                before.record()
                self._start(plan, given)
                after.record()
                after.synchronize()
                times.append(cuda.get_elapsed_time(before, after))
            return float(min(times))
        except (CuDNNError, MemoryError) as error:
            log.debug("a plan is not taken: %s", error)
            return math.inf

    def _candidates(self, what: Computation, form: int) -> Iterator[CudnnPlan]:
        """Make plans, cuDNN's favorites first."""
        try:
            graph = what.graph(self._backend, form)
            described, kernels = self._described(what, graph)
        except CuDNNError as error:
            log.debug("cuDNN has no such graph: %s", error)
            return
        for mode in HEURISTICS:
            try:
                ways = self._backend.make(
                    "ENGINEHEUR", OPERATION_GRAPH=described, MODE=mode
                ).fill("RESULTS", "ENGINECFG", MAX_CONFIGURATIONS)  # fmt: skip
            except CuDNNError as error:
                log.debug("cuDNN proposes nothing: %s", error)
                continue
            for way in ways:
                if what.suits(Notes.of(way)) and (made := self._made(way, kernels)) is not None:
                    plan, workspace = made
                    if workspace <= what.workspace:
                        yield CudnnPlan(form, plan, workspace, graph.names, graph.numbers)

    def _described(
        self, what: Computation, graph: Graph
    ) -> tuple[Descriptor, dict[str, Descriptor]]:
        """Return cuDNN's graph, and where the kernels are that may serve it."""
        parts = {"HANDLE": self._handle, "OPS": graph.operations.made}
        if not graph.serves_all:
            return self._backend.make("OPERATIONGRAPH", **parts), {}
        described = self._backend.make("OPERATIONGRAPH", **parts, IS_DYNAMIC_SHAPE_ENABLED=True)
        if what.family not in self._kernels:
            made = self._backend.make("KERNEL_CACHE", OPERATION_GRAPH=described)
            self._kernels[what.family] = made
        return described, {"KERNEL_CACHE": self._kernels[what.family]}

    def _made(
        self, way: Descriptor, kernels: dict[str, Descriptor]
    ) -> tuple[Descriptor, int] | None:
        """Return cuDNN's plan, and how much working memory it takes."""
        try:
            parts = {"HANDLE": self._handle, "ENGINE_CONFIG": way, **kernels}
            plan = self._backend.make("EXECUTION_PLAN", **parts)
            (workspace,) = plan.numbers("WORKSPACE_SIZE", 1)
        except CuDNNError as error:
            log.debug("cuDNN does not take its own proposal: %s", error)
            return None
        return plan, workspace

    def _start(self, plan: CudnnPlan, addresses: tuple[int, ...]) -> None:
        if (pack := plan.packs.get(addresses)) is None:
            if len(plan.packs) == MOST_PACKS:
                del plan.packs[next(iter(plan.packs))]
            *arrays, workspace = addresses
            pack = plan.packs[addresses] = self._backend.make(
                "VARIANT_PACK",
                UNIQUE_IDS=(*plan.names, *plan.numbers),
                DATA_POINTERS=(*arrays, *map(ctypes.addressof, plan.numbers.values())),
                WORKSPACE=workspace,
            )
        stream = self._cupy.cuda.get_current_stream().ptr
        self._backend("cudnnSetStream", self._handle, stream)
        self._backend("cudnnBackendExecute", self._handle, plan.plan.address, pack.address)


def cudnn_of(cupy: Any) -> Cudnn | None:
    """Return cuDNN on the current device; ``None``, with a line in the log, if it is not found."""
    try:
        return Cudnn(cupy, load())
    except (OSError, AttributeError, CuDNNError) as error:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        log.warning("convolutions and attention are not cuDNN's, which would be faster (`pip "
                    "install nvidia-cudnn-cu%d`): %s", major, error)  # fmt: skip
        return None
