"""Convolutions by cuDNN: a graph of operations for each shape, and the fastest plan for it.

A graph is a convolution, a sum, a bias and an activation, each of the result of the one before.
What cuDNN has no engine for is left out from its end, and to the caller.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from tenonnx_cuda.images.cudnn import Backend, CuDNNError, Descriptor, load

ELEMENTS: Final = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 2,
    np.dtype(ml_dtypes.bfloat16): 9,
}
"""``cudnnDataType_t``: CUDNN_DATA_FLOAT, CUDNN_DATA_HALF and CUDNN_DATA_BFLOAT16."""

FLOAT: Final = 0
CROSS_CORRELATION: Final = 1

ADD, RELU = 0, 100
"""CUDNN_POINTWISE_ADD and CUDNN_POINTWISE_RELU_FWD."""

PROPAGATE: Final = 1
"""CUDNN_PROPAGATE_NAN: of a NaN, a ReLU makes a NaN."""

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

WORKSPACE: Final = 256 << 20
LITTLE_WORKSPACE: Final = 32 << 20
"""Bytes of working memory that a plan may take, and without ``cudnn_conv_use_max_workspace``."""

ROUNDS: Final = 3
"""How often a plan is timed."""

MOST: Final = 1024
"""Plans that are kept."""

ALIGNMENT: Final = 16
"""What tensors' addresses are a multiple of."""

X, W, Y, BIAS, SUM = range(1, 6)
"""What tensors are called."""

INSIDE: Final = 16
"""Results that are not written are called this and up."""

log = logging.getLogger("tenonnx")


class Tensor(NamedTuple):
    """Where the elements of an array are, which begins at a multiple of ``ALIGNMENT``."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, array: Any) -> Tensor:
        """Describes an array."""
        width = array.itemsize
        return cls(tuple(array.shape), tuple(stride // width for stride in array.strides))

    @classmethod
    def laid(cls, shape: tuple[int, ...], *, last: bool) -> Tensor:
        """Describes an array without gaps whose channels are last, or where they are."""
        order = (0, *range(2, len(shape)), 1) if last else range(len(shape))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis], step = step, step * shape[axis]
        return cls(shape, tuple(strides))

    def padded(self) -> Tensor:
        """Returns the same with at least two spatial axes, which cuDNN wants."""
        if len(self.shape) != 3:
            return self
        (n, c, w), (by_n, by_c, by_w) = self
        return Tensor((n, c, 1, w), (by_n, by_c, w * by_w, by_w))


class Convolution(NamedTuple):
    """What is computed; all that a plan depends on.

    Attributes:
        dtype: The element type.
        x, w, y: The arrays; of a transposed one x is the smaller image.
        strides, dilations, begins, ends: Of the windows.
        transposed: Goes the other way.
        tf32: Factors may be rounded to 10 bits.
        z: What is added, if anything.
        bias: A number for each map is added.
        relu: Results below zero become zero.
        measured: The fastest plan is looked for; otherwise cuDNN's first choice is taken.
        workspace: Bytes of working memory at most.
    """

    dtype: np.dtype[Any]
    x: Tensor
    w: Tensor
    y: Tensor
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    transposed: bool = False
    tf32: bool = True
    z: Tensor | None = None
    bias: bool = False
    relu: bool = False
    measured: bool = True
    workspace: int = WORKSPACE

    @property
    def endings(self) -> tuple[int, ...]:
        """What follows the convolution: ``SUM``, ``BIAS``, and ``Y`` for the activation.

        In another order, or after a transposed one, cuDNN 9 has no fast engine.
        """
        has = ((SUM, self.z is not None), (BIAS, self.bias), (Y, self.relu))
        return tuple(name for name, present in has if present and not self.transposed)


class Plan(NamedTuple):
    """A way to compute something.

    Attributes:
        plan: cuDNN's.
        workspace: Bytes of working memory.
        ending: How many of the endings it does.
    """

    plan: Descriptor
    workspace: int
    ending: int


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

    def run(self, what: Convolution, addresses: dict[int, int]) -> int | None:
        """Starts a convolution.

        Args:
            what: The convolution.
            addresses: Of ``X``, ``W`` and ``Y``; of ``BIAS`` and ``SUM``, if there are any.

        Returns:
            How many of its ``endings`` that does; ``None`` if cuDNN has no way at all.
        """
        with self._lock:
            if what not in self._plans:
                if len(self._plans) == MOST:
                    del self._plans[next(iter(self._plans))]
                self._plans[what] = self._chosen(what, addresses)
            if (plan := self._plans[what]) is None:
                return None
            self._start(what, plan, addresses)
        return plan.ending

    def _chosen(self, what: Convolution, addresses: dict[int, int]) -> Plan | None:
        """Returns a plan that does as much as any; of several, the fastest."""
        for ending in range(len(what.endings), -1, -1):
            # While a graph is recorded nothing runs that could be timed.
            recording = self._cupy.cuda.get_current_stream().is_capturing()
            few = CANDIDATES if what.measured and not recording else 1
            found = list(itertools.islice(self._candidates(what, ending), few))
            if few == 1 and found:
                return found[0]
            times = [self._took(what, plan, addresses) for plan in found]
            if times and min(times) < math.inf:
                return found[times.index(min(times))]
        log.warning("cuDNN has no way for a convolution of %s by %s: a kernel of this provider's "
                    "does it", what.x.shape, what.w.shape)  # fmt: skip
        return None

    def _took(self, what: Convolution, plan: Plan, addresses: dict[int, int]) -> float:
        """Returns how long a plan takes; for ever if it fails, as for want of memory."""
        cuda = self._cupy.cuda
        try:
            self._start(what, plan, addresses)
            times = []
            for _ in range(ROUNDS):
                before, after = cuda.Event(), cuda.Event()
                before.record()
                self._start(what, plan, addresses)
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
        return Plan(plan, workspace, ending) if workspace <= what.workspace else None

    def _start(self, what: Convolution, plan: Plan, addresses: dict[int, int]) -> None:
        names = (X, W, Y, *(name for name in what.endings[: plan.ending] if name != Y))
        memory = self._cupy.empty(plan.workspace, np.uint8) if plan.workspace else None
        pack = self._backend.make(
            "VARIANT_PACK",
            UNIQUE_IDS=names,
            DATA_POINTERS=[addresses[name] for name in names],
            WORKSPACE=0 if memory is None else memory.data.ptr,
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


def graph_of(backend: Backend, handle: Any, what: Convolution, ending: int) -> Descriptor:
    """Returns cuDNN's graph of a convolution and as many of its endings.

    Raises:
        CuDNNError: An attribute is none that cuDNN knows.
    """
    kind = ELEMENTS[what.dtype]

    def tensor(name: int, where: Tensor, *, inside: bool = False) -> Descriptor:
        shape, strides = where.padded()
        return backend.make(
            "TENSOR", DATA_TYPE=FLOAT if inside else kind, DIMENSIONS=shape, STRIDES=strides,
            UNIQUE_ID=name, BYTE_ALIGNMENT=ALIGNMENT, IS_VIRTUAL=inside,
        )  # fmt: skip

    endings = what.endings[:ending]
    results = [
        *(tensor(INSIDE + i, what.y, inside=True) for i in range(ending)),
        tensor(Y, what.y),
    ]
    x, w = tensor(X, what.x), tensor(W, what.w)
    operations = [_convolution(backend, what, x, w, results[0])]
    for name, before, after in zip(endings, results, results[1:], strict=False):
        if name == Y:
            operations.append(_relu(backend, before, after))
            continue
        other = tensor(name, what.z if name == SUM and what.z else _per_map(what.y))
        operations.append(_sum(backend, before, other, after))
    return backend.make("OPERATIONGRAPH", HANDLE=handle, OPS=operations)


def _per_map(y: Tensor) -> Tensor:
    """Returns where the bias of a result is."""
    maps = y.shape[1]
    ones = (1,) * (len(y.shape) - 2)
    return Tensor((1, maps, *ones), (maps, 1, *(maps for _ in ones)))


def _two(numbers: Sequence[int], first: int) -> tuple[int, ...]:
    """Returns the numbers of two axes or more: of one axis, another one's before them."""
    return (first, *numbers) if len(numbers) == 1 else tuple(numbers)


