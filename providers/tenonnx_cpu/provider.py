"""The CPU provider: the operator library over numpy, and JIT kernels where numpy is slow."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from tenonnx.interface.enums import GraphOptimizationLevel
from tenonnx.planning.lower import is_constant
from tenonnx.provider import HOST, Device, Segment, Step
from tenonnx.records import record
from tenonnx_array import TABLE
from tenonnx_array.provider import ArrayProvider
from tenonnx_cpu.brought import bring, bring_all
from tenonnx_cpu.fuse import Fused, Scope, find_fusions, may_begin
from tenonnx_cpu.jit.code.cache import cached_files
from tenonnx_cpu.jit.runtime import has_kernels, warm_up
from tenonnx_cpu.recording.recorded import Recorded
from tenonnx_cpu.shapes import looked_up, on_shapes
from tenonnx_cpu.specialise import SPECIALISATIONS, Site
from tenonnx_cpu.team import TEAM, entry, heed, most_threads

if TYPE_CHECKING:
    from pathlib import Path

    import onnx_ir as ir


DECLINED_COMPILED = {
    "bias-gelu": "sums and activations are one pass, however many nodes they are",
    "conv-activation": "activations are computed while the convolution's result is in the cache",
    "conv-batchnorm": "factors are applied as the result is stored, and need no other weights",
    "rotary": "halves are turned in one pass over what exporters write",
    "skip-norm": "a sum and its normalisation are one pass",
    "swish": "products with a sigmoid are computed with what is around them, in one pass",
}
"""Transforms that would hide what is found as nodes are compiled, or copy weights for it."""

DECLINED_PLAIN = dict.fromkeys(
    ("attention", "bias-gelu", "conv-activation", "rotary", "skip-norm"),
    "numpy takes as many passes for the operator as for the nodes that it stands for",
)
"""Transforms that gain nothing where nobody compiles kernels."""


@record
class CpuOptions:
    """What a session asks of the provider.

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

    @functools.cached_property
    def threads(self) -> int:
        """How many threads a kernel may use: as many as the session says, or as there are."""
        most = most_threads()
        asked = self.session_options.intra_op_num_threads
        return min(asked, most) if asked > 0 else most

    @functools.cached_property
    def packs(self) -> bool:
        """Whether a kernel may have a copy made of weights, laid out as suits it."""
        return entry(self.session_options, "session.disable_prepacking") != "1"

    @classmethod
    def warm_up(cls, tell: Callable[[str, float], None], *, everything: bool) -> dict[str, bool]:
        """Compiles kernels into the disk cache: all, or those that sessions asked for."""
        if everything:
            bring_all()
        return warm_up(tell, everything=everything)

    @classmethod
    def kept_files(cls) -> Iterable[Path]:
        """Returns the files of compiled kernels."""
        return cached_files()

    def compile(self, segment: Segment) -> Sequence[Step]:
        """Returns a step per node, or for several where they are fused.

        Without graph optimisations none are: observers then see what every node computes.
        """
        if has_kernels():
            bring((node.domain, node.op_type) for node in segment.nodes)
        TEAM.set(self.threads)
        heed(self.session_options)
        level = self.session_options.graph_optimization_level
        fusible = segment.nodes if level != GraphOptimizationLevel.ORT_DISABLE_ALL else ()
        free = [node for node in fusible if self._is_free(node)]
        scope = Scope(free, segment.escaping, self.threads, super()._step, self.packs)
        fused = find_fusions(segment.nodes, scope)
        asked = on_shapes([node for node in free if node not in scope.taken])
        scope.taken.update(asked)
        steps = []
        for node in segment.nodes:
            if node in fused:
                steps.append(_fused_step(fused[node]))
            elif node not in scope.taken:
                steps.append(self._step(node))
        return list(map(_replayed, looked_up(asked, steps, super()._step))) if asked else steps

    def declines(self, transform: str) -> str | None:
        """Says what it does better itself as it compiles nodes, or what gains it nothing."""
        declined = DECLINED_COMPILED if has_kernels() else DECLINED_PLAIN
        return declined.get(transform)

    def _step(self, node: ir.Node) -> Step:
        step = super()._step(node)
        special = SPECIALISATIONS.get((node.domain, node.op_type))
        if special is None or not self._is_free(node):
            return step
        call = special(Site(node, self.threads), step.call)
        return step if call is None else _replayed(dataclasses.replace(step, call=call))

    def _is_free(self, node: ir.Node) -> bool:
        """Says whether a node may be computed otherwise than by the kernel it has.

        Not if a plugin brought that kernel for an operator the array library has, or that nothing
        here is for; nor if there is nobody to compile another one.
        """
        if not has_kernels():
            return False
        place = (node.domain, node.op_type, node.version or 1)
        if (plain := TABLE.find(*place)) is None:
            return place[:2] in SPECIALISATIONS or may_begin(*place[:2])
        return self.table.find(*place) is plain


def _fused_step(fused: Fused) -> Step:
    step = Step(
        call=fused.call,
        inputs=fused.inputs,
        outputs=fused.outputs,
        nodes=fused.nodes,
        multiple=len(fused.outputs) > 1,
    )
    return _replayed(step)


def _replayed(step: Step) -> Step:
    """Returns a step whose call records itself, if it can."""
    if not isinstance(step.call, Recorded):
        return step
    constants = [value is not None and is_constant(value) for value in step.inputs]
    return dataclasses.replace(step, call=step.call.replayed(constants))
