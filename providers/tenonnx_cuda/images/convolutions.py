"""Convolutions by cuDNN: the fastest plan for each of them.

What cuDNN has no engine for is left out from the end of its graph, and to the caller.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tenonnx_cuda.images.convolution_graph import Convolution, W, X, Y, graph_of
from tenonnx_cuda.images.cudnn import Backend, CuDNNError, Descriptor, load

HEURISTICS: Final = (3, 2)
"""CUDNN_HEUR_MODE_A, then CUDNN_HEUR_MODE_FALLBACK."""

TENSOR_CORE, DOWN_CONVERT, REDUCED_SUMS, NONDETERMINISTIC = 0, 1, 2, 4
"""``CUDNN_NUMERICAL_NOTE_*``."""

RUNTIME_COMPILATION: Final = 0
"""CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION."""

NOTES: Final = 16
"""An engine's notes at most."""

CONFIGURATIONS: Final = 24
"""Ways that are asked for."""

CANDIDATES: Final = 6
"""Ways that are tried."""

ROUNDS: Final = 3
"""How often a plan is timed."""

MOST: Final = 1024
"""Plans that are kept."""

MOST_PACKS: Final = 8
"""Sets of addresses that are kept of a plan, for memory comes around again in the next run."""

log = logging.getLogger("tenonnx")


@dataclass(frozen=True)
class Plan:
    """A way to compute something.

    Attributes:
        plan: cuDNN's.
        workspace: Bytes of working memory.
        endings: Which of the endings it does.
        packs: What cuDNN is told of addresses, those of ``names`` and of the working memory.
    """

    plan: Descriptor
    workspace: int
    endings: tuple[int, ...]
    packs: dict[tuple[int, ...], Descriptor] = field(default_factory=dict)

    @property
    def names(self) -> tuple[int, ...]:
        """The tensors that it takes."""
        return (X, W, Y, *(name for name in self.endings if name != Y))


class Convolutions:
    """cuDNN on a device, for all of its sessions.

    Args:
        cupy: The module, whose current device, stream and pool are used.
        backend: cuDNN.
    """

    def __init__(self, cupy: Any, backend: Backend) -> None:
        self._cupy = cupy
        self._backend = backend
        self._handle = backend.handle()
        self._plans: dict[Convolution, Plan | None] = {}
        # Neither the handle, which has a stream, nor every plan is for several threads at once.
        self._lock = threading.Lock()

    def plan(self, what: Convolution, addresses: dict[int, int]) -> Plan | None:
        """Returns how a convolution is computed; ``None`` if cuDNN has no way at all.

        Args:
            what: The convolution.
            addresses: Of ``X``, ``W`` and ``Y``; of ``BIAS`` and ``SUM``, if there are any.
        """
        with self._lock:
            if what not in self._plans:
                if len(self._plans) == MOST:
                    del self._plans[next(iter(self._plans))]
                self._plans[what] = self._chosen(what, addresses)
            return self._plans[what]

    def start(self, plan: Plan, *addresses: int) -> None:
        """Starts a plan on the current stream.

        Args:
            plan: The plan.
            addresses: Of its ``names``, and of its working memory.
        """
        with self._lock:
            self._start(plan, addresses)

    def _chosen(self, what: Convolution, addresses: dict[int, int]) -> Plan | None:
        """Returns a plan that does as much as any; of several, the fastest."""
        for ending in range(len(what.endings), -1, -1):
            # While a graph is recorded nothing runs that could be timed.
            recording = self._cupy.cuda.get_current_stream().is_capturing()
            few = CANDIDATES if what.measured and not recording else 1
            found = list(itertools.islice(self._candidates(what, ending), few))
            if few == 1 and found:
                return found[0]
            times = [self._took(plan, addresses) for plan in found]
            if times and min(times) < math.inf:
                return found[times.index(min(times))]
        log.warning("cuDNN has no way for a convolution of %s by %s: a kernel of this provider's "
                    "does it", what.x.shape, what.w.shape)  # fmt: skip
        return None

    def _took(self, plan: Plan, addresses: dict[int, int]) -> float:
        """Returns how long a plan takes; for ever if it fails, as for want of memory."""
        cuda, names = self._cupy.cuda, plan.names
        try:
            space = self._cupy.empty(plan.workspace, np.uint8) if plan.workspace else None
            given = (*(addresses[name] for name in names), 0 if space is None else space.data.ptr)
            self._start(plan, given)
            times = []
            for _ in range(ROUNDS):
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

    def _candidates(self, what: Convolution, ending: int) -> Iterator[Plan]:
        """Makes plans, cuDNN's favourites first."""
        try:
            graph = graph_of(self._backend, self._handle, what, ending)
        except CuDNNError as error:
            log.debug("cuDNN has no such graph: %s", error)
            return
        for mode in HEURISTICS:
            try:
                ways = self._backend.make(
                    "ENGINEHEUR", OPERATION_GRAPH=graph, MODE=mode
                ).fill("RESULTS", "ENGINECFG", CONFIGURATIONS)  # fmt: skip
            except CuDNNError as error:
                log.debug("cuDNN proposes nothing: %s", error)
                continue
            for way in ways:
                if suits(way, what) and (plan := self._plan(way, what, ending)) is not None:
                    yield plan

    def _plan(self, way: Descriptor, what: Convolution, ending: int) -> Plan | None:
        try:
            plan = self._backend.make("EXECUTION_PLAN", HANDLE=self._handle, ENGINE_CONFIG=way)
            (workspace,) = plan.numbers("WORKSPACE_SIZE", 1)
        except CuDNNError as error:
            log.debug("cuDNN does not take its own proposal: %s", error)
            return None
        return Plan(plan, workspace, what.endings[:ending]) if workspace <= what.workspace else None

    def _start(self, plan: Plan, addresses: tuple[int, ...]) -> None:
        if (pack := plan.packs.get(addresses)) is None:
            if len(plan.packs) == MOST_PACKS:
                del plan.packs[next(iter(plan.packs))]
            *tensors, workspace = addresses
            pack = plan.packs[addresses] = self._backend.make(
                "VARIANT_PACK", UNIQUE_IDS=plan.names, DATA_POINTERS=tensors, WORKSPACE=workspace
            )
        stream = self._cupy.cuda.get_current_stream().ptr
        self._backend("cudnnSetStream", self._handle, stream)
        self._backend("cudnnBackendExecute", self._handle, plan.plan.address, pack.address)


def convolutions(cupy: Any) -> Convolutions | None:
    """Returns cuDNN on the current device; ``None``, with a line in the log, if it is not found."""
    try:
        return Convolutions(cupy, load())
    except (OSError, AttributeError, CuDNNError) as error:
        major = cupy.cuda.runtime.runtimeGetVersion() // 1000
        log.warning("convolutions are not cuDNN's, which would be faster (`pip install "
                    "nvidia-cudnn-cu%d`): %s", major, error)  # fmt: skip
        return None


def suits(way: Descriptor, what: Convolution) -> bool:
    """Says whether an engine is as exact as it should be, and always gives the same result.

    One that is compiled for each plan would take seconds, where there may be dozens of plans.
    """
    (engine,) = way.fill("ENGINE", "ENGINE", 1)
    if RUNTIME_COMPILATION in engine.numbers("BEHAVIOR_NOTE", NOTES):
        return False
    notes = set(engine.numbers("NUMERICAL_NOTE", NOTES))
    refused = {REDUCED_SUMS, NONDETERMINISTIC}
    if what.dtype == np.float32 and not what.tf32:
        refused |= {TENSOR_CORE, DOWN_CONVERT}
    return notes.isdisjoint(refused)