def _convolution(
    backend: Backend, what: Convolution, x: Descriptor, w: Descriptor, y: Descriptor
) -> Descriptor:
    described = backend.make(
        "CONVOLUTION",
        COMP_TYPE=FLOAT,
        CONV_MODE=CROSS_CORRELATION,
        SPATIAL_DIMS=max(2, len(what.strides)),
        FILTER_STRIDES=_two(what.strides, 1),
        DILATIONS=_two(what.dilations, 1),
        PRE_PADDINGS=_two(what.begins, 0),
        POST_PADDINGS=_two(what.ends, 0),
    )
    shared = {"ALPHA": 1.0, "BETA": 0.0, "CONV_DESC": described, "W": w}
    if what.transposed:
        kind = "OPERATION_CONVOLUTION_BACKWARD_DATA"
        return backend.make(kind, DX=y, DY=x, **shared)
    return backend.make("OPERATION_CONVOLUTION_FORWARD", X=x, Y=y, **shared)


def _relu(backend: Backend, before: Descriptor, after: Descriptor) -> Descriptor:
    described = backend.make("POINTWISE", MODE=RELU, MATH_PREC=FLOAT, NAN_PROPAGATION=PROPAGATE)
    kind = "OPERATION_POINTWISE"
    return backend.make(kind, PW_DESCRIPTOR=described, XDESC=before, YDESC=after)


def _sum(backend: Backend, before: Descriptor, other: Descriptor, after: Descriptor) -> Descriptor:
    described = backend.make("POINTWISE", MODE=ADD, MATH_PREC=FLOAT)
    operands = {"XDESC": before, "BDESC": other, "YDESC": after}
    return backend.make("OPERATION_POINTWISE", PW_DESCRIPTOR=described, **operands)
