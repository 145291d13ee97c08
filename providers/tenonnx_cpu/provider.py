"""The CPU provider: the operator library over numpy, and JIT kernels where numpy is slow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tenonnx.interface.enums import GraphOptimizationLevel
from tenonnx.provider import HOST, Device, KernelState, Segment, Step
from tenonnx.records import record
from tenonnx_array.provider import ArrayProvider
from tenonnx_cpu.buffers import COUNTED
from tenonnx_cpu.jit.code.cache import cached_files, compiler, forget_unused, machine_stamp
from tenonnx_cpu.jit.runtime import (
    ASKING,
    NO_NUMBA,
    NUMPY,
    Demand,
    has_kernels,
    has_numba,
    jit_mode,
    reopen,
    warm_up,
)
from tenonnx_cpu.threading_config import THREADS, heed, most_threads

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir

    from tenonnx_cpu.fuse import Fused


DECLINED_COMPILED = {
    "conv-batchnorm": "factors are applied as the result is stored, and need no other weights",
}
"""Transforms that would copy weights for what kernels do without."""

DECLINED_PLAIN = {
    "attention": "numpy takes as many passes for the operator as for the nodes it stands for",
}
"""Transforms that gain nothing where nobody compiles kernels."""


LARGEST_SHAPE = 256
"""Elements of a constant that takes part in arithmetic on shapes."""


@record
class CpuOptions:
    """The provider's settings from a session.

    Attributes:
        arena_extend_strategy: Accepted for onnxruntime's sake, without effect.
    """

    arena_extend_strategy: str = "kNextPowerOfTwo"


class CPUExecutionProvider(ArrayProvider):
    """Runs on the host, reading weights where they are mapped."""

    name: ClassVar[str] = "CPUExecutionProvider"
    aliases: ClassVar[tuple[str, ...]] = ("cpu",)
    Options: ClassVar[type | None] = CpuOptions
    device: Device = HOST

    _lacking = ""
    """Why it has no kernels at all, if it has none."""

    @functools.cached_property
    def threads(self) -> int:
        """The number of threads that a kernel may use: the session's, or that of the cores."""
        most = most_threads()
        asked = self.session_options.intra_op_num_threads
        return min(asked, most) if asked > 0 else most

    @functools.cached_property
    def packs(self) -> bool:
        """Whether a kernel may have a copy made of weights, laid out as suits it."""
        return self.session_options.entry("session.disable_prepacking") != "1"

    @functools.cached_property
    def _demand(self) -> Demand:
        """The kernels of its sessions' nodes."""
        return Demand()

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Compiles kernels into the disk cache: all, or those of sessions."""
        if everything:
            from tenonnx_cpu.lazy_import import import_all

            import_all()
        return warm_up(tell, everything=everything)

    @classmethod
    def remarks(cls) -> Iterable[tuple[str, str | None]]:
        """Says which kernels there are."""
        from tenonnx_cpu.jit.code.remarks import kernels

        return (kernels(),)

    @classmethod
    def kept_files(cls) -> Iterable[Path]:
        """Returns the files of compiled kernels."""
        return cached_files()

    @classmethod
    def forget_unused(cls) -> Iterable[Path]:
        """Deletes kernels of older sources and of other machines."""
        return forget_unused()

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns a step per node, or for several where they are fused.

        Without graph optimizations none are: observers then see what every node computes.
        """
        THREADS.set(self.threads)
        heed(self.session_options)
        if not has_kernels():
            self._lacking = "TENONNX_JIT is 0" if jit_mode() == "0" else NO_NUMBA
            return super().compile(segment)
        token = ASKING.set(self._demand)
        try:
            return self._compile(segment)
        finally:
            self._demand.node = None
            ASKING.reset(token)

    def _compile(self, segment: Segment) -> Sequence[Step]:
        # For those who have kernels.
        from tenonnx.planning.shape_arithmetic import on_shapes
        from tenonnx_cpu.capture.span import alone, captured
        from tenonnx_cpu.fuse import FUSIONS, Scope
        from tenonnx_cpu.lazy_import import import_for

        import_for((node.domain, node.op_type) for node in segment.nodes)
        free = dict.fromkeys(filter(self._is_free, segment.nodes))
        level = self.session_options.graph_optimization_level
        fusible = tuple(free) if level != GraphOptimizationLevel.ORT_DISABLE_ALL else ()
        scope = Scope(
            segment.nodes, fusible, segment.escaping, self.threads, self._step, self.packs
        )
        fused = FUSIONS.find(scope)
        asked = on_shapes(filter(_is_inner, filter(scope.has, fusible)), LARGEST_SHAPE)
        scope.taken.update(asked)
        steps = []
        for node in segment.nodes:
            if node in fused:
                steps.append(_fused_step(fused[node]))
            elif node not in scope.taken:
                steps.append(self._special_step(node) if node in free else self._step(node))
        if asked:
            from tenonnx_cpu.shapes import shape_cache  # for models that ask for shapes

            steps = shape_cache(asked, steps, self._step)
        return captured(steps, segment.escaping) if fusible else [*map(alone, steps)]

    def opened(self, model: str) -> None:
        """Says what is compiled for a model, if anything is."""
        if waiting := self._demand.waiting():
            from tenonnx_cpu.jit.background import announce

            announce(model, waiting)

    @classmethod
    def depends_on(cls) -> tuple[Any, ...]:
        """Returns the processor, who compiles kernels for it, and how many threads there are."""
        return (
            ("TENONNX_JIT", jit_mode()),
            ("whether there are kernels", has_kernels()),
            ("whether numba is installed", has_numba()),
            ("the processor, or the kind that kernels are for", machine_stamp(compiler())),
            ("reference counts", COUNTED),
            ("how many threads kernels may have", most_threads()),
        )

    def reopened(self) -> str | None:
        """Asks for the kernels again, and says what is said when steps are compiled."""
        THREADS.set(self.threads)
        heed(self.session_options)
        token = ASKING.set(self._demand)
        try:
            return reopen(tuple(self._demand))
        finally:
            ASKING.reset(token)

    def kernels(self) -> Mapping[str, KernelState]:
        """Returns the kernels that nodes asked for; without any, one row that says why."""
        if self._lacking:
            return {"all": KernelState(NUMPY, self._lacking)}
        return {str(k): KernelState(k.state, k.reason) for k in tuple(self._demand)}

    def declines(self, transform: str) -> str | None:
        """Says what it does better itself as it compiles nodes, or what gains it nothing."""
        declined = DECLINED_COMPILED if has_kernels() else DECLINED_PLAIN
        return declined.get(transform)

    def _special_step(self, node: ir.Node) -> Step:
        """Returns a free node's step, on a kernel of the provider's own if there is one."""
        from tenonnx_cpu.kernel_selection import SPECIALIZATIONS, Site

        step = self._step(node)
        special = SPECIALIZATIONS.get((node.domain, node.op_type))
        self._demand.node = node
        call = None if special is None else special(Site(node, self.threads), step.call)
        if call is None:
            return step
        return step.called(call)

    def _is_free(self, node: ir.Node) -> bool:
        """Says whether a node may be computed otherwise than by the kernel it has.

        Not if a plug-in brought that kernel for an operator of the array library, or for one that
        nothing here computes.
        """
        from tenonnx_array import TABLE
        from tenonnx_cpu.fuse import FUSIONS
        from tenonnx_cpu.kernel_selection import SPECIALIZATIONS

        place = (node.domain, node.op_type, node.version or 1)
        if (plain := TABLE.find(*place)) is None:
            return place[:2] in SPECIALIZATIONS or FUSIONS.start_at(place[:2])
        return self.table.find(*place) is plain


def _fused_step(fused: Fused) -> Step:
    return Step(
        call=fused.call,
        inputs=fused.inputs,
        outputs=fused.outputs,
        nodes=fused.nodes,
        multiple=len(fused.outputs) > 1,
    )


def _is_inner(node: ir.Node) -> bool:
    """Says whether no output of a graph is made by a node."""
    return not any(value.is_graph_output() for value in node.outputs)
